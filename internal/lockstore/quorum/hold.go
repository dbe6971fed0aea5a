package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// A connection's field is written by this proxy alone. For each node it keeps what the node is to have of the hold, and
// sends the node one step after the other: a step waits until it is known whether the one before was done, or can no
// longer be. So nothing needs a name, and taking back is wanting nothing. A step is not sent any more when the node is
// to have something else by then.

type holdKey struct {
	node *quorumNode
	id   lockstore.ID
}

// holds are those of connections at which a step is under way, or is to be.
type holds struct {
	nodes nodes

	mu    sync.Mutex
	byKey map[holdKey]*nodeHold
}

// nodeHold is what a node is to have of a connection's hold.
type nodeHold struct {
	holdKey
	holds *holds
	busy  chan struct{} // a mutex with a time limit: whoever has it may send the node a step

	// guarded by holds.mu
	users int              // that send it a step, or are to
	want  lockstore.Counts // 1 or 0 on each side
	quiet bool             // nobody is woken when the node gives it back
	// What the node said when it gave the hold back, since it was wanted last; nil: it has not yet.
	given    []int64
	dropping bool // somebody sees to it that the node has none
}

// onNode is a hold as a node counts it.
func onNode(c lockstore.Counts) lockstore.Counts {
	return lockstore.Counts{Reads: min(c.Reads, 1), Writes: min(c.Writes, 1)}
}

// want notes what all nodes are to have of a hold from now on. What it returns, one for each node, is used until it is
// left.
func (hs *holds) want(id lockstore.ID, c lockstore.Counts, quiet bool) (all []*nodeHold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, n := range hs.nodes {
		h := hs.use(n, id)
		h.want, h.quiet = onNode(c), quiet
		if c.Total() > 0 {
			h.given = nil
		}
		all = append(all, h)
	}
	return all
}

// use notes one user more. mu is held.
func (hs *holds) use(n *quorumNode, id lockstore.ID) *nodeHold {
	key := holdKey{n, id.Hold()}
	h := hs.byKey[key]
	if h == nil {
		h = &nodeHold{holdKey: key, holds: hs, busy: make(chan struct{}, 1)}
		hs.byKey[key] = h
	}
	h.users++
	return h
}

// leave notes one user less of each, and forgets those of which the node is to have nothing, and that nobody uses.
func (hs *holds) leave(all ...*nodeHold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range all {
		if h.users--; h.users == 0 && h.want.Total() == 0 {
			delete(hs.byKey, h.holdKey)
		}
	}
}

// of uses a hold for a step that leaves it as it is to be.
func (hs *holds) of(n *quorumNode, id lockstore.ID) (h *nodeHold, want lockstore.Counts) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h = hs.use(n, id)
	return h, h.want
}

// beginStep waits until no step on the hold is under way on that node, by until at the latest. ok is false, too, if the
// node is to have something else than want by then, or if ctx has ended: the verb has been answered without this node.
// Unless ok is false, end is to be called with the error of the step, which is not begun after until: if the reply was
// lost, the next step waits until it can no longer be done.
func (h *nodeHold) beginStep(ctx context.Context, want lockstore.Counts, until time.Time) (end func(err error), ok bool) {
	if !enter(h.busy, until) {
		return nil, false
	}
	h.holds.mu.Lock()
	h.users++
	wanted := h.want
	h.holds.mu.Unlock()
	free := func() { <-h.busy; h.holds.leave(h) }
	if wanted != want || ctx.Err() != nil {
		free()
		return nil, false
	}
	return func(err error) {
		if !lockstore.Unknown(err) {
			free()
			return
		}
		h.node.host.Background(func() {
			h.node.host.Sleep(context.Background(), time.Until(final(until)))
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

// giveVoteBack has a node give back what it is not to have. If it has done that already, because of a verb before that
// failed, the answer is what it said then.
func (h *nodeHold) giveVoteBack(r *lockstore.Release, until time.Time) (said result) {
	counts := onNode(r.Counts)
	end, ok := h.beginStep(context.Background(), counts, until)
	if !ok {
		return unasked(h.node)
	}
	defer func() { end(said.err) }()
	h.holds.mu.Lock()
	given, one := h.given, lockstore.Release{ID: r.ID, Counts: counts, Whole: r.Whole, Quiet: h.quiet}
	h.holds.mu.Unlock()
	if given != nil {
		return result{node: h.node, out: given}
	}
	said = h.node.askVote(until, func(notAfter string) node.Call { return h.node.steps.Release(&one, notAfter) })
	if said.err == nil && counts.Total() == 0 {
		h.gave(said.out)
	}
	return said
}

// gave notes what the node said when it gave the hold back, unless it is to have the hold again by now: that one is
// given back by a step of its own.
func (h *nodeHold) gave(said []int64) {
	h.holds.mu.Lock()
	defer h.holds.mu.Unlock()
	if h.want.Total() == 0 {
		h.given = said
	}
}

// dropVote sees to it that a node has none of a hold, until the node has answered or the lease is over there. It ends when
// the node is to have the hold again.
func (h *nodeHold) dropVote(giveUp time.Time) {
	if !h.mayDrop() {
		return
	}
	for failures := retry.Insist(); ; {
		r := h.giveVoteBack(&lockstore.Release{ID: h.id, Whole: true}, h.node.until(0))
		over := time.Now().After(giveUp) || h.node.calls.Load() >= manyCalls
		if h.dropped(r.err == nil || over) {
			return
		}
		if !h.node.host.Sleep(context.Background(), failures.Next()) {
			h.dropped(true)
			return
		}
	}
}

// mayDrop says that a node is not to have the hold, and that nobody else sees to that yet.
func (h *nodeHold) mayDrop() bool {
	h.holds.mu.Lock()
	defer h.holds.mu.Unlock()
	if h.dropping || h.want.Total() > 0 {
		return false
	}
	h.dropping = true
	return true
}

// dropped says whether there is no more to see to: that is over, or the node is to have the hold again.
func (h *nodeHold) dropped(over bool) bool {
	h.holds.mu.Lock()
	defer h.holds.mu.Unlock()
	if over || h.want.Total() > 0 {
		h.dropping = false
	}
	return !h.dropping
}
