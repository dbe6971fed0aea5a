package dedicated

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// incoming is the frame that is being received. It is held back until it is clear what becomes of it, and passed on, or
// dropped, piece by piece from then on.
type incoming struct {
	scan   resp.Scanner
	head   bool   // it is the head of EXEC's reply, which is a frame here
	begins []byte // what has come of it while it is held back, then its first bytes; empty: it came in one piece
	judged bool
	kind   frameKind // once it is judged
	drop   bool
}

// none says that nothing of a frame has come.
func (f *incoming) none() bool { return len(f.begins) == 0 }

// end finds the end of the frame in b, or else takes all of b. execs: EXEC's reply comes next.
func (f *incoming) end(b []byte, execs bool) (n int, ends bool, err error) {
	if f.none() {
		f.head = execs && b[0] == '*'
	}
	if !f.head {
		return f.scan.Scan(b)
	}
	if n = bytes.IndexByte(b, '\n'); n >= 0 {
		return n + 1, true, nil
	}
	if len(f.begins)+len(b) > classifyAt {
		return 0, false, resp.ErrFrameLength
	}
	return len(b), false, nil
}

// holdBack returns all that has come of it, with b.
func (f *incoming) holdBack(b []byte, ends bool) []byte {
	if ends && f.none() {
		return b
	}
	f.begins = append(f.begins, b...)
	return f.begins
}

// goOn forgets all but the first bytes: the rest is passed on, or dropped, as it comes.
func (f *incoming) goOn(v verdict) {
	f.begins = bytes.Clone(f.begins[:classifyAt])
	f.judged, f.kind, f.drop = true, v.kind, v.drop
}

// clear has the next frame begin.
func (f *incoming) clear() {
	f.judged = false
	if f.begins = f.begins[:0]; cap(f.begins) > keepBytes {
		f.begins = nil
	}
}

// Most reads wait for long for a little, so a buffer is small, and a big one follows a read that has filled it.
var (
	smallBuffers = sync.Pool{New: func() any { return new([1 << 10]byte) }}
	bigBuffers   = sync.Pool{New: func() any { return new([64 << 10]byte) }}
)

// settled says that no reply is pending, and the client has no part of a message whose rest has yet to come.
func (p *Conn) settled() bool { return p.said.pending.oldest() == nil && !p.out.part }

// read reads until all has settled, or the connection is over, or ctx or the time ends; zero: there is none. Whatever
// ends ctx is to interrupt it.
func (p *Conn) read(ctx context.Context, until time.Time) {
	p.received(p.left)
	if p.settled() {
		return
	}
	p.readOn(until, func() bool { return p.settled() || ctx.Err() != nil })
}

// readOn reads until done, the time, or the end of the connection. A read that is interrupted is begun again, unless
// that has made it done.
func (p *Conn) readOn(until time.Time, done func() bool) {
	small := smallBuffers.Get().(*[1 << 10]byte)
	defer smallBuffers.Put(small)
	b := small[:]
	for !p.over {
		due := p.due(until)
		p.conn.SetReadDeadline(due)
		if done() { // behind the deadline, which may have undone an interruption
			return
		}
		n, err := p.conn.Read(b)
		p.received(b[:n])
		if len(b) > len(small) {
			bigBuffers.Put((*[64 << 10]byte)(b))
			b = small[:]
		}
		if n >= len(small) {
			b = bigBuffers.Get().(*[64 << 10]byte)[:]
		}
		switch {
		case err == nil:
		case err != upstream.ErrInterrupted:
			p.end(err)
		case due.IsZero() || time.Now().Before(due):
		case due.Equal(until):
			return
		default:
			p.end(upstream.ErrTimeout)
		}
	}
}

// due is when the next read ends: then, or before if Redis is waited for. Zero: it does not.
func (p *Conn) due(until time.Time) time.Time {
	if p.Timeout <= 0 || p.settled() {
		return until
	}
	due := time.Now().Add(p.Timeout)
	if e := p.said.pending.oldest(); e != nil {
		due = due.Add(e.patience(p.said.state.multi()))
	}
	if until.IsZero() || due.Before(until) {
		return due
	}
	return until
}

// Listen has a goroutine of its own pass on what comes by itself, if anything may, until the client's goroutine uses the
// connection again. No reply is pending.
func (p *Conn) Listen() {
	if p.relay != nil || !p.hears() {
		return
	}
	p.Client.Flush()
	p.interruptible()
	p.relay = make(chan struct{})
	go p.listen()
}

// hears says that messages come by the connection: its client's own, or invalidations that other clients have redirected
// to it.
func (p *Conn) hears() bool { return p.said.state.hears() || p.View.Targets.Load() > 0 }

// listen is the goroutine of Listen. It leaves no part of a message to a client that stays.
func (p *Conn) listen() {
	defer close(p.relay)
	p.readOn(time.Time{}, func() bool {
		return p.halted.Load() && !p.out.part || p.Client.End.Over()
	})
}

// Look notes the end of a connection from which nobody reads, since nothing is to come there.
func (p *Conn) Look() {
	if p.relay == nil {
		p.readOn(time.Time{}, p.conn.Silent)
	}
}

// halt ends Listen.
func (p *Conn) halt() {
	if p.relay == nil {
		return
	}
	p.halted.Store(true)
	p.conn.Interrupt()
	<-p.relay
	p.halted.Store(false)
	p.relay = nil
	p.conn.SetWriteDeadline(time.Time{})
}

// received passes on what Redis sent, as it came, and learns from it which replies are pending and what state the
// connection is in. The client gets the bytes unchanged, unless the verdict about a frame drops or replaces it. What
// came behind the answer to HELLO, in the other protocol, is left until the client has its reply to that.
func (p *Conn) received(b []byte) {
	p.left = nil
	if len(b) == 0 {
		return
	}
	for greeted := false; len(b) > 0 && !greeted; {
		n, ends, err := p.frame.end(b, p.said.expectsHead())
		if err != nil {
			p.Client.End.Cut(downstream.Left, "broken reply from upstream")
			p.end(err)
			return
		}
		greeted = p.piece(b[:n], ends)
		b = b[n:]
	}
	p.left = bytes.Clone(b)
	p.out.flush()
	if p.said.pending.oldest() == nil {
		p.out.rest()
	}
	p.count()
	p.show()
}

// piece takes the next bytes of a frame. They are held back until it is clear whose they are. greeted: they end the
// answer to HELLO.
func (p *Conn) piece(b []byte, ends bool) (greeted bool) {
	f := &p.frame
	if f.judged {
		if !f.drop {
			p.out.add(b)
		}
		return ends && p.take(f.kind, f.begins)
	}
	frame := f.holdBack(b, ends)
	if !ends && len(frame) < classifyAt {
		return false
	}
	switch v := p.said.judge(frame); {
	case ends:
		v.deliver(frame, &p.out)
		return p.take(v.kind, frame)
	case !v.whole:
		v.deliver(frame, &p.out)
		f.goOn(v)
	}
	return false
}

// deliver hands on what has come of a frame.
func (v *verdict) deliver(frame []byte, out *output) {
	switch {
	case v.into != nil:
		*v.into = append(*v.into, frame...)
	case v.instead != nil:
		out.add(v.instead)
	case !v.drop:
		out.add(frame)
	}
}

// take ends a frame, of which the beginning may be left. greeted: it is the answer to HELLO.
func (p *Conn) take(kind frameKind, frame []byte) (greeted bool) {
	o := p.said.take(kind, frame)
	p.out.add(o.told)
	p.tainted = p.tainted || o.unasked
	if o.answered != nil {
		greeted = p.answered(o.answered, frame)
	}
	p.tell()
	if !p.said.state.executing() {
		p.out.end()
	}
	p.frame.clear()
	return greeted
}

// tell tells the client's session what its commands have set.
func (p *Conn) tell() {
	s := &p.said.state
	for _, set := range s.settings {
		p.Client.Set(set)
	}
	s.settings = nil
}

// unknownCommand begins Redis' answer to a command that it does not have.
var unknownCommand = []byte("-ERR unknown command")

// answered takes the oldest command off the list, to which this was the last frame. greeted: it is a HELLO that has
// changed the protocol.
func (p *Conn) answered(e *Reply, frame []byte) (greeted bool) {
	took := p.said.pending.pop(telemetry.Clock())
	if e.sent > 0 && !e.waits(p.said.state.multi()) { // else nobody knows whether it did
		e.Cmd.Family.Upstream(took)
	}
	if e.changesRights() && !p.said.state.multi() {
		// If others are pending, one of them may be to what changes the rights.
		p.RightsChanged(p.said.pending.oldest() == nil)
	}
	if e.Cmd == commandtable.Unlisted && !bytes.HasPrefix(frame, unknownCommand) {
		p.tainted = true // nobody knows what it has done to the connection
	}
	_, hello := e.Effect.(Protocol)
	return hello && frame[0] != '-'
}

// count tells the budget how many bytes are kept, with what has come of a frame and cannot be passed on yet. leave
// gives them back.
func (p *Conn) count() {
	if !p.over {
		p.kept.Set(p.said.bytes() + beyond(p.frame.begins) + beyond(p.out.bytes))
	}
}

// beyond is how much a buffer takes if that is more than each connection may keep.
func beyond(b []byte) int {
	if cap(b) <= keepBytes {
		return 0
	}
	return cap(b)
}
