package cluster

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// slowReply is how long replies may take before the topology is looked at: a node that hangs is closed when the others
// say that it has failed, and its clients are then told.
const slowReply = 500 * time.Millisecond

// leftReply is how long replies are waited for at least, although nobody wants them any more: so that it is known what came of
// the commands.
const leftReply = time.Second

// Executor carries out one client's plans. It is used by one goroutine at a time.
type Executor struct {
	c       *Cluster
	id      upstream.Identity
	private bool
	home    int // where commands without keys go

	links         map[*Node]*link
	readers       map[*Node]*link // to replicas, for reads
	batches       []*batch        // of this round; the first live ones are in use
	live          int
	scanning      *Plan         // SCAN, which goes its own way; nil: none in this round
	slots         map[int]*lane // slots that something is sent to, or waits for, in this round
	lanes         []*lane       // to be used again
	seen          *Snapshot     // whose nodes the links are to
	replies       []reply
	work          sync.WaitGroup
	slow          *time.Timer
	sending       sync.Mutex      // guards the three below, and batches while it is waiting; a leaf but for links
	round         uint64          // of send
	ctx           context.Context // of it
	began         time.Time
	waiting       atomic.Bool  // for replies
	readsReplicas bool         // replicas are to be read from
	replicas      bool         // and in this Do they are
	barred        time.Time    // they are not before
	writes        map[int]bool // slots that this Do's plans write to
	holder        Holder       // nil: as much as comes may be held

	holding sync.Mutex // guards held, and calls of holder; a leaf but for what these take
	held    int        // bytes of replies since Do began
}

// link is the executor's pipe to a node.
type link struct {
	node  *Node
	reads bool           // in READONLY mode
	pipe  *upstream.Pipe // nil: to be opened
}

// batch is what one node gets in one round.
type batch struct {
	link  *link
	units []*unit
	req   upstream.Request
	sink  replyCollector
	err   error
}

// lane is what this round knows of a slot: what is sent there, and whether what comes next must wait.
type lane struct {
	node  *Node
	many  []*unit // those with several keys, which may be told TRYAGAIN
	stays bool
}

// Executor returns an executor whose commands run as id. Close gives its connections back.
func (c *Cluster) Executor(id upstream.Identity) *Executor {
	e := &Executor{c: c, id: id, home: rand.Int(), links: map[*Node]*link{}, readers: map[*Node]*link{}, slots: map[int]*lane{}, writes: map[int]bool{}}
	e.slow = time.AfterFunc(time.Hour, e.tooSlow)
	e.slow.Stop()
	return e
}

// tooSlow runs, on a timer's goroutine, every slowReply while replies are waited for.
func (e *Executor) tooSlow() {
	if e.waiting.Load() {
		e.c.Refresh()
		e.endLate()
		e.slow.Reset(e.slowLook())
	}
}

// slowLook is how long replies are waited for between two looks.
func (e *Executor) slowLook() time.Duration {
	if t := e.c.opts.Timeout; t > 0 {
		return min(slowReply, max(t/4, time.Millisecond))
	}
	return slowReply
}

// endLate ends the round when nobody waits for its replies any more, or when they have taken too long.
func (e *Executor) endLate() {
	e.sending.Lock()
	defer e.sending.Unlock()
	if !e.waiting.Load() {
		return
	}
	waited := time.Since(e.began)
	var cause error
	switch t := e.c.opts.Timeout; {
	case e.ctx.Err() != nil && waited >= leftReply:
		cause = upstream.ErrLeft
	case t > 0 && waited >= t:
		cause = upstream.ErrTimeout
	default:
		return
	}
	for _, b := range e.batches[:e.live] {
		b.req.End(e.round, cause)
	}
}

// Close gives back all connections. Nothing is under way then.
func (e *Executor) Close() {
	e.slow.Stop()
	e.dropAll()
}

// As has later commands run as id.
func (e *Executor) As(id upstream.Identity) {
	if id != e.id {
		e.dropAll()
		e.id = id
	}
}

// Private has later commands go over connections of the executor's own, or again over those that it shares: for big
// requests and replies, which others would wait behind.
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
//   - a command with several keys can be told TRYAGAIN while those behind it run, so that what shares a key with it
//     waits for its reply, unless both only read;
//   - what has no keys waits for all before it, and all behind it wait;
//   - should a command have been refused all the same and a later one on its key not, because the slot came back to its
//     node or the cluster recovered between the two, it is not sent again: its client gets the refusal as it is.
//
// When ctx ends, what has not been sent fails with its cause; replies under way are waited for, for a second at least. Commands that Redis
// did not run for want of a node are tried again for Options.RetryFor, and so are those that only read and lost their
// replies; a write that lost its reply is never sent twice.
func (e *Executor) Do(ctx context.Context, plans []*Plan) {
	e.held = 0
	e.prepareReads(plans)
	for {
		wait, pending := e.gather(plans)
		switch {
		case !pending:
			for _, p := range plans {
				p.finish(e.hold)
			}
			e.clear()
			return
		case e.c.ctx.Err() != nil:
			e.giveUp(plans, &upstream.NotSentError{Cause: upstream.ErrClosed})
		case e.scanning != nil:
			e.scan(ctx, e.scanning)
		case e.live == 0:
			if !retry.Sleep(ctx, wait, nil) {
				e.giveUp(plans, &upstream.NotSentError{Cause: context.Cause(ctx)})
			}
		default:
			e.send(ctx)
			e.settle(ctx)
		}
	}
}

// gather fills the batches with all that may be sent now. When that is nothing it says how long to wait.
func (e *Executor) gather(plans []*Plan) (wait time.Duration, pending bool) {
	e.clear()
	snapshot, now := e.c.Snapshot(), time.Now()
	wait = time.Second
	homely := false // the plans so far have no keys, and all go to one node
	for _, p := range plans {
		if p.settled() {
			continue
		}
		if pending && (p.alone || homely) && !(homely && p.homely()) {
			break
		}
		pending, homely = true, p.homely()
		if (p.fan || p.scan) && !e.spread(p, snapshot) {
			return max(time.Until(p.whole.ready), 0), true
		}
		if p.scan {
			e.scanning = p
			break
		}
		all := true
		for i := range p.units {
			u := &p.units[i]
			if u.done {
				continue
			}
			if n := e.target(u, snapshot, now); e.fits(u, n, now) {
				e.add(u, n)
				continue
			}
			if all = false; u.ready.After(now) {
				wait = min(wait, u.ready.Sub(now))
			}
		}
		if p.alone && !(homely && all) {
			break
		}
	}
	return wait, pending
}

// spread makes p's units; false: it is to wait, or is done. While a slot has no master, as during a failover, what all
// masters are to answer or to do would miss a part; when that stays so it is refused in Redis' words.
func (e *Executor) spread(p *Plan, s *Snapshot) bool {
	if (s.whole || p.cmd.Facts.Partial) && !p.whole.ready.After(time.Now()) {
		if p.fan {
			p.fanOut(s)
		}
		return true
	}
	if !p.whole.ready.After(time.Now()) {
		e.c.Refresh()
		if !e.later(&p.whole, 20*time.Millisecond) {
			p.answer("CLUSTERDOWN Hash slot not served")
		}
	}
	return false
}

// target is the node a unit goes to.
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
			if r := e.c.replicaFor(s, n, u.slot, e.home, now); r != nil {
				u.reading = true
				return r
			}
			return n
		}
	}
	return s.Any(e.home) // which says itself that nobody has the slot
}

// fits says whether a unit may be sent in this round, behind what is there already.
func (e *Executor) fits(u *unit, node *Node, now time.Time) bool {
	if u.slot == noSlot {
		return !u.ready.After(now)
	}
	l := e.slots[u.slot]
	if l == nil {
		l = e.lane(u.slot)
		l.node = node
	}
	if l.stays || l.node != node || u.ready.After(now) {
		l.stays = true
		return false
	}
	for _, m := range l.many {
		if !(m.plan.ReadOnly() && u.plan.ReadOnly()) && m.shares(u) {
			l.stays = true
			return false
		}
	}
	if u.count() > 1 {
		l.many = append(l.many, u)
	}
	return true
}

// lane begins a slot's lane.
func (e *Executor) lane(slot int) *lane {
	used := len(e.slots)
	if used == len(e.lanes) {
		e.lanes = append(e.lanes, &lane{})
	}
	l := e.lanes[used]
	*l = lane{many: l.many[:0]}
	e.slots[slot] = l
	return l
}

// add puts a unit into its node's batch.
func (e *Executor) add(u *unit, n *Node) {
	var b *batch
	for _, live := range e.batches[:e.live] {
		if live.link.node == n && live.link.reads == u.reading {
			b = live
		}
	}
	if b == nil {
		if e.live == len(e.batches) {
			e.batches = append(e.batches, &batch{})
		}
		b = e.batches[e.live]
		e.live++
		b.link = e.link(n, u.reading)
	}
	if u.ask {
		b.req.Cmds = append(b.req.Cmds, asking)
	}
	b.req.Cmds = append(b.req.Cmds, u.raw)
	b.units = append(b.units, u)
}

// link is the executor's link to n, for reads or not, opened when it is first needed.
func (e *Executor) link(n *Node, reads bool) *link {
	links := e.linksFor(reads)
	l := links[n]
	if l == nil {
		l = &link{node: n, reads: reads}
		e.c.Acquire(n)
		links[n] = l
	}
	return l
}

func (e *Executor) linksFor(reads bool) map[*Node]*link {
	if reads {
		return e.readers
	}
	return e.links
}

// drop gives a link back.
func (e *Executor) drop(l *link) {
	if l.pipe != nil {
		l.pipe.Release()
	}
	e.c.Release(l.node)
	delete(e.linksFor(l.reads), l.node)
}

func (e *Executor) dropAll() {
	for _, l := range e.links {
		e.drop(l)
	}
	for _, l := range e.readers {
		e.drop(l)
	}
}

// clear empties the batches, and lets go of nodes that have left.
func (e *Executor) clear() {
	for i, b := range e.batches[:e.live] {
		if upstream.Ended(b.err) { // its replies are still pending
			e.batches[i] = &batch{}
			continue
		}
		clear(b.req.Cmds)
		clear(b.units)
		clear(b.sink.pieces)
		b.sink.direct = nil
		b.req.Cmds, b.units, b.link, b.err = b.req.Cmds[:0], b.units[:0], nil, nil
	}
	e.live, e.scanning = 0, nil
	for _, l := range e.slots {
		clear(l.many)
	}
	clear(e.slots)
	if s := e.c.Snapshot(); s != e.seen {
		e.seen = s
		e.dropLeft(e.links)
		e.dropLeft(e.readers)
	}
}

// dropLeft gives back links to nodes that are not in the topology.
func (e *Executor) dropLeft(links map[*Node]*link) {
	for n, l := range links {
		if !e.seen.has(n) {
			e.drop(l)
		}
	}
}
