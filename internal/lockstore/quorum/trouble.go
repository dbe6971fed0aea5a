package quorum

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/upstream"
)

// noMajority is the error if no majority answered: Redis' refusal if a majority refused, else NOQUORUM. what says what
// the verb did not do.
func (ns nodes) noMajority(all []result, answered int, what string) error {
	refusals := 0
	var said *upstream.ReplyError
	var why error
	var young []time.Duration
	for _, r := range all {
		var refusal *upstream.ReplyError
		if left, yes := countsIn(r.err); yes {
			young = append(young, left)
		} else if r.err != nil {
			why = r.err
		}
		if errors.As(r.err, &refusal) {
			refusals++
			said = refusal
		}
	}
	need := ns.majority()
	switch {
	case refusals >= need:
		return said
	case answered < need && answered+len(young) >= need:
		slices.Sort(young)
		return &lockstore.YoungError{Said: &lockstore.Error{Code: "NOQUORUM",
			Text: fmt.Sprintf("%d of %d nodes count, %d are needed: %s; %d were started, or their clocks set, "+
				"too recently, and enough nodes count in %d s", answered, len(ns), need, what, len(young), wholeSeconds(young[need-answered-1]))}}
	}
	text := fmt.Sprintf("%d of %d nodes answered, %d are needed: %s", answered, len(ns), need, what)
	if answered >= need {
		text = fmt.Sprintf("the %d of %d nodes that answered do not agree: %s", answered, len(ns), what)
	}
	if why != nil {
		text += " (" + lockstore.Printable(why.Error()) + ")"
	}
	return &lockstore.Error{Code: "NOQUORUM", Text: text}
}

// countsIn is in how long a node will count that is too young to; yes is false for every other error.
func countsIn(err error) (left time.Duration, yes bool) {
	var young *upstream.YoungError
	var jump *jumpError
	switch {
	case errors.As(err, &young):
		return young.Left(), true
	case errors.As(err, &jump):
		return jump.left, true
	}
	return 0, false
}

// wholeSeconds is d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
