package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// quorumNode is one of the nodes.
type quorumNode struct {
	node.Node
	*common
	name  string
	index int          // among the nodes
	calls atomic.Int64 // calls that have no answer yet
	late  atomic.Int64 // those of them whose time is over

	mu      sync.Mutex
	trouble error // why it did not answer last; nil: it did
	refusal error // what it last answered instead of doing what it was asked; nil: it did
	since   time.Time
	jump    time.Duration // by which its clock was set when that was seen last
	barred  time.Time     // until then it does not count for that
}

// manyCalls is how many calls may wait for one node, which may be frozen. One more fails at once.
const manyCalls = 4096

var (
	errBusyNode     = errors.New("too many calls wait for this node")
	errNoAnswer     = errors.New("the node did not answer in time")
	errStepUnderWay = errors.New("an earlier step on this node is still under way")
)

// jumpError says that a node's clock was set, by which it may have forgotten locks.
type jumpError struct{ by, left time.Duration }

func (e *jumpError) Error() string {
	return fmt.Sprintf("its clock was set by %v, it counts again in %v", e.by.Round(time.Millisecond),
		e.left.Round(time.Second))
}

// askVote runs a script on one node; when it has not begun by until, the node does nothing any more.
func (n *quorumNode) askVote(until time.Time, build func(notAfter string) node.Call) (r result) {
	r.node = n
	if r.err = n.admit(); r.err != nil {
		return r
	}
	defer n.calls.Add(-1)
	defer func() { n.noteOutcome(r.err) }()
	late := time.AfterFunc(time.Until(until), func() { n.late.Add(1) })
	defer func() {
		if !late.Stop() {
			n.late.Add(-1)
		}
	}()
	for try := range 2 {
		if r.err = n.trusted(); r.err != nil {
			return r
		}
		now, _ := n.Clock.Now()
		c := build(node.NotAfter(now + time.Until(until).Microseconds()))
		if c.IsVote() {
			if r.err = n.permitted(until); r.err != nil {
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
		if err := n.sample(); err != nil { // its clock differs from our estimate
			r.err = err
			return r
		}
	}
	return r
}

// admit counts one call more, unless too many wait already.
func (n *quorumNode) admit() error {
	if n.calls.Add(1) > manyCalls {
		n.calls.Add(-1)
		return &upstream.NotSentError{Cause: errBusyNode}
	}
	return nil
}

// trusted returns an error if a node's answers must not count. It reads the node's clock first if that is not known.
func (n *quorumNode) trusted() error {
	if _, known := n.Clock.Now(); !known {
		if err := n.sample(); err != nil {
			return err
		}
	}
	return n.jumped()
}

// jumped is why a node that is connected to does not count; nil: it does.
func (n *quorumNode) jumped() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if left := time.Until(n.barred); left > 0 {
		return &upstream.NotSentError{Cause: &jumpError{n.jump, left}}
	}
	return nil
}

// noteOutcome notes whether the node answered, and with what error.
func (n *quorumNode) noteOutcome(err error) {
	var refusal *upstream.ReplyError
	var refused error
	if errors.As(err, &refusal) {
		refused, err = refusal, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noteAnswer(err)
	n.refusal = refused
}

// noteAnswer notes why the node did not answer; nil: it did. mu is held.
func (n *quorumNode) noteAnswer(trouble error) {
	if (trouble == nil) != (n.trouble == nil) {
		n.since = time.Now()
	}
	n.trouble = trouble
}

// troubled says whether the node did not answer what it was asked last, or has let the time of something it was asked
// pass.
func (n *quorumNode) troubled() bool {
	if n.late.Load() > 0 {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trouble != nil
}

// sample reads a node's clock. One that was set forward has let leases run out before their time, as if the node had
// forgotten them; one that was set back may still run steps whose time is over. So either counts as a restart does.
func (n *quorumNode) sample() error {
	_, apart := n.Clock.Sampled()
	jump, err := n.Sample()
	if err != nil {
		n.noteOutcome(err)
		return err
	}
	if jump.By.Abs() > node.ClockTolerance+lockstore.Drift(apart) {
		n.mu.Lock()
		n.jump, n.barred, n.since = jump.By, time.Now().Add(n.maxLease+lockstore.Drift(n.maxLease)), time.Now()
		n.mu.Unlock()
		n.host.Log.Warn("the clock of a quorum's node was set: the node does not count until the longest lease is over",
			"node", n.name, "by", jump.By)
		n.host.RecheckAll(lockstore.Clock)
	}
	trouble := n.jumped() // its clock is known all the same
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noteAnswer(trouble)
	return nil
}

// permitted returns an error if a node is not to be asked for a lock: its account lacks a right, or it is not known by
// until whether it does.
func (n *quorumNode) permitted(until time.Time) error {
	refusal, err := n.Admit(context.Background(), max(time.Until(until), 1), n.site)
	switch {
	case err != nil:
		return &upstream.NotSentError{Cause: lockstore.ErrUntold}
	case refusal != nil:
		return &upstream.ReplyError{Line: refusal.Error()}
	}
	return nil
}

func (n *quorumNode) site() node.Site {
	return node.Site{Node: &n.Node, Log: n.host.Log.With("node", n.name), Run: n.host.Background, Votes: true,
		UUID: n.host.UUID}
}

// Able implements lockstore.Reads: a majority of the nodes has to give locks.
func (q *store) Able() (where []lockstore.Ability, err error) {
	for _, n := range q.all {
		info := n.info()
		where = append(where, lockstore.Ability{Node: n.name, Err: cmp.Or(n.jumped(), n.Able()), Info: &info})
	}
	return where, lockstore.Able(where, q.all.majority())
}

func (n *quorumNode) info() lockstore.NodeInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	in := lockstore.NodeInfo{Name: n.name, State: "up"}
	if !n.since.IsZero() {
		in.Since = time.Since(n.since)
	}
	var young *upstream.YoungError
	var jump *jumpError
	switch {
	case errors.As(n.trouble, &young):
		in.State, in.Trouble, in.Counts = "young", young.Error(), young.Left()
	case errors.As(n.trouble, &jump):
		in.State, in.Trouble, in.Counts = "young", jump.Error(), max(time.Until(n.barred), 0)
	case n.trouble != nil:
		in.State, in.Trouble = "down", n.trouble.Error()
	case n.refusal != nil:
		in.Trouble = n.refusal.Error()
	}
	return in
}
