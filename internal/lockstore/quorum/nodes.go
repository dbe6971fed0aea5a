package quorum

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/upstream"
)

// nodes are all of a quorum. What their answers come to is said here, and in package tally.
type nodes []*quorumNode

// result is what one node said to one step.
type result struct {
	node  *quorumNode
	out   []int64
	holds [][]int64 // of a renewal: what of that is about each hold; nil: it was not asked about that one
	err   error
}

func (r result) code() int64 {
	if r.err != nil || len(r.out) == 0 {
		return noCode
	}
	return r.out[0]
}

// noCode is the code of a node that did not answer.
const noCode = -99

// unasked is what a node says that is not asked.
func unasked(n *quorumNode) result {
	return result{node: n, err: &upstream.NotSentError{Cause: errStepUnderWay}}
}

func (ns nodes) majority() int { return tally.Majority(len(ns)) }

// tallyOf is the Tally of the nodes that answered.
func (ns nodes) tallyOf(all []result) tally.Tally {
	t := tally.Tally{Nodes: len(ns)}
	for _, r := range all {
		if r.code() != noCode {
			t.Said = append(t.Said, r.out)
		}
	}
	return t
}

// done says whether a majority has done a step.
func (ns nodes) done(all []result) bool { return ns.tallyOf(all).Done() }

// freed is what an UNLOCK that a majority has answered has come to, or an error that says what is not known.
func (ns nodes) freed(all []result, unknown string) (code int64, err error) {
	t := ns.tallyOf(all)
	code, ok := t.Freed()
	if !ok {
		return 0, ns.noMajority(all, len(t.Said), unknown)
	}
	return code, nil
}

// decided says whether to wait for no more votes: either those still to come cannot change the result, or a majority
// has voted and only nodes are missing that are in trouble. Such a node is not waited for, because the votes given so
// far are kept meanwhile: others who ask for the lock do not get them, are refused, and come again at the same time as
// this one does.
func (ns nodes) decided(all []result) bool {
	t := ns.tallyOf(all)
	return t.Clear() || t.Quorate() && ns.onlyTroubled(all)
}

// onlyTroubled says whether all nodes that have not answered are in trouble.
func (ns nodes) onlyTroubled(all []result) bool {
	answered := map[*quorumNode]bool{}
	for _, r := range all {
		answered[r.node] = true
	}
	for _, n := range ns {
		if !answered[n] && !n.troubled() {
			return false
		}
	}
	return true
}

// settled says whether a majority has freed the lock, or all have answered that are not in trouble.
func (ns nodes) settled(all []result) bool { return ns.done(all) || ns.onlyTroubled(all) }

// wellEnough says whether a majority has answered what it was asked last.
func (ns nodes) wellEnough() bool {
	well := 0
	for _, n := range ns {
		if !n.troubled() {
			well++
		}
	}
	return well >= ns.majority()
}

// renewed is what became of each of so many holds.
func (ns nodes) renewed(all []result, holds int) []int64 {
	out := make([]int64, holds)
	for i := range out {
		t := tally.Tally{Nodes: len(ns)}
		for _, r := range all {
			if r.holds != nil && r.holds[i] != nil {
				t.Said = append(t.Said, r.holds[i])
			}
		}
		out[i] = t.Renewed()
	}
	return out
}

// final is when a step can no longer be done that was to be begun by until, by the clocks of all nodes.
func final(until time.Time) time.Time { return until.Add(node.ClockTolerance) }

// gather calls work for all nodes side by side, and returns their answers as soon as these are enough, or until has
// passed. Then ctx ends for work that is left, which goes on.
func gather[T any](q *store, until time.Time, work func(ctx context.Context, n *quorumNode) T, enough func(all []T) bool) []T {
	ctx, over := context.WithCancel(context.Background())
	defer over()
	answers := make(chan T, len(q.all))
	for _, n := range q.all {
		q.host.Background(func() { answers <- work(ctx, n) })
	}
	return collect(answers, len(q.all), until, enough)
}

func collect[T any](answers <-chan T, count int, until time.Time, enough func(all []T) bool) []T {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	all := make([]T, 0, count)
	for len(all) < count && !enough(all) {
		select {
		case a := <-answers:
			all = append(all, a)
		case <-timer.C:
			return all
		}
	}
	return all
}

func everybody[T any]([]T) bool { return false }
