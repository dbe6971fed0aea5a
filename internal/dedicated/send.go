package dedicated

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// watchedAfter is how long a command that may wait has waited before its client is watched: most get what they wait
// for soon, and to watch costs more than that.
const watchedAfter = 20 * time.Millisecond

// promptBytes is how much an empty socket takes without waiting, whatever Redis does.
const promptBytes = 4 << 10

// Send queues a command, whose reply goes where e says. false: the connection has ended, and those that were pending
// have been answered.
func (p *Conn) Send(e *Reply, raw []byte) bool {
	p.halt()
	e.quiet = p.Client.Replies.Silent
	if e.Cmd != nil && e.forClient() && e.Instead == "" {
		e.sent = telemetry.Clock()
	}
	if p.over {
		e.Lost = ErrGone
		return false
	}
	p.said.state.sent(e)
	p.said.pending.add(e)
	p.count()
	if e.Wait.Blocks {
		p.show()
	}
	p.queue = append(p.queue, raw...)
	if len(p.said.pending.all) >= mostPending || len(p.queue) >= flushAt {
		p.Wait()
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
	switch {
	case e.Lost != nil:
		return nil, &upstream.NotSentError{Cause: e.Lost}
	case len(*e.Got) == 0:
		return nil, &upstream.NotSentError{Cause: ErrGone}
	}
	return *e.Got, nil
}

// Ask sends a command and waits for its reply. No other reply may be pending. If Redis has not answered within that
// time, the connection is lost.
func (p *Conn) Ask(e *Reply, within time.Duration, args ...string) ([]byte, error) {
	e.Got = new([]byte)
	p.Send(e, resp.AppendCommand(nil, args...))
	if !p.WaitFor(within) {
		return nil, &upstream.NotSentError{Cause: ErrGone}
	}
	return p.Answer(e)
}

// Hello has the connection speak another protocol. What comes behind the answer waits until the client has its reply.
func (p *Conn) Hello(proto int, within time.Duration) error {
	return p.Change(&Reply{Effect: Protocol(proto)}, within, "HELLO", strconv.Itoa(proto))
}

// Change asks what makes the connection another user's, or another protocol's.
func (p *Conn) Change(e *Reply, within time.Duration, words ...string) error {
	p.Taint()
	reply, err := p.Ask(e, within, words...)
	if err == nil {
		err = upstream.ErrorIn(reply)
	}
	return err
}

// Flush sends what is queued, after the replies that did not come over this connection.
func (p *Conn) Flush() {
	p.halt()
	p.Client.Flush()
	if len(p.queue) == 0 {
		return
	}
	p.Client.Step.Next()
	if !p.said.pending.blocks() || len(p.queue) > promptBytes {
		p.interruptible()
	}
	if p.Timeout > 0 {
		p.conn.SetWriteDeadline(time.Now().Add(p.Timeout))
		if p.Client.End.Over() { // which may have interrupted it before
			p.conn.Interrupt()
		}
	}
	if err := p.conn.Write(p.queue); err == upstream.ErrInterrupted { // of other errors the next read tells
		p.end(upstream.ErrTimeout)
	}
	p.queue = p.queue[:0]
	if cap(p.queue) > keepBytes {
		p.queue = nil
	}
}

// interruptible has the client's end interrupt what is read and written from now on. A command that may wait does not
// need it, and it would cost a fiftieth of that command's CPU: a few bytes are written at once, the first read ends after
// watchedAfter, and the client's end interrupts the second one in any case.
func (p *Conn) interruptible() {
	if p.stop == nil {
		p.stop = context.AfterFunc(p.Client.Context(), p.conn.Interrupt)
	}
}

// Wait sends what is queued, and reads until all replies have come whole, or the connection is over; false: the client
// has gone.
func (p *Conn) Wait() (answered bool) { return p.wait(time.Time{}) }

// WaitFor is Wait, and gives the connection up if that takes longer.
func (p *Conn) WaitFor(most time.Duration) bool {
	answered := p.wait(time.Now().Add(most))
	if !p.settled() && !p.Client.End.Over() {
		p.end(upstream.ErrTimeout)
		return true
	}
	return answered
}

// WaitWell is Wait for commands that do not wait in Redis, for as long as the connection's node is well, or no other one
// is. The error says that this has ended, or the client has gone.
func (p *Conn) WaitWell(nodes *cluster.Snapshot) error {
	ctx, done := nodes.While(p.Client.Context(), p.Node)
	defer done()
	p.Flush()
	p.readDuring(ctx, time.Time{})
	if !p.settled() || p.Client.End.Over() {
		return cmp.Or(context.Cause(ctx), ErrGone)
	}
	return nil
}

// Await is Wait for a client that has gone, at most for so long, and says whether all replies have come.
func (p *Conn) Await(most time.Duration) bool {
	p.Flush()
	p.read(context.Background(), time.Now().Add(most))
	return p.settled()
}

// wait is Wait, at most until then; zero: for as long as it takes.
func (p *Conn) wait(until time.Time) (answered bool) {
	p.Flush()
	c := p.Client
	unwatched := until
	if p.said.pending.blocks() {
		unwatched = time.Now().Add(watchedAfter)
	}
	p.read(c.Context(), unwatched)
	if unwatched != until && !p.settled() && !c.End.Over() {
		c.Watch(func(ctx context.Context) { p.readDuring(ctx, until) })
	}
	return p.settled() && !c.End.Over()
}

// readDuring is read, which the end of ctx interrupts.
func (p *Conn) readDuring(ctx context.Context, until time.Time) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		p.conn.Interrupt()
		close(interrupted)
	})
	p.read(ctx, until)
	if !stop() {
		<-interrupted
		p.conn.SetWriteDeadline(time.Time{})
	}
}
