// Package quorum keeps each lock on several independent nodes, in the bytes that one node would have, and believes what a majority of
// them says.
package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// On each node an owner's hold counts one, whatever the nesting: setting it and dropping it can be done twice, so nodes
// that missed a step never disagree about a number. Only this proxy knows how often a connection has taken its lock.

// Options are the nodes of a quorum and its times. All proxies must have the same.
type Options struct {
	Nodes       []Node
	MaxLease    time.Duration // the longest lease, and for how long a node must have been up to count (its Control sees to that): 60 s
	NodeTimeout time.Duration // how long a node may take for one step; later than that it does nothing: 200 ms
}

// Node is one of the nodes. Its Control must connect with upstream.Target.MinUptime.
type Node struct {
	Name    string // for people
	Control *upstream.Control
}

type store struct {
	host             lockstore.Host
	steps            node.Steps
	all              []*quorumNode
	node.Subscribers // one for each node
	maxLease         time.Duration
	timeout          time.Duration

	mu    sync.Mutex
	holds map[holdKey]*nodeHold // of connections, at which a step is under way, or is to be
}

// manyCalls is how many calls may wait for one node, which may be frozen. One more fails at once.
const manyCalls = 4096

var (
	errBusyNode     = errors.New("too many calls wait for this node")
	errNoAnswer     = errors.New("the node did not answer in time")
	errStepUnderWay = errors.New("an earlier step on this node is still under way")
)

// Open keeps the locks on a quorum.
func Open(o Options) lockstore.Opener {
	return func(h lockstore.Host) (lockstore.Store, lockstore.Rules) {
		q := newStore(h, o)
		return q, lockstore.Rules{Votes: true, MaxLease: q.maxLease}
	}
}

func newStore(h lockstore.Host, o Options) *store {
	if o.MaxLease <= 0 {
		o.MaxLease = time.Minute
	}
	if o.NodeTimeout <= 0 {
		o.NodeTimeout = 200 * time.Millisecond
	}
	q := &store{host: h, steps: node.NewSteps(node.Publish, h), maxLease: o.MaxLease, timeout: o.NodeTimeout, holds: map[holdKey]*nodeHold{}}
	for i, n := range o.Nodes {
		one := &quorumNode{name: n.Name, index: i, Node: node.Node{Control: n.Control}, trouble: errNoAnswer}
		q.all = append(q.all, one)
		hears := node.NewSubscriber(n.Control, node.SubscriberOptions{Warm: h.WarmChannels, Logger: h.Log, Back: func() { q.resubscribed(one) }})
		q.Subscribers = append(q.Subscribers, hears)
		n.Control.OnSwitch(func() { // another Redis is at its address: it counts when it is old enough there
			one.Account.Outdated()
			one.Clock.Forget()
			hears.Hurry()
		})
	}
	return q
}

// resubscribed is called when the wake-up connection of a node is back.
func (q *store) resubscribed(n *quorumNode) {
	n.Account.Outdated()
	q.host.RecheckAll(lockstore.Gone)
	q.host.Wake(lockstore.EveryKey)
}

func (q *store) majority() int { return tally.Majority(len(q.all)) }

// tallyOf is the Tally of the nodes that answered.
func (q *store) tallyOf(all []result) tally.Tally {
	t := tally.Tally{Nodes: len(q.all)}
	for _, r := range all {
		if r.code() != noCode {
			t.Said = append(t.Said, r.out)
		}
	}
	return t
}

// done says whether a majority has done a step.
func (q *store) done(all []result) bool { return q.tallyOf(all).Done() }

// Run listens to the nodes, and keeps their time. The Controls' Close ends requests.
func (q *store) Run(ctx, _ context.Context) {
	var parts sync.WaitGroup
	for i, n := range q.all {
		parts.Go(func() { q.Subscribers[i].Run(ctx) })
		parts.Go(func() { n.KeepTime(ctx, func() error { return q.sample(n) }, func() node.Site { return q.site(n) }) })
	}
	parts.Wait()
}

// Admit refuses nobody: a node that lacks something says so when it is asked for its vote.
func (q *store) Admit(context.Context, string, time.Duration) error { return nil }

// renewAtOnce is the most renewals in flight.
const renewAtOnce = 16

func (q *store) Lane(string) lockstore.Lane { return lockstore.Lane{AtOnce: renewAtOnce} }

// On a quorum there is no fair queue and no hand-off. A lock that ends by itself needs no message either: its lease began when it was taken or
// renewed, so whoever waits has been told by the nodes how much of it is left.

func (q *store) RefreshQueue(lockstore.Queue) ([]int64, time.Duration, error) { return nil, -1, nil }

func (q *store) LeaveQueue(lockstore.ID, time.Time, func() bool) {}

func (q *store) Vacate(lockstore.ID, time.Time, time.Time) {}

// until is by when the nodes must have begun a step that is sent now: within the node time-out, and within a quarter of its lease if that is
// shorter, so that most of the lease is left.
func (q *store) until(lease time.Duration) time.Time {
	if lease > 0 {
		return time.Now().Add(min(q.timeout, max(lease/4, 10*time.Millisecond)))
	}
	return time.Now().Add(q.timeout)
}

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

// unasked is what a node says that is not asked.
func unasked(n *quorumNode) result {
	return result{node: n, err: &upstream.NotSentError{Cause: errStepUnderWay}}
}

// final is when a step can no longer be done that was to be begun by until, by the clocks of all nodes.
func final(until time.Time) time.Time { return until.Add(node.ClockTolerance) }

// noCode is the code of a node that did not answer.
const noCode = -99

// admit counts one call more, unless too many wait already.
func (n *quorumNode) admit() error {
	if n.calls.Add(1) > manyCalls {
		n.calls.Add(-1)
		return &upstream.NotSentError{Cause: errBusyNode}
	}
	return nil
}

// ask runs a script on one node; when it has not begun by until, the node does nothing any more.
func (q *store) ask(n *quorumNode, until time.Time, build func(notAfter string) node.Call) (r result) {
	r.node = n
	if r.err = n.admit(); r.err != nil {
		return r
	}
	defer n.calls.Add(-1)
	defer func() { n.note(r.err) }()
	late := time.AfterFunc(time.Until(until), func() { n.late.Add(1) })
	defer func() {
		if !late.Stop() {
			n.late.Add(-1)
		}
	}()
	for try := range 2 {
		if r.err = q.trusted(n); r.err != nil {
			return r
		}
		now, _ := n.Clock.Now()
		c := build(node.NotAfter(now + time.Until(until).Microseconds()))
		if c.IsVote() {
			if r.err = q.permitted(n, until); r.err != nil {
				return r
			}
		}
		r.out, r.err = n.EvalInts(c, false)
		n.Account.Refused(r.err)
		if r.err != nil || r.out[0] != scripts.Late {
			return r
		}
		r.out, r.err = nil, &upstream.NotSentError{Cause: lockstore.ErrLate}
		if try > 0 || time.Until(until) <= 0 {
			return r
		}
		if err := q.sample(n); err != nil { // its clock differs from our estimate
			r.err = err
			return r
		}
	}
	return r
}

// gather calls work for all nodes side by side, and returns their answers as soon as these are enough, or until has passed. Then ctx ends for work
// that is left, which goes on.
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

// splitPause is how long to wait before votes that were split are asked for again. It is random, from a range that is several times as long
// as asking took, so that those who asked at once do not do so again. The range doubles with each split, up to 300 ms. Votes also look split
// while somebody holds the lock and one of the nodes that voted for the holder does not answer. The lock is then asked for some six times a
// second.
func splitPause(took time.Duration, splits int) time.Duration {
	window := max(6*took, 5*time.Millisecond) << min(splits, 8)
	return time.Millisecond + jitter.N(min(window, max(2*took, 300*time.Millisecond)))
}
