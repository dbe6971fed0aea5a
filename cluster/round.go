package cluster

import (
	"math"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// round is what is sent together, each node's in one write.
type round struct {
	batches  []*batch // the first live ones are in use
	live     int
	orderly  bool             // the first round of a Do without commands with several keys: nothing waits
	slots    map[int]*slotUse // slots that something is sent to, or waits for; empty while orderly
	unused   []*slotUse       // to be used again
	straight []int            // by command the place of its batch: see Straight

	probeUntil time.Time // when the probes of this Do end; zero: there has been none
}

// batch is what one node gets in one round.
type batch struct {
	at     int // its place in the round
	link   *link
	units  []*unit
	req    upstream.Request
	sink   replyCollector
	err    error
	joined bool // see Pipe.Join
	next   int  // of the executor's whole replies, the next one of this batch: see deliver
}

// slotUse is what this round knows of a slot: what is sent there, and whether what comes next must wait.
type slotUse struct {
	node    *Node
	many    []*unit // units with several keys, which may be answered TRYAGAIN
	blocked bool    // what comes next must wait
}

// sent are the batches in use.
func (r *round) sent() []*batch { return r.batches[:r.live] }

// fits says whether a unit may be sent in this round, after what is in it already.
func (r *round) fits(u *unit, node *Node, now time.Time) bool {
	if r.orderly {
		return true
	}
	due := !u.ready.After(now)
	if u.slot == noSlot {
		return due
	}
	l := r.slots[u.slot]
	if l == nil {
		l = r.use(u.slot, node)
	}
	switch {
	case l.blocked, l.node != node, !due, slices.ContainsFunc(l.many, u.conflicts):
		l.blocked = true
	case u.count() > 1:
		l.many = append(l.many, u)
	}
	return !l.blocked
}

// use is what is known of a slot that something is sent to, or waits for, from now on.
func (r *round) use(slot int, node *Node) *slotUse {
	used := len(r.slots)
	if used == len(r.unused) {
		r.unused = append(r.unused, &slotUse{})
	}
	l := r.unused[used]
	*l = slotUse{node: node, many: l.many[:0]}
	r.slots[slot] = l
	return l
}

// batchTo is the batch that goes there, over one of those links.
func (r *round) batchTo(n *Node, by *links) *batch {
	for _, b := range r.sent() {
		if b.link.node == n {
			return b
		}
	}
	if r.live == len(r.batches) {
		r.batches = append(r.batches, &batch{})
	}
	b := r.batches[r.live]
	b.at, b.link = r.live, by.to(n)
	r.live++
	return b
}

// clear empties the round.
func (r *round) clear() {
	for i, b := range r.sent() {
		if upstream.Ended(b.err) { // its replies are still pending
			r.batches[i] = &batch{}
			continue
		}
		clear(b.req.Cmds)
		clear(b.units)
		clear(b.sink.pieces)
		b.sink.direct = nil
		b.req.Cmds, b.units, b.link, b.err = b.req.Cmds[:0], b.units[:0], nil, nil
	}
	r.live = 0
	if len(r.slots) > 0 {
		for _, l := range r.slots {
			clear(l.many)
		}
		clear(r.slots)
	}
}

// add puts a unit into the batch.
func (b *batch) add(u *unit) {
	if u.ask {
		b.req.Cmds = append(b.req.Cmds, asking)
	}
	b.req.Cmds = append(b.req.Cmds, u.raw)
	b.units = append(b.units, u)
}

// ready readies the batch to be sent.
func (b *batch) ready(m *replyMemory) {
	b.sink.reset(m, b.units)
	b.req.Sink = &b.sink
}

// all says that each of the batch's units is so. Without units it is Straight's, and each command has its slot.
func (b *batch) all(are func(*unit) bool) bool {
	return len(b.units) > 0 && !slices.ContainsFunc(b.units, func(u *unit) bool { return !are(u) })
}

// movable says that the batch may be sent to another node because its own is slow: no byte of a reply has come.
func (b *batch) movable() bool { return b.req.Quiet() == math.MaxInt64 && b.all((*unit).movable) }

// dispensable says that nobody needs to wait for what was sent of the batch.
func (b *batch) dispensable() bool { return b.all((*unit).dispensable) }

// overtaken ends the units that would be sent again although a later command on one of their keys has already run.
func (b *batch) overtaken() {
	if b.all((*unit).isDone) {
		return
	}
	ran := map[int][]*unit{} // by slot, of those behind
	for _, u := range slices.Backward(b.units) {
		switch {
		case u.slot == noSlot:
		case u.done:
			ran[u.slot] = append(ran[u.slot], u)
		case slices.ContainsFunc(ran[u.slot], u.conflicts):
			if u.done = true; u.reply == nil {
				u.err = b.err
			}
		}
	}
}
