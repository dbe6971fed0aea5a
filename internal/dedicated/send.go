package dedicated

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Send queues a command, whose reply goes where e says. Replies that did not come over this connection are written first, because the
// command is answered with an error at once if the connection has ended.
func (p *Conn) Send(e *Reply, raw []byte) {
	p.Client.Flush()
	e.call.quiet = p.Client.Replies.Silent
	if e.Kind == commandtable.ConnSubscribe {
		e.Effect.subs = e
	}
	if !e.Own && e.Got == nil && e.Instead == "" {
		e.call.begins, e.call.sent = string(raw[:min(len(raw), callBytes)]), telemetry.Clock()
	}
	p.mu.Lock()
	if p.life.released { // lost: the replies pending before have been answered
		p.mu.Unlock()
		if e.Lost = ErrGone; e.Got == nil {
			p.Host.NotSent(e)
		}
		return
	}
	p.addPending(e)
	p.state.inside.sent(&e.Effect)
	p.View.Pending.Store(int32(len(p.pending.all)))
	if e.Wait.Blocks {
		p.show()
	}
	most := mostPending
	if p.pending.blocked() {
		most = MostPendingBlocked
	}
	crowded := len(p.pending.all) >= most
	p.mu.Unlock()
	p.queue = append(p.queue, raw...)
	if len(p.queue) >= flushAt {
		p.Flush()
	}
	if crowded {
		p.settle(most / 2)
	}
}

// Tell sends a command of this proxy's own; nobody wants its reply.
func (p *Conn) Tell(args ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.released {
		return
	}
	p.addPending(&Reply{Own: true})
	p.queue = resp.AppendCommand(p.queue, args...)
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

// Ask sends a command and waits for its reply. No other reply may be pending. If Redis has not answered within that time,
// the connection is closed.
func (p *Conn) Ask(e *Reply, within time.Duration, args ...string) ([]byte, error) {
	e.Got = new([]byte)
	defer time.AfterFunc(within, func() { p.endUnanswered(e, within) }).Stop()
	p.Send(e, resp.AppendCommand(nil, args...))
	if !p.Settled() {
		return nil, &upstream.NotSentError{Cause: ErrGone}
	}
	return p.Answer(e)
}

// Exchange sends a command of the proxy's own, past the client's goroutine, and waits for its reply. If Redis does
// not answer before ctx ends, the connection is closed.
func (p *Conn) Exchange(ctx context.Context, e *Reply, raw []byte) bool {
	p.mu.Lock()
	if p.life.released {
		p.mu.Unlock()
		return false
	}
	p.addPending(e)
	raw = append(p.queue, raw...) // a new connection's name is sent first
	p.queue = nil
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, p.conn.Close)
	_ = p.conn.Write(raw) // Ended tells
	return p.Await(ctx) && stop() && e.Lost == nil
}

// Flush sends what is queued, after the replies that did not come over this connection. A Redis that takes no bytes holds up a
// client that is still there, but one that has gone only for LastReplies.
func (p *Conn) Flush() {
	if len(p.queue) == 0 {
		return
	}
	p.Client.Flush()
	var late *time.Timer
	p.Client.End.WhenOver(func() { late = time.AfterFunc(LastReplies, p.conn.Close) })
	p.writing(time.Now())
	_ = p.conn.Write(p.queue) // Ended tells
	p.writing(time.Time{})
	p.Client.End.WhenOver(nil)
	if late != nil && !late.Stop() {
		p.Taint()
	}
	p.queue = p.queue[:0]
	if cap(p.queue) > keepBytes {
		p.queue = nil
	}
}

// caughtUp says that at most so many replies are pending, and if none may be, that nothing is to come behind EXEC's either, unless the
// connection is over. mu is held.
func (p *Conn) caughtUp(most int) bool {
	return len(p.pending.all) <= most && (most > 0 || !p.state.stray || p.life.released)
}

// Settled waits until all replies have come whole, and says whether that is so and the client is still there.
func (p *Conn) Settled() bool { return p.settle(0) }

// settle waits until at most so many replies are pending: see Settled.
func (p *Conn) settle(most int) (settled bool) {
	p.Flush()
	p.mu.Lock()
	settled = p.caughtUp(most)
	blocks := !settled && p.pending.blocked()
	p.mu.Unlock()
	switch {
	case settled:
	case blocks:
		p.Client.Watch(func(ctx context.Context) { settled = p.await(ctx, most) })
	default:
		ctx, cancel := context.WithCancel(p.Context)
		p.Client.End.WhenOver(cancel)
		settled = p.await(ctx, most)
		p.Client.End.WhenOver(nil)
		cancel()
	}
	return settled && !p.Client.End.Over()
}

// Await waits until all replies have come whole, or ctx ends, and says whether they have.
func (p *Conn) Await(ctx context.Context) bool { return p.await(ctx, 0) }

// await waits until caughtUp, as it is once the connection is over, or ctx ends.
func (p *Conn) await(ctx context.Context, most int) bool {
	return p.awaitThat(ctx, func() bool { return p.caughtUp(most) })
}

// wakeWaiters has those in awaitThat look again.
func (p *Conn) wakeWaiters() {
	p.mu.Lock()
	p.changed.Broadcast()
	p.mu.Unlock()
}

// awaitThat waits until holds returns true, as Received and Ended may bring about, or ctx ends, and returns its last
// answer. holds is called with mu held.
func (p *Conn) awaitThat(ctx context.Context, holds func() bool) bool {
	stop := context.AfterFunc(ctx, p.wakeWaiters)
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !holds() && ctx.Err() == nil {
		p.changed.Wait()
	}
	return holds()
}
