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
	"github.com/lockproxy/lockproxy/upstream"
)

// quorumNode is one of the nodes.
type quorumNode struct {
	node.Node
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

// jumpError says that a node's clock was set, by which it may have forgotten locks.
type jumpError struct{ by, left time.Duration }

func (e *jumpError) Error() string {
	return fmt.Sprintf("its clock was set by %v, it counts again in %v", e.by.Round(time.Millisecond), e.left.Round(time.Second))
}

// trusted returns an error if a node's answers must not count. It reads the node's clock first if that is not known.
func (q *store) trusted(n *quorumNode) error {
	if _, known := n.Clock.Now(); !known {
		if err := q.sample(n); err != nil {
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

// note notes whether the node answered, and with what error.
func (n *quorumNode) note(err error) {
	var refusal *upstream.ReplyError
	var refused error
	if errors.As(err, &refusal) {
		refused, err = refusal, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answered(err)
	n.refusal = refused
}

// answered notes why the node did not answer; nil: it did. mu is held.
func (n *quorumNode) answered(trouble error) {
	if (trouble == nil) != (n.trouble == nil) {
		n.since = time.Now()
	}
	n.trouble = trouble
}

// troubled says whether the node did not answer what it was asked last, or has let the time of something it was asked pass.
func (n *quorumNode) troubled() bool {
	if n.late.Load() > 0 {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trouble != nil
}

// wellEnough says whether a majority has answered what it was asked last.
func (q *store) wellEnough() bool {
	well := 0
	for _, n := range q.all {
		if !n.troubled() {
			well++
		}
	}
	return well >= q.majority()
}

// sample reads a node's clock. One that was set forward has let leases run out before their time, as if the node had forgotten
// them; one that was set back may still run steps whose time is over. So either counts as a restart does.
func (q *store) sample(n *quorumNode) error {
	_, apart := n.Clock.Sampled()
	jump, err := n.Sample()
	if err != nil {
		n.note(err)
		return err
	}
	if jump.By.Abs() > node.ClockTolerance+lockstore.Drift(apart) {
		n.mu.Lock()
		n.jump, n.barred, n.since = jump.By, time.Now().Add(q.maxLease+lockstore.Drift(q.maxLease)), time.Now()
		n.mu.Unlock()
		q.host.Log.Warn("the clock of a quorum's node was set: the node does not count until the longest lease is over", "node", n.name, "by", jump.By)
		q.host.RecheckAll(lockstore.Clock)
	}
	trouble := n.jumped() // its clock is known all the same
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answered(trouble)
	return nil
}

// permitted returns an error if a node is not to be asked for a lock: its account lacks a right, or it is not known by until whether it does.
func (q *store) permitted(n *quorumNode, until time.Time) error {
	ctx := context.Background()
	if !n.Account.Fresh() {
		var cancel func()
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	refusal, err := n.Admit(ctx, func() node.Site { return q.site(n) })
	switch {
	case err != nil:
		return &upstream.NotSentError{Cause: lockstore.ErrUntold}
	case refusal != nil:
		return &upstream.ReplyError{Line: refusal.Error()}
	}
	return nil
}

func (q *store) site(n *quorumNode) node.Site {
	return node.Site{Node: &n.Node, Log: q.host.Log.With("node", n.name), Run: q.host.Background, Votes: true, UUID: q.host.UUID, Steps: q.steps}
}

// Able implements lockstore.Reads: a majority of the nodes has to give locks.
func (q *store) Able() (where []lockstore.Ability, err error) {
	for _, n := range q.all {
		info := n.info()
		where = append(where, lockstore.Ability{Node: n.name, Err: cmp.Or(n.jumped(), n.Able()), Info: &info})
	}
	return where, lockstore.Able(where, q.majority())
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
