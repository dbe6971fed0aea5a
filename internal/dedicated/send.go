package dedicated

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// watchedAfter is how long a command that may wait has waited before its client is watched: most get what they wait
// for soon, and to watch costs more than that.
const watchedAfter = 20 * time.Millisecond

// Send queues a command, whose reply goes where e says. Replies that did not come over this connection are written
// first. false: the connection has ended, and those that were pending have been answered.
func (p *Conn) Send(e *Reply, raw []byte) bool {
	p.Client.Flush()
	e.quiet = p.Client.Replies.Silent
	if e.Cmd != nil && e.forClient() && e.Instead == "" {
		e.sent = telemetry.Clock()
	}
	if !p.add(e) {
		e.Lost = ErrGone
		return false
	}
	p.queue = append(p.queue, raw...)
	if len(p.queue) >= flushAt {
		p.Flush()
	}
	if p.sent++; p.sent == mostPending {
		p.Wait()
	}
	return true
}

// add notes that the reply to e is pending; false: the connection is over.
func (p *Conn) add(e *Reply) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	if p.said.pending.oldest() == nil {
		p.heard = time.Now()
	}
	p.said.state.sent(e)
	p.said.pending.add(e)
	p.count()
	if e.Wait.Blocks {
		p.show()
	}
	return true
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

// Ask sends a command and waits for its reply. No other reply may be pending. If Redis has not answered within that
// time, the connection is closed.
func (p *Conn) Ask(e *Reply, within time.Duration, args ...string) ([]byte, error) {
	e.Got = new([]byte)
	p.Send(e, resp.AppendCommand(nil, args...))
	if !p.WaitFor(within) {
		return nil, &upstream.NotSentError{Cause: ErrGone}
	}
	return p.Answer(e)
}

// Flush sends what is queued, after the replies that did not come over this connection.
func (p *Conn) Flush() {
	if len(p.queue) == 0 {
		return
	}
	p.Client.Flush()
	p.Waits.Store(p)
	p.Client.Step.Next()
	_ = p.conn.Write(p.queue) // Ended tells
	p.queue = p.queue[:0]
	if cap(p.queue) > keepBytes {
		p.queue = nil
	}
}

// Wait sends what is queued, and waits until all replies have come whole, or the connection is over; false: the client
// has gone.
func (p *Conn) Wait() (answered bool) {
	p.Flush()
	p.sent = 0
	p.Waits.Store(p)
	defer p.Waits.Store(nil)
	c := p.Client
	answered = p.until(c.Context(), p.unwatched(), p.settled)
	if !answered && !c.End.Over() {
		c.Watch(func(ctx context.Context) { answered = p.Await(ctx) })
	}
	return answered && !c.End.Over()
}

// unwatched is for how long a reply is waited for while nobody watches the client; nil: until it is there.
func (p *Conn) unwatched() <-chan time.Time {
	p.mu.Lock()
	blocks := p.said.pending.blocks()
	p.mu.Unlock()
	switch {
	case !blocks:
		return nil
	case p.late == nil:
		p.late = time.NewTimer(watchedAfter)
	default:
		p.late.Reset(watchedAfter)
	}
	return p.late.C
}

// settled says that no reply is pending, with mu held.
func (p *Conn) settled() bool { return p.said.pending.oldest() == nil }

// WaitFor is Wait, and gives the connection up if that takes longer.
func (p *Conn) WaitFor(most time.Duration) bool {
	defer time.AfterFunc(most, func() { p.Ended(upstream.ErrTimeout) }).Stop()
	return p.Wait()
}

// Await waits until all replies have come whole, or the connection is over, or ctx ends, and says whether they have.
func (p *Conn) Await(ctx context.Context) bool {
	return p.until(ctx, nil, p.settled)
}

// until waits until holds returns true, as Received and Ended may bring about, or ctx ends, or it is late, and returns
// its last answer. holds is called with mu held.
func (p *Conn) until(ctx context.Context, late <-chan time.Time, holds func() bool) bool {
	for over := false; ; {
		p.mu.Lock()
		is := holds()
		p.mu.Unlock()
		if is || over {
			return is
		}
		select {
		case <-p.came:
		case <-ctx.Done():
			over = true
		case <-late:
			over = true
		}
	}
}

// tellCame wakes the client's goroutine if that waits.
func (p *Conn) tellCame() {
	select {
	case p.came <- struct{}{}:
	default:
	}
}

// EndQuiet gives the connection up if its client waits for a reply at that step, and Redis has sent nothing for so long.
// A command that waits has its own time besides. Any goroutine may call it; it does not block.
func (p *Conn) EndQuiet(step uint64, most time.Duration) {
	if !p.mu.TryLock() { // what Redis has sent is at work, perhaps for as long as the client does not read
		return
	}
	defer p.mu.Unlock()
	e := p.said.pending.oldest()
	if e != nil && p.Client.Step.Now() == step && time.Since(p.heard)-e.patience(p.said.state.multi()) >= most {
		p.conn.Fail(upstream.ErrTimeout)
	}
}
