package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// send sends all batches in parallel, the first from this goroutine, and returns when the outcome of each is known.
func (e *Executor) send(ctx context.Context) {
	e.wait.mu.Lock()
	e.wait.turn++
	e.wait.ctx, e.wait.began = ctx, time.Now()
	for _, b := range e.round.batches[:e.round.live] {
		b.req.Turn = e.wait.turn
	}
	e.wait.on = true
	if !e.wait.armed {
		e.wait.armed = true
		e.wait.slow.Reset(e.slowLook())
	}
	e.wait.mu.Unlock()
	for _, b := range e.round.batches[1:e.round.live] {
		e.work.Add(1)
		go e.sendBatch(ctx, b)
	}
	e.sendOver(ctx, e.round.batches[0])
	e.work.Wait()
	slowest := time.Duration(0)
	for _, b := range e.round.batches[:e.round.live] {
		if b.err == nil {
			slowest = max(slowest, b.req.Answered-b.req.Sent)
		}
	}
	e.Upstream += slowest
	e.wait.mu.Lock()
	e.wait.on = false
	e.wait.mu.Unlock()
}

// sendBatch is the goroutine of every batch of a round but the first.
func (e *Executor) sendBatch(ctx context.Context, b *batch) {
	defer e.work.Done()
	e.sendOver(ctx, b)
}

// sendOver sends one batch, and returns when its outcome is known.
func (e *Executor) sendOver(ctx context.Context, b *batch) {
	b.req.Replied, b.req.Partial = 0, 0
	if b.link.pipe == nil {
		id := e.id
		id.Reads = b.link.reads
		open := b.link.node.up.Open
		if e.private {
			open = b.link.node.up.Private
		}
		if b.elsewhere() {
			var done func()
			ctx, done = e.seen.While(ctx, b.link.node)
			defer done()
		}
		if b.link.pipe, b.err = open(ctx, id); b.err != nil {
			b.link.pipe = nil
			return
		}
	}
	b.sink.reset(e, b.units)
	b.req.Sink = &b.sink
	b.err = b.link.pipe.Do(&b.req)
}

// settle gives each unit of the round its outcome.
func (e *Executor) settle(ctx context.Context) {
	for _, b := range e.round.batches[:e.round.live] {
		replies := b.sink.cut(e.replies[:0], b.req.Replied)
		at := 0
		for _, u := range b.units {
			if u.ask {
				at++
			}
			switch {
			case u.begun:
				u.reply, u.err, u.done = nil, b.err, true // there may have been a redirect before
				e.countRead(u)
			case at < len(replies):
				u.from = b.link.node
				e.replied(ctx, u, b.link.node, replies[at])
			case u.reading && b.err != nil:
				e.readFailed(u, b.link.node, b.err)
			case b.sink.refuse && b.err == nil:
				u.err, u.done = ErrTooMuch, true
			default:
				e.failed(u, b.err)
			}
			at++
		}
		b.overtaken()
		e.leaveHome(b.link.node, b.err)
		clear(replies)
		e.replies = replies[:0]
	}
}

// overtaken ends the units that would be sent again although a later command on one of their keys has already run.
func (b *batch) overtaken() {
	if !slices.ContainsFunc(b.units, func(u *unit) bool { return !u.done }) {
		return
	}
	ran := map[int][]*unit{} // by slot, of those behind
	for _, u := range slices.Backward(b.units) {
		if u.slot == noSlot {
			continue
		}
		if u.done {
			ran[u.slot] = append(ran[u.slot], u)
			continue
		}
		if slices.ContainsFunc(ran[u.slot], func(later *unit) bool {
			return !(later.plan.readOnly() && u.plan.readOnly()) && u.shares(later)
		}) {
			u.done = true
			if u.reply == nil {
				u.err = b.err
			}
		}
	}
}

// ErrTooMuch is the end of a command whose replies the Holder did not let be held. It has run.
var ErrTooMuch = errors.New("cluster: more replies than may be held")

// errUncounted never occurs unless there is a bug: a pipe that reports no error has counted all replies.
var errUncounted = errors.New("replies are missing")

// failed decides what happens to a unit without a reply.
func (e *Executor) failed(u *unit, err error) {
	if err == nil {
		err = errUncounted
	}
	u.reply, u.pieces = nil, nil
	again := (!upstream.Ended(err) || errors.Is(err, upstream.ErrSlow)) && (upstream.IsNotSent(err) || upstream.IsLost(err) && u.plan.repeatable())
	if e.passOn(u, err) || again {
		if !u.home {
			u.node, u.ask = nil, false
		}
		e.c.Refresh()
		again = !u.optional && e.later(u, 20*time.Millisecond)
	}
	if !again {
		u.err, u.done = err, true
		return
	}
	e.c.count.retried.Add(1)
}

// later lets a unit be tried again after a pause, which grows from first; false: its time is up.
func (e *Executor) later(u *unit, first time.Duration) bool {
	now, t := time.Now(), u.tries()
	if t.until.IsZero() {
		t.until = now.Add(e.c.opts.RetryFor)
	}
	t.failures.First, t.failures.Most = first, 200*time.Millisecond
	t.ready = now.Add(t.failures.Next())
	return t.ready.Before(t.until)
}

// giveUp ends all that is not done.
func (e *Executor) giveUp(plans []*Plan, err error) {
	for _, p := range plans {
		if p.settled() {
			continue
		}
		if len(p.units) == 0 {
			p.Err, p.done = err, true
		}
		for i := range p.units {
			if u := &p.units[i]; !u.done {
				u.err, u.done = err, true
			}
		}
	}
}
