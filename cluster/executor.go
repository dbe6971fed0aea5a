package cluster

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// slowReply is how long replies may take before the topology is looked at: a node that hangs is closed when the others
// say that it has failed, and its clients are then told.
const slowReply = 500 * time.Millisecond

// leftReply is how long replies are waited for, at least, after the client has gone, so that the outcome of the commands is known.
const leftReply = time.Second

// Executor carries out one client's plans. It is used by one goroutine at a time.
type Executor struct {
	c       *Cluster
	id      upstream.Identity
	private bool
	home    int   // where commands without keys go: see home.go
	at      *Node // the node that this is in this round

	links    map[linkTo]*link
	seen     *Snapshot // the snapshot of this round; the links lead to its nodes
	round    round
	replicas replicaChoice
	replies  []reply
	work     sync.WaitGroup
	wait     replyWait
	memory   replyMemory

	Upstream time.Duration // of the last Do: how long its requests took, each round by the slowest
}

// replicaChoice is whether reads go to replicas.
type replicaChoice struct {
	wanted bool
	first  int          // which: see Cluster.replicaFor
	now    bool         // in this Do they go there
	barred time.Time    // reads do not go to replicas before
	writes map[int]bool // slots that this Do's plans write to
}

// replyWait is the wait for a round's replies, which a timer may end.
type replyWait struct {
	slow  *time.Timer
	mu    sync.Mutex // guards all below, and round.batches while it is on; a leaf but for links and the cluster's refresher
	armed bool       // slow runs: it is not stopped at the end of a round, the next one mostly comes soon
	turn  uint64     // number of the last send
	ctx   context.Context
	began time.Time
	on    bool
	own   time.Duration // how long the commands themselves may wait, as WAIT does; set between rounds
}

// replyMemory bounds what is held of replies.
type replyMemory struct {
	holder Holder     // nil: as much as comes may be held
	mu     sync.Mutex // guards held, and calls of holder; a leaf but for what these take
	held   int        // bytes of replies since Do began
}

// linkTo is where a link leads to.
type linkTo struct {
	node  *Node
	reads bool // in READONLY mode: to a replica, for reads
}

// link is the executor's pipe to a node.
type link struct {
	linkTo
	pipe *upstream.Pipe // nil: to be opened
}

// Executor returns an executor whose commands run as id. Close gives its connections back.
func (c *Cluster) Executor(id upstream.Identity) *Executor {
	e := &Executor{c: c, id: id, home: rand.IntN(math.MaxInt32), links: map[linkTo]*link{}}
	e.round.slots, e.replicas.writes = map[int]*lane{}, map[int]bool{}
	e.replicas.first = e.home
	e.wait.slow = time.AfterFunc(time.Hour, e.tooSlow)
	e.wait.slow.Stop()
	return e
}

// tooSlow runs, on a timer's goroutine, every slowLook while the replies of one round are waited for.
func (e *Executor) tooSlow() {
	e.wait.mu.Lock()
	defer e.wait.mu.Unlock()
	if e.wait.armed = e.wait.on; !e.wait.armed {
		return
	}
	look := e.slowLook()
	if waited := time.Since(e.wait.began) - e.wait.own; waited < look { // the timer was set by a round before, or these commands may wait themselves
		e.wait.slow.Reset(look - waited)
		return
	}
	for _, b := range e.round.batches[:e.round.live] {
		if waited := min(time.Since(e.wait.began), b.req.Quiet()) - e.wait.own; waited >= look { // else it may be the client that is slow
			e.c.Refresh()
			e.endLate(b, waited)
		}
	}
	e.wait.slow.Reset(look)
}

// WaitsFor says how long later commands may themselves wait, as WAIT does: their replies may take so much longer.
func (e *Executor) WaitsFor(own time.Duration) { e.wait.own = own }

// slowLook is how long replies are waited for between two looks.
func (e *Executor) slowLook() time.Duration {
	if t := e.c.opts.Timeout; t > 0 {
		return min(slowReply, max(t/4, time.Millisecond))
	}
	return slowReply
}

// endLate ends the wait for b's replies when nobody wants them any more, when they have taken too long, or when another node may
// give them sooner; wait.mu is held.
func (e *Executor) endLate(b *batch, waited time.Duration) {
	switch t := e.c.opts.Timeout; {
	case e.wait.ctx.Err() != nil && waited >= leftReply:
		b.req.End(e.wait.turn, upstream.ErrLeft)
	case t > 0 && waited >= t:
		b.req.End(e.wait.turn, upstream.ErrTimeout)
	case len(e.seen.Masters) > 1 && b.movable(), b.dispensable() && e.seen.otherWell(b.link.node):
		b.req.End(e.wait.turn, upstream.ErrSlow)
	}
}

// Close gives back all connections. Nothing is under way then.
func (e *Executor) Close() {
	e.wait.slow.Stop()
	e.dropAll()
}

// As makes later commands run as id.
func (e *Executor) As(id upstream.Identity) {
	if id != e.id {
		e.dropAll()
		e.id = id
	}
}

// Private makes later commands go over connections of the executor's own, or again over those that it shares: for
// big requests and replies, which others would wait behind.
func (e *Executor) Private(on bool) {
	if on != e.private {
		e.dropAll()
		e.private = on
	}
}

// Do carries out the plans, and returns when each has its Reply or its Err. Commands to several nodes go out in
// parallel. What has to do with the same key is done in the order of the plans, through redirects too:
//
//   - a slot's commands go to one node in one write, in their order, and what is redirected of them follows in the same
//     order;
//   - a command with several keys may be answered TRYAGAIN while later ones run: so a command that shares a key
//     with it waits for its reply, unless both only read;
//   - a command without keys waits for all before it, and all after it wait;
//   - if a command was refused all the same, and a later one on its key was not, because the slot came back to its node
//     or the cluster recovered between the two, the first is not sent again: its client gets the refusal as it is.
//
// When ctx ends, what has not been sent fails with its cause; replies under way are waited for, for a second at least. Commands that did
// not run because a node could not serve them are tried again for Options.RetryFor, and so are those that only read and lost their
// replies; a write that lost its reply is never sent twice.
func (e *Executor) Do(ctx context.Context, plans []*Plan) {
	e.begin()
	e.prepareReads(plans)
	e.round.orderly = !e.replicas.now && !slices.ContainsFunc(plans, (*Plan).severalKeys)
	e.finish(ctx, plans)
}

// begin readies the executor for the commands of a Do, or of a Straight.
func (e *Executor) begin() {
	e.memory.held, e.Upstream, e.round.probeUntil = 0, 0, time.Time{}
	e.round.orderly, e.replicas.now = false, false
}

// finish carries the plans out until each is done.
func (e *Executor) finish(ctx context.Context, plans []*Plan) {
	for {
		wait, pending := e.gather(plans)
		switch {
		case !pending:
			for _, p := range plans {
				p.finish(e.hold)
			}
			return
		case e.c.ctx.Err() != nil:
			e.giveUp(plans, &upstream.NotSentError{Cause: upstream.ErrClosed})
		case e.round.scanning != nil:
			e.scan(ctx, e.round.scanning)
		case e.round.live == 0:
			if !retry.Sleep(ctx, wait, nil) {
				e.giveUp(plans, &upstream.NotSentError{Cause: context.Cause(ctx)})
			}
		default:
			e.send(ctx)
			e.settle(ctx)
			e.round.orderly = false
		}
	}
}

// gather fills the batches with all that may be sent now. When that is nothing it says how long to wait.
func (e *Executor) gather(plans []*Plan) (wait time.Duration, pending bool) {
	if e.clear(); !slices.ContainsFunc(plans, (*Plan).unsettled) {
		return 0, false
	}
	snapshot, now := e.seen, time.Now()
	wait = time.Second
	goesHome := false // the plans so far have no keys, and all go to one node
	for _, p := range plans {
		if p.settled() {
			continue
		}
		if pending && (p.alone || goesHome) && !(goesHome && p.goesHome()) {
			break
		}
		pending, goesHome = true, p.goesHome()
		if (p.fan || p.scan) && !e.spread(p, snapshot) {
			return max(time.Until(p.whole.due()), 0), true
		}
		if p.scan {
			e.round.scanning = p
			break
		}
		all := true
		for i := range p.units {
			u := &p.units[i]
			if u.done {
				continue
			}
			if n := e.target(u, snapshot, now); e.round.fits(u, n, now) {
				e.add(u, n)
				continue
			}
			if all = false; u.due().After(now) {
				wait = min(wait, u.due().Sub(now))
			}
		}
		if p.alone && !(goesHome && all) {
			break
		}
	}
	return wait, pending
}

// spread makes p's units; false: p has to wait, or is done. While a slot has no master, during a failover for example,
// a command for all masters would miss a part: it waits, and if that does not change it is refused in Redis' words.
func (e *Executor) spread(p *Plan, s *Snapshot) bool {
	if (s.whole || p.cmd.Facts.Partial) && !p.whole.due().After(time.Now()) {
		if p.fan {
			p.fanOut(s)
		}
		return true
	}
	if !p.whole.due().After(time.Now()) {
		e.c.Refresh()
		if !e.later(p.whole, 20*time.Millisecond) {
			p.answer("CLUSTERDOWN Hash slot not served")
		}
	}
	return false
}

// target is the node that a unit is sent to.
func (e *Executor) target(u *unit, s *Snapshot, now time.Time) *Node {
	u.reading = false
	if u.node != nil {
		return u.node
	}
	if u.slot != noSlot {
		if n := s.Owner(u.slot); n != nil {
			if !e.mayRead(u) {
				return n
			}
			if r := e.c.replicaFor(s, n, u.slot, e.replicas.first, now); r != nil {
				u.reading = true
				return r
			}
			return n
		}
	}
	if u.attempts != nil && u.attempts.passed > 0 {
		return s.Any(e.home, u.attempts.passed)
	}
	return e.at // where nobody has the slot it answers that
}

// batchTo is the batch of this round that goes there.
func (e *Executor) batchTo(to linkTo) *batch {
	for _, live := range e.round.batches[:e.round.live] {
		if live.link.linkTo == to {
			return live
		}
	}
	if e.round.live == len(e.round.batches) {
		e.round.batches = append(e.round.batches, &batch{})
	}
	b := e.round.batches[e.round.live]
	e.round.live++
	b.link = e.link(to)
	return b
}

// add puts a unit into its node's batch.
func (e *Executor) add(u *unit, n *Node) {
	b := e.batchTo(linkTo{n, u.reading})
	if u.ask {
		b.req.Cmds = append(b.req.Cmds, asking)
	}
	b.req.Cmds = append(b.req.Cmds, u.raw)
	b.units = append(b.units, u)
}

// link is the executor's link to a node, opened when it is first needed.
func (e *Executor) link(to linkTo) *link {
	l := e.links[to]
	if l == nil {
		l = &link{linkTo: to}
		e.c.Acquire(to.node)
		e.links[to] = l
	}
	return l
}

// drop gives a link back.
func (e *Executor) drop(l *link) {
	if l.pipe != nil {
		l.pipe.Release()
	}
	e.c.Release(l.node)
	delete(e.links, l.linkTo)
}

func (e *Executor) dropAll() {
	for _, l := range e.links {
		e.drop(l)
	}
}

// clear empties the batches, and lets go of nodes that have left.
func (e *Executor) clear() {
	for i, b := range e.round.batches[:e.round.live] {
		if upstream.Ended(b.err) { // its replies are still pending
			e.round.batches[i] = &batch{}
			continue
		}
		clear(b.req.Cmds)
		clear(b.units)
		clear(b.sink.pieces)
		b.sink.direct = nil
		b.req.Cmds, b.units, b.link, b.err = b.req.Cmds[:0], b.units[:0], nil, nil
	}
	e.round.live, e.round.scanning = 0, nil
	if len(e.round.slots) > 0 {
		for _, l := range e.round.slots {
			clear(l.many)
		}
		clear(e.round.slots)
	}
	s := e.c.Snapshot()
	e.at = s.Any(e.home, 0)
	if s != e.seen {
		e.seen = s
		for _, l := range e.links {
			if !s.has(l.node) {
				e.drop(l)
			}
		}
	}
}
