package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	shortPause = 5 * time.Millisecond  // while a slot moves
	longPause  = 20 * time.Millisecond // while a slot has no node, or its node is not known
)

// ErrTooMuch is the end of a command whose replies the Holder did not let be held. It has run.
var ErrTooMuch = errors.New("cluster: more replies than may be held")

// errUncounted never occurs unless there is a bug: a pipe that reports no error has counted all replies.
var errUncounted = errors.New("replies are missing")

// settle gives each unit of the round its outcome.
func (e *Executor) settle(ctx context.Context) {
	for _, b := range e.round.sent() {
		replies := b.sink.cut(e.replies[:0], b.req.Replied)
		at := 0
		for _, u := range b.units {
			if u.ask {
				at++
			}
			switch {
			case u.begun:
				u.reply, u.err, u.done = nil, b.err, true // there may have been a redirect before
			case at < len(replies):
				e.replied(ctx, u, b.link.node, replies[at])
			default:
				e.unanswered(u, b)
			}
			at++
		}
		b.overtaken()
		e.leaveHome(b.link.node, b.err)
		clear(replies)
		e.replies = replies[:0]
	}
}

// unanswered decides what happens to a unit of a batch that has got no reply.
func (e *Executor) unanswered(u *unit, b *batch) {
	switch {
	case b.err != nil:
		e.failed(u, b.link.node, b.err)
	case b.sink.refuse:
		u.err, u.done = ErrTooMuch, true
	default:
		u.err, u.done = errUncounted, true
	}
}

// failed decides what happens to a unit whose request to n has ended with err.
func (e *Executor) failed(u *unit, n *Node, err error) {
	next := upstream.Attempt{Err: err, Repeatable: u.plan.repeatable(), Left: e.c.opts.RetryFor}.Outcome()
	u.reply, u.pieces = nil, nil
	if e.passOn(u, n, failureOf(err)) || next == upstream.SendAgain {
		u.to, u.ask = nil, false
		e.c.Refresh()
		if !u.optional && e.later(u, longPause) {
			e.c.count.retried.Add(1)
			return
		}
	}
	u.err, u.done = err, true
}

// later lets a unit be tried again after a pause, which grows from first; false: its time is up.
func (e *Executor) later(u *unit, first time.Duration) bool { return u.later(first, e.c.opts.RetryFor) }

// replied decides what happens to a unit that node has answered with got.
func (e *Executor) replied(ctx context.Context, u *unit, node *Node, got reply) {
	r := readRefusal(got.whole)
	u.reply, u.pieces, u.done = got.whole, got.pieces, true
	if r.kind == noRefusal {
		return
	}
	if r.kind == moved && u.goesHome() && !u.plan.cmd.Facts.Script {
		// Redis may find a key where we found none, in a command whose arguments are wrong (GEORADIUS … STORE, and
		// no more).
		u.slot = r.slot
	}
	switch {
	case u.fixed != nil: // a master of a command for all of them, which it may be no longer
		u.done = u.optional || r.kind != demoted || !e.follow(ctx, u, node, r)
	case u.slot == noSlot: // what a script says may be its own word, and it may have run
		u.done = r.kind != runsNothing || !u.plan.repeatable() || !e.passOn(u, node, ranNothing)
	case r.OfSlot():
		u.done = !e.slotRefused(ctx, u, node, r)
	}
}

// slotRefused handles a unit for which node does not have the slot; false: the refusal is passed on to the client. A
// script can return an error that looks like a redirect: then the node is asked about the same keys with EXISTS,
// whose errors are Redis' own, and that answer is followed. If EXISTS is not refused, the slot may have come back
// just then: a script that changes nothing is sent again; any other might have run.
func (e *Executor) slotRefused(ctx context.Context, u *unit, node *Node, r Refusal) (again bool) {
	if u.plan.cmd.Facts.Script {
		r = e.probe(ctx, u, node)
		if r.kind == noRefusal {
			return u.plan.readOnly() && e.repeat(u, node)
		}
	}
	return e.follow(ctx, u, node, r)
}

// follow makes the unit go where the rule for refusals sends it; false: the refusal is passed on to the client.
func (e *Executor) follow(ctx context.Context, u *unit, node *Node, r Refusal) bool {
	snapshot := e.c.Snapshot()
	r.to = snapshot.named(r.addr, node)
	if r.to == nil && r.addr != "" { // the node is new: the one that names it knows it
		e.c.await(ctx, e.c.refreshFrom(node))
		snapshot = e.c.Snapshot()
		r.to = snapshot.named(r.addr, node)
	}
	followed := u.followed
	u.to, u.ask, u.followed = nil, false, 0
	e.c.count.refusals[r.kind].Add(1)
	switch r.step(u.slot, followed) {
	case Stop:
		return false
	case Pause:
		return e.later(u, shortPause)
	case Look:
		e.c.refreshFrom(node)
		return e.later(u, longPause)
	}
	u.to, u.ask, u.followed = r.to, r.kind == asked, followed+1
	if r.kind == moved && snapshot.Owner(u.slot) != r.to {
		e.c.refreshFrom(node)
	}
	return true
}

// mostRepeats is how often a script that changes nothing is sent again to learn whether a refusal is the script's own.
const mostRepeats = 8

// repeat makes the unit of such a script go to node once more; false: it has been sent often enough.
func (e *Executor) repeat(u *unit, node *Node) bool {
	u.repeats++
	u.to = node
	return u.repeats <= mostRepeats && e.later(u, time.Millisecond)
}

// probe asks node for the unit's keys with EXISTS, as the service account, and returns what Redis says of the slot.
// A node that does not answer is asked again for Options.RetryFor, all questions of a Do together: without an answer
// the client would be given the redirect.
func (e *Executor) probe(ctx context.Context, u *unit, node *Node) Refusal {
	words := [][]byte{[]byte("EXISTS")}
	for i := range u.count() {
		words = append(words, u.key(i))
	}
	cmds := [][]byte{resp.Command(words)}
	if u.ask {
		cmds = [][]byte{asking, cmds[0]}
	}
	if e.round.probeUntil.IsZero() {
		e.round.probeUntil = time.Now().Add(e.c.opts.RetryFor)
	}
	pause := retry.Backoff{First: longPause, Most: 200 * time.Millisecond}
	for {
		reply, err := e.c.askShared(ctx, node, cmds...)
		if err == nil {
			return readRefusal(reply.Raw)
		}
		if time.Now().After(e.round.probeUntil) || !retry.Sleep(ctx, pause.Next(), nil) {
			return Refusal{}
		}
	}
}
