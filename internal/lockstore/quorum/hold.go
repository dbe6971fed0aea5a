package quorum

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// A connection's field is written by this proxy alone. For each node it keeps what the node is to have of the hold, and sends the node one step
// after the other: a step waits until it is known whether the one before was done, or can no longer be. So nothing needs a name, and taking back
// is wanting nothing. A step is not sent any more when the node is to have something else by then.

type holdKey struct {
	node *quorumNode
	id   lockstore.ID
}

// nodeHold is what a node is to have of a connection's hold.
type nodeHold struct {
	holdKey
	busy chan struct{} // a mutex with a time limit: whoever has it may send the node a step

	// guarded by store.mu
	users    int              // that send it a step, or are to
	want     lockstore.Counts // 1 or 0 on each side
	quiet    bool             // nobody is woken when the node gives it back
	given    []int64          // what the node said when it gave the hold back, since it was wanted last; nil: it has not yet
	dropping bool             // somebody sees to it that the node has none
}

// onNode is a hold as a node counts it.
func onNode(c lockstore.Counts) lockstore.Counts {
	return lockstore.Counts{Reads: min(c.Reads, 1), Writes: min(c.Writes, 1)}
}

// want notes what all nodes are to have of a hold from now on. What it returns, one for each node, is used until it is left.
func (q *store) want(id lockstore.ID, c lockstore.Counts, quiet bool) (all []*nodeHold) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.all {
		h := q.use(n, id)
		h.want, h.quiet = onNode(c), quiet
		if c.Total() > 0 {
			h.given = nil
		}
		all = append(all, h)
	}
	return all
}

// use notes one user more. mu is held.
func (q *store) use(n *quorumNode, id lockstore.ID) *nodeHold {
	key := holdKey{n, id.Hold()}
	h := q.holds[key]
	if h == nil {
		h = &nodeHold{holdKey: key, busy: make(chan struct{}, 1)}
		q.holds[key] = h
	}
	h.users++
	return h
}

// leave notes one user less of each, and forgets those of which the node is to have nothing, and that nobody uses.
func (q *store) leave(all ...*nodeHold) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range all {
		if h.users--; h.users == 0 && h.want.Total() == 0 {
			delete(q.holds, h.holdKey)
		}
	}
}

// of uses a hold for a step that leaves it as it is to be.
func (q *store) of(n *quorumNode, id lockstore.ID) (h *nodeHold, want lockstore.Counts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h = q.use(n, id)
	return h, h.want
}

// begin waits until no step on the hold is under way on that node, by until at the latest. ok is false, too, if the node is to have something else
// than want by then, or if ctx has ended: the verb has been answered without this node. Unless ok is false, end is to be called with the error of
// the step and when that can no longer be done: if the reply was lost, the next step waits for that.
func (q *store) begin(ctx context.Context, h *nodeHold, want lockstore.Counts, until time.Time) (end func(err error, until time.Time), ok bool) {
	if !enter(h.busy, until) {
		return nil, false
	}
	q.mu.Lock()
	h.users++
	wanted := h.want
	q.mu.Unlock()
	free := func() { <-h.busy; q.leave(h) }
	if wanted != want || ctx.Err() != nil {
		free()
		return nil, false
	}
	return func(err error, until time.Time) {
		if !lockstore.Unknown(err) {
			free()
			return
		}
		q.host.Background(func() {
			q.host.Sleep(context.Background(), time.Until(final(until)))
			free()
		})
	}, true
}

// enter takes a busy mark, or gives up at until.
func enter(busy chan struct{}, until time.Time) bool {
	select {
	case busy <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case busy <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// giveBack has a node give back what it is not to have. If it has done that already, because of a verb before that failed, the answer is what
// it said then.
func (q *store) giveBack(h *nodeHold, r *lockstore.Release, until time.Time) (said result) {
	counts := onNode(r.Counts)
	end, ok := q.begin(context.Background(), h, counts, until)
	if !ok {
		return unasked(h.node)
	}
	defer func() { end(said.err, until) }()
	q.mu.Lock()
	given, one := h.given, lockstore.Release{ID: r.ID, Counts: counts, Whole: r.Whole, Quiet: h.quiet}
	q.mu.Unlock()
	if given != nil {
		return result{node: h.node, out: given}
	}
	said = q.ask(h.node, until, func(notAfter string) node.Call { return q.steps.Release(&one, notAfter) })
	if said.err == nil && counts.Total() == 0 {
		q.mu.Lock()
		h.given = said.out
		q.mu.Unlock()
	}
	return said
}

// drop sees to it that a node has none of a hold, until the node has answered or the lease is over there. It ends when the node is to have the hold
// again.
func (q *store) drop(h *nodeHold, giveUp time.Time) {
	if !q.mayDrop(h) {
		return
	}
	for failures := retry.Insist(); ; {
		r := q.giveBack(h, &lockstore.Release{ID: h.id, Whole: true}, q.until(0))
		over := time.Now().After(giveUp) || h.node.calls.Load() >= manyCalls
		if q.dropped(h, r.err == nil || over) {
			return
		}
		if !q.host.Sleep(context.Background(), failures.Next()) {
			q.dropped(h, true)
			return
		}
	}
}

// mayDrop says that a node is not to have the hold, and that nobody else sees to that yet.
func (q *store) mayDrop(h *nodeHold) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if h.dropping || h.want.Total() > 0 {
		return false
	}
	h.dropping = true
	return true
}

// dropped says whether there is no more to see to: that is over, or the node is to have the hold again.
func (q *store) dropped(h *nodeHold, over bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if over || h.want.Total() > 0 {
		h.dropping = false
	}
	return !h.dropping
}
