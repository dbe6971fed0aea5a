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
// is wanting nothing.

type holdKey struct {
	node *quorumNode
	id   lockstore.ID
}

// nodeHold is what a node is to have of a connection's hold.
type nodeHold struct {
	busy chan struct{} // a mutex with a time limit: whoever has it may send the node a step

	// guarded by store.mu
	users    int              // that have or wait for busy
	want     lockstore.Counts // 1 or 0 on each side
	dropping bool             // somebody sees to it that the node has no more than that
}

// onNode is a hold as a node counts it.
func onNode(c lockstore.Counts) lockstore.Counts {
	return lockstore.Counts{Reads: min(c.Reads, 1), Writes: min(c.Writes, 1)}
}

// want notes what a node is to have of a hold from now on.
func (q *store) want(n *quorumNode, id lockstore.ID, c lockstore.Counts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.use(n, id).want = onNode(c)
	q.unuse(n, id)
}

// wanted is what a node is to have of a hold.
func (q *store) wanted(n *quorumNode, id lockstore.ID) lockstore.Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	if h := q.holds[holdKey{n, id.Hold()}]; h != nil {
		return h.want
	}
	return lockstore.Counts{}
}

// use notes one user more. mu is held.
func (q *store) use(n *quorumNode, id lockstore.ID) *nodeHold {
	key := holdKey{n, id.Hold()}
	h := q.holds[key]
	if h == nil {
		h = &nodeHold{busy: make(chan struct{}, 1)}
		q.holds[key] = h
	}
	h.users++
	return h
}

// unuse notes one user less, and forgets a hold of which the node is to have nothing, and that nobody uses. mu is held.
func (q *store) unuse(n *quorumNode, id lockstore.ID) {
	key := holdKey{n, id.Hold()}
	h := q.holds[key]
	if h.users--; h.users == 0 && h.want == (lockstore.Counts{}) {
		delete(q.holds, key)
	}
}

// begin waits until no step on the hold is under way on that node, by until at the latest. ok is false, too, if ctx has ended: the verb has been
// answered without this node, on which a later verb may have been since. Unless ok is false, end is to be called with the error of the step and when
// that can no longer be done: if the reply was lost, the next step waits for that.
func (q *store) begin(ctx context.Context, n *quorumNode, id lockstore.ID, until time.Time) (end func(err error, until time.Time), ok bool) {
	q.mu.Lock()
	h := q.use(n, id)
	q.mu.Unlock()
	leave := func() {
		q.mu.Lock()
		q.unuse(n, id)
		q.mu.Unlock()
	}
	if !enter(h.busy, until) {
		leave()
		return nil, false
	}
	free := func() { <-h.busy; leave() }
	if ctx.Err() != nil {
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

// beginDrop notes that somebody sees to a node; false: somebody does so already.
func (q *store) beginDrop(n *quorumNode, id lockstore.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.use(n, id)
	if h.dropping {
		q.unuse(n, id)
		return false
	}
	h.dropping = true
	return true
}

// drop sees to it that a node has none of a hold, until the node has answered or the lease is over there. It ends when the connection has taken the
// lock anew: then the node may have it.
func (q *store) drop(n *quorumNode, id lockstore.ID, giveUp time.Time, quiet bool) error {
	if !q.beginDrop(n, id) {
		return nil
	}
	defer func() {
		q.mu.Lock()
		q.holds[holdKey{n, id.Hold()}].dropping = false
		q.unuse(n, id)
		q.mu.Unlock()
	}()
	for failures := retry.Insist(); ; {
		until := lockstore.Later(giveUp, q.until(0))
		end, ok := q.begin(context.Background(), n, id, until)
		if !ok {
			return errStepUnderWay
		}
		want := q.wanted(n, id)
		if want.Total() > 0 {
			end(nil, until)
			return nil
		}
		until = q.until(0)
		r := q.ask(n, until, func(notAfter string) node.Call {
			return q.steps.Release(&lockstore.Release{ID: id, Whole: true, Quiet: quiet}, notAfter)
		})
		if end(r.err, until); r.err == nil {
			return nil
		}
		if time.Now().After(giveUp) || n.calls.Load() >= manyCalls || !q.host.Sleep(context.Background(), failures.Next()) {
			return r.err
		}
	}
}
