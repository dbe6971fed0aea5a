package cluster

import (
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/upstream"
)

// Keyed is a command whose only keys are in one slot, as most commands are.
type Keyed struct {
	Raw  []byte // as in Command
	Slot int
}

// Straight carries out such commands as Do does, and makes their plans only if it has to: a command that its master
// answers without an error needs none. Then it gives all replies to to, in the order of the commands, and returns
// true. Otherwise it has the plans made, of the same commands in the same order, goes on with them until each has
// its Reply or its Err, and returns false; to has got nothing then. Reads do not go to replicas.
func (e *Executor) Straight(ctx context.Context, cmds []Keyed, to upstream.Sink, plans func() []*Plan) bool {
	e.begin()
	e.clear()
	addressed := e.c.ctx.Err() == nil && e.address(cmds)
	if addressed {
		if e.send(ctx); e.deliver(to) {
			e.clear() // an idle client holds no bytes
			return true
		}
	}
	all := plans()
	if addressed {
		for i, b := range e.round.straight {
			b.units = append(b.units, &all[i].units[0])
		}
		e.settle(ctx)
	}
	clear(e.round.straight) // a batch whose wait was ended is used no more
	e.finish(ctx, all)
	return false
}

// address puts each command into the batch of its slot's master; false: a slot has none.
func (e *Executor) address(cmds []Keyed) bool {
	e.round.straight = e.round.straight[:0]
	for i := range cmds {
		n := e.seen.Owner(cmds[i].Slot)
		if n == nil {
			return false
		}
		b := e.round.batchTo(linkTo{node: n}, &e.links)
		b.req.Cmds = append(b.req.Cmds, cmds[i].Raw)
		e.round.straight = append(e.round.straight, b)
	}
	return true
}

// deliver gives the replies of a round to to, in the order of its commands. It does nothing and returns false if one
// is missing, or is more than a reply to be passed on: an error, which may be a redirect, or one that is long.
func (e *Executor) deliver(to upstream.Sink) bool {
	e.replies = e.replies[:0]
	defer func() { clear(e.replies) }() // they would keep the bytes
	for _, b := range e.round.sent() {
		from := len(e.replies)
		if b.err != nil || b.sink.refuse {
			return false
		}
		if e.replies = b.sink.cut(e.replies, b.req.Replied); len(e.replies) != from+len(b.req.Cmds) {
			return false
		}
		if slices.ContainsFunc(e.replies[from:], reply.needsPlan) {
			return false
		}
		b.next = from
	}
	for _, b := range e.round.straight {
		to.Reply(e.replies[b.next].whole)
		b.next++
	}
	return true
}

// needsPlan says that the reply is more than one to be passed on: an error, or long.
func (r reply) needsPlan() bool { return r.whole == nil || r.whole[0] == '-' }
