package lockstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/upstream"
)

// ErrUntried says that it is not known yet whether a lock can be had.
var ErrUntried = errors.New("no lock has been tried yet")

// Ability is whether locks can be had at one Redis that keeps them.
type Ability struct {
	Node string    // its address, or its name in a quorum; "": there is but one Redis
	Err  error     // why no lock can be had there; nil: one could a moment ago
	Info *NodeInfo // of a node of a quorum; else nil
}

// Away is why the Redis does not answer; nil: it does, or has not been tried yet.
func (a Ability) Away() error {
	if a.Err == nil || Reason(a.Err) != "unreachable" {
		return nil
	}
	return a.Err
}

// Able is why locks cannot be had at Redises of which so many are needed; nil: they can.
func Able(all []Ability, needed int) error {
	unable := slices.DeleteFunc(slices.Clone(all), func(a Ability) bool { return a.Err == nil })
	if len(all)-len(unable) >= needed {
		return nil
	}
	if len(unable) == 0 {
		return ErrUntried // a cluster of which nothing is known yet
	}
	first := unable[0]
	if len(all) == 1 {
		return first.Err
	}
	return fmt.Errorf("%d of %d nodes give no locks, %s: %w", len(unable), len(all), first.Node, first.Err)
}

// At is why no lock can be had at the Redis with an address; keeps says whether it keeps locks.
func At(where []Ability, node string) (err error, keeps bool) {
	for _, a := range where {
		if a.Node == node || a.Node == "" {
			return a.Err, true
		}
	}
	return nil, false
}

// Reasons are all that Reason can say.
var Reasons = []string{"busy", "clusterdown", "err", "loading", "misconf", "noauth", "noperm", "noreplicas", "oom",
	"readonly", "unreachable", "untried"}

// Reason is one word for an error of Able: the first one of what Redis says, in lower case, or unreachable or untried.
func Reason(err error) string {
	var refusal *upstream.ReplyError
	var own *Error
	word := "unreachable"
	switch {
	case errors.Is(err, ErrUntried):
		return "untried"
	case errors.As(err, &refusal):
		word, _, _ = strings.Cut(refusal.Line, " ")
	case errors.As(err, &own):
		word = own.Code
	}
	if word = strings.ToLower(word); slices.Contains(Reasons, word) {
		return word
	}
	return "err"
}
