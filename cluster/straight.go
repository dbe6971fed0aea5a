package cluster

import (
	"context"

	"github.com/lockproxy/lockproxy/upstream"
)

// Straight carries out commands whose only keys are each in one slot, as Do does, and makes their plans only if it has
// to: a command that its master answers without an error needs none. Then it gives all replies to to, in the order of
// the commands, and returns true. Otherwise it has the plans made, of the same commands in the same order, goes on with
// them until each has its Reply or its Err, and returns false; to has got nothing then. Reads do not go to replicas.
func (e *Executor) Straight(ctx context.Context, cmds [][]byte, slots []int, to upstream.Sink,
	plans func() []*Plan) bool {
	e.begin()
	e.clear()
	addressed := e.c.ctx.Err() == nil && e.address(cmds, slots)
	if addressed {
		if e.send(ctx); e.deliver(to) {
			e.round.clear() // an idle client holds no bytes
			return true
		}
	}
	all := plans()
	if addressed {
		for i, at := range e.round.straight {
			b := e.round.batches[at]
			b.units = append(b.units, &all[i].units[0])
		}
		e.settle(ctx)
	}
	e.finish(ctx, all)
	return false
}

// address puts each command into the batch of its slot's master; false: a slot has none.
func (e *Executor) address(cmds [][]byte, slots []int) bool {
	e.round.straight = e.round.straight[:0]
	for i, slot := range slots {
		n := e.seen.Owner(slot)
		if n == nil {
			return false
		}
		b := e.round.batchTo(n, &e.links)
		b.req.Cmds = append(b.req.Cmds, cmds[i])
		e.round.straight = append(e.round.straight, b.at)
	}
	return true
}

// deliver gives the replies of a round to to, in the order of its commands. It does nothing and returns false if one
// is missing, or is more than a reply to be passed on: an error, which may be a redirect, or one that is long.
func (e *Executor) deliver(to upstream.Sink) bool {
	e.whole = e.whole[:0]
	defer func() { clear(e.whole) }() // they would keep the bytes
	for _, b := range e.round.sent() {
		b.next = len(e.whole)
		if b.err != nil {
			return false
		}
		if e.whole = b.sink.cutWhole(e.whole); len(e.whole) != b.next+len(b.req.Cmds) {
			return false
		}
	}
	for _, at := range e.round.straight {
		b := e.round.batches[at]
		to.Reply(e.whole[b.next])
		b.next++
	}
	return true
}
