package dedicated

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Send queues a command, whose reply goes where e says. Replies that did not come over this connection are written
// first, because the command is answered with an error at once if the connection has ended.
func (p *Conn) Send(e *Reply, raw []byte) {
	p.Client.Flush()
	e.quiet = p.Client.Replies.Silent
	if e.Cmd != nil && e.forClient() && e.Instead == "" {
		e.sent = telemetry.Clock()
	}
	p.mu.Lock()
	if !p.add(e) { // lost: the replies pending before have been answered
		p.mu.Unlock()
		if e.Lost = ErrGone; e.Got == nil {
			p.Host.NotSent(e)
		}
		return
	}
	most := p.said.pending.most()
	crowded := len(p.said.pending.all) >= most
	p.mu.Unlock()
	p.queue = append(p.queue, raw...)
	if len(p.queue) >= flushAt {
		p.Flush()
	}
	if crowded {
		p.settle(most / 2)
	}
}

// add notes that the reply to e is pending, with mu held; false: the connection is over.
func (p *Conn) add(e *Reply) bool {
	if p.life.over() {
		return false
	}
	p.silence.sent(e, p.said.pending.oldest() == nil)
	p.said.state.sent(e)
	p.said.pending.add(e)
	p.count()
	p.View.Pending.Store(int32(len(p.said.pending.all)))
	if e.Wait.Blocks {
		p.show()
	}
	return true
}

// Tell sends a command of this proxy's own; nobody wants its reply.
func (p *Conn) Tell(args ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.add(&Reply{Own: true}) {
		p.queue = resp.AppendCommand(p.queue, args...)
	}
}

// Own sends a command of this proxy's own, and keeps its reply for Answer.
func (p *Conn) Own(e *Reply, raw []byte) *Reply {
	e.Own, e.Got = true, new([]byte)
	p.Send(e, raw)
	return e
}

// Answer returns the reply to e, which must have come; the error says that the connection ended first.
func (p *Conn) Answer(e *Reply) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Lost != nil:
		return nil, &upstream.NotSentError{Cause: e.Lost}
	case len(*e.Got) == 0:
		return nil, &upstream.NotSentError{Cause: ErrGone}
	}
	return *e.Got, nil
}

// Ask sends a command and waits for its reply. No other reply may be pending. If Redis has said nothing for that time,
// the connection is closed.
func (p *Conn) Ask(e *Reply, within time.Duration, args ...string) ([]byte, error) {
	e.Got, e.Within = new([]byte), within
	p.Send(e, resp.AppendCommand(nil, args...))
	if !p.Settled() {
		return nil, &upstream.NotSentError{Cause: ErrGone}
	}
	return p.Answer(e)
}

// Flush sends what is queued, after the replies that did not come over this connection. A Redis that takes no bytes
// holds up a client that is still there, but one that has gone only for LastReplies.
func (p *Conn) Flush() {
	if len(p.queue) == 0 {
		return
	}
	p.Client.Flush()
	var late *time.Timer
	p.Client.End.WhenOver(func() { late = time.AfterFunc(LastReplies, p.conn.Close) })
	began := time.Now()
	p.silence.writes.Store(&began)
	_ = p.conn.Write(p.queue) // Ended tells
	p.silence.writes.Store(nil)
	p.Client.End.WhenOver(nil)
	if late != nil && !late.Stop() {
		p.Taint()
	}
	p.queue = p.queue[:0]
	if cap(p.queue) > keepBytes {
		p.queue = nil
	}
}

// Settled waits until all replies have come whole, and says whether that is so and the client is still there.
func (p *Conn) Settled() bool { return p.settle(0) }

// settle waits until at most so many replies are pending: see Settled.
func (p *Conn) settle(most int) (settled bool) {
	p.Flush()
	few := func() bool { return len(p.said.pending.all) <= most }
	p.mu.Lock()
	settled = few()
	waits := p.said.pending.waits
	p.mu.Unlock()
	switch {
	case settled:
	case waits > 0:
		p.Client.Watch(func(ctx context.Context) { settled = p.await(ctx, few) })
	default:
		ctx, cancel := context.WithCancel(p.Client.Process.Context)
		p.Client.End.WhenOver(cancel)
		settled = p.await(ctx, few)
		p.Client.End.WhenOver(nil)
		cancel()
	}
	return settled && !p.Client.End.Over()
}

// Await waits until all replies have come whole, as if they had once the connection is over, or ctx ends, and says
// whether they have.
func (p *Conn) Await(ctx context.Context) bool {
	return p.await(ctx, func() bool { return p.said.pending.oldest() == nil })
}

// awaitWhole waits until the client has no part of a reply, or ctx ends.
func (p *Conn) awaitWhole(ctx context.Context) {
	p.await(ctx, func() bool { return !p.out.within() })
}

// await waits until holds returns true, as Received and Ended may bring about, or ctx ends, and returns its last
// answer. holds is called with mu held.
func (p *Conn) await(ctx context.Context, holds func() bool) bool {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		p.changed.Broadcast()
		p.mu.Unlock()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !holds() && ctx.Err() == nil {
		p.changed.Wait()
	}
	return holds()
}
