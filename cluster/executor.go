package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// Executor carries out one client's plans. It is used by one goroutine at a time.
type Executor struct {
	c    *Cluster
	home *Home
	at   *Node // the node that this is in this round

	links   links
	seen    *Snapshot // the snapshot of this round; the links lead to its nodes
	round   round
	replies []reply
	whole   [][]byte // see deliver
	work    sync.WaitGroup
	wait    replyWait
	memory  replyMemory

	Upstream time.Duration // of the last Do: how long its requests took, each round by the slowest
}

// Executor returns an executor, of the client whose home that is, whose commands run as id.
func (c *Cluster) Executor(id upstream.Identity, home *Home) *Executor {
	e := &Executor{c: c, home: home, links: links{c: c, id: id, open: map[*Node]*link{}}}
	e.round.slots = map[int]*slotUse{}
	e.wait.init(c)
	return e
}

// Close gives back all connections, which later commands would open again. Nothing is under way then.
func (e *Executor) Close() {
	e.wait.stop()
	e.links.dropAll()
}

// As makes later commands run as id.
func (e *Executor) As(id upstream.Identity) {
	if id != e.links.id {
		e.links.dropAll()
		e.links.id = id
	}
}

// Private makes later commands go over connections of the executor's own, or again over those that it shares: for
// long requests and replies, which others would wait behind.
func (e *Executor) Private(on bool) {
	if on != e.links.private {
		e.links.dropAll()
		e.links.private = on
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
// When ctx ends, what has not been sent fails with its cause; replies under way are waited for, for a second at
// least. Commands that did not run because a node could not serve them are tried again for Options.RetryFor, and so
// are those that only read and lost their replies; a write that lost its reply is never sent twice.
func (e *Executor) Do(ctx context.Context, plans []*Plan) {
	e.begin()
	e.round.orderly = !slices.ContainsFunc(plans, (*Plan).severalKeys)
	e.finish(ctx, plans)
}

// begin readies the executor for the commands of a Do, or of a Straight.
func (e *Executor) begin() {
	e.memory.held, e.Upstream, e.round.probeUntil = 0, 0, time.Time{}
	e.round.orderly = false
}

// finish carries the plans out until each is done.
func (e *Executor) finish(ctx context.Context, plans []*Plan) {
	for {
		wait, pending := e.gather(plans)
		switch {
		case !pending:
			for _, p := range plans {
				p.finish(e.memory.hold)
			}
			return
		case e.c.ctx.Err() != nil:
			giveUp(plans, upstream.ErrClosed)
		case e.round.live > 0:
			e.send(ctx)
			e.settle(ctx)
			e.round.orderly = false
		case !retry.Sleep(ctx, wait, nil):
			giveUp(plans, context.Cause(ctx))
		}
	}
}

// giveUp ends what is not done of the plans, and will not be sent.
func giveUp(plans []*Plan, why error) {
	for _, p := range plans {
		p.giveUp(&upstream.NotSentError{Cause: why})
	}
}

// gather fills the batches with all that may be sent now. When that is nothing it says how long to wait.
func (e *Executor) gather(plans []*Plan) (wait time.Duration, pending bool) {
	e.clear()
	wait = time.Second
	now, kind := time.Now(), byKeys
	for _, p := range plans {
		if p.settled() {
			continue
		}
		if pending && !p.joins(kind) {
			break
		}
		pending, kind = true, p.kind
		if p.whole != nil && !e.spread(p) {
			return max(time.Until(p.whole.ready), 0), true
		}
		left, all := e.addUnits(p, now)
		wait = min(wait, left)
		if kind == atHome && !all { // the next one would overtake it
			break
		}
	}
	return wait, pending
}

// addUnits puts those units of a plan into the batches that may be sent now. When not all may it says how long the
// first of the others waits.
func (e *Executor) addUnits(p *Plan, now time.Time) (wait time.Duration, all bool) {
	wait, all = time.Second, true
	for i := range p.units {
		u := &p.units[i]
		if u.done {
			continue
		}
		if n := e.target(u); e.round.fits(u, n, now) {
			e.round.batchTo(n, &e.links).add(u)
			continue
		}
		all = false
		if u.ready.After(now) {
			wait = min(wait, u.ready.Sub(now))
		}
	}
	return wait, all
}

// spread makes p's units; false: p has to wait, or is done. While a slot has no master, during a failover for example,
// a command for all masters would miss a part: it waits, and if that does not change it is refused in Redis' words.
func (e *Executor) spread(p *Plan) bool {
	switch {
	case p.whole.ready.After(time.Now()):
		return false
	case e.seen.whole, p.cmd.Facts.Partial:
		if p.kind == byCursor {
			p.scanStep(e.seen)
		} else {
			p.fanOut(e.seen)
		}
		return true
	}
	e.c.Refresh()
	if !p.whole.later(longPause, e.c.opts.RetryFor) {
		p.answer("CLUSTERDOWN Hash slot not served")
	}
	return false
}

// target is the node that a unit is sent to.
func (e *Executor) target(u *unit) *Node {
	switch {
	case u.fixed != nil:
		return u.fixed
	case u.to != nil:
		return u.to
	case u.passed > 0:
		return e.seen.Any(e.home.at, u.passed)
	case u.slot == noSlot:
		return e.at
	}
	if owner := e.seen.Owner(u.slot); owner != nil {
		return owner
	}
	return e.at // which answers that nobody has the slot
}

// clear empties the round, and lets go of nodes that have left.
func (e *Executor) clear() {
	e.round.clear()
	s := e.c.Snapshot()
	e.at = s.Any(e.home.at, 0)
	if s != e.seen {
		e.seen = s
		e.links.dropLeft(s)
	}
}

// send sends all batches in parallel, and returns when the outcome of each is known. The first is sent from this
// goroutine, which waits for those of the others, too, that somebody else is writing anyway.
func (e *Executor) send(ctx context.Context) {
	sent := e.round.sent()
	e.wait.begin(ctx, sent, e.seen)
	for _, b := range sent[1:] {
		if b.joined = e.join(b); !b.joined {
			e.work.Add(1)
			go e.sendBeside(ctx, b)
		}
	}
	e.sendBatch(ctx, sent[0])
	for _, b := range sent[1:] {
		if b.joined {
			b.err = b.link.pipe.Wait(&b.req)
		}
	}
	e.work.Wait()
	e.wait.end()
	slowest := time.Duration(0)
	for _, b := range sent {
		if b.err == nil {
			slowest = max(slowest, b.req.Answered-b.req.Sent)
		}
	}
	e.Upstream += slowest
}

// sendBeside is the goroutine of every batch of a round but the first.
func (e *Executor) sendBeside(ctx context.Context, b *batch) {
	defer e.work.Done()
	e.sendBatch(ctx, b)
}

// join has a batch be sent by whoever writes to its node; false: nobody does.
func (e *Executor) join(b *batch) bool {
	if b.link.pipe == nil {
		return false
	}
	b.ready(&e.memory)
	return b.link.pipe.Join(&b.req)
}

// sendBatch sends one batch, and returns when its outcome is known.
func (e *Executor) sendBatch(ctx context.Context, b *batch) {
	b.req.Replied, b.req.Partial = 0, 0
	if b.link.pipe == nil {
		if b.all((*unit).replaceable) {
			var done func()
			ctx, done = e.seen.While(ctx, b.link.node)
			defer done()
		}
		if b.err = e.links.connect(ctx, b.link); b.err != nil {
			return
		}
	}
	b.ready(&e.memory)
	b.err = b.link.pipe.Do(&b.req)
	e.links.answered(b.link)
}
