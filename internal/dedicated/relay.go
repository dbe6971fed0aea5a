package dedicated

import (
	"bytes"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// incoming is the frame that is being received. It is held back until it is clear what becomes of it, and passed on, or dropped, piece by
// piece from then on.
type incoming struct {
	scan   resp.Scanner
	begins []byte // what has come of it while it is held back, then its first bytes; empty: it came in one piece
	judged bool
	verdict
}

// none says that nothing of a frame has come.
func (f *incoming) none() bool { return len(f.begins) == 0 }

// end finds the end of the frame in b, or else takes all of b. head: it is the head of EXEC's reply, which is a frame here.
func (f *incoming) end(b []byte, head bool) (n int, ends bool, err error) {
	if !head {
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

// first is its first byte, if b comes next.
func (f *incoming) first(b []byte) byte {
	if f.none() {
		return b[0]
	}
	return f.begins[0]
}

// with is what has come of it and is held back, with b.
func (f *incoming) with(b []byte) []byte {
	if f.none() {
		return b
	}
	f.begins = append(f.begins, b...)
	return f.begins
}

// holdBack keeps what has come of it, which with returned.
func (f *incoming) holdBack(frame []byte) {
	if f.none() {
		f.begins = append(f.begins, frame...)
	}
}

// goOn forgets all but the first bytes: the rest is passed on, or dropped, as it comes.
func (f *incoming) goOn(frame []byte) {
	f.begins, f.judged = bytes.Clone(frame[:min(len(frame), classifyAt)]), true
}

// clear has the next frame begin.
func (f *incoming) clear() {
	f.judged, f.verdict = false, verdict{}
	if f.begins = f.begins[:0]; cap(f.begins) > keepBytes {
		f.begins = nil
	}
}

// Received passes on what Redis sent, as it came, and learns from it which replies are pending and what state the connection is in.
// The client gets the bytes unchanged, unless the verdict about a frame drops or replaces it.
func (p *Conn) Received(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.over() { // the session ended while this waited for mu, or nobody asked for these bytes
		p.conn.Close()
		return
	}
	for len(b) > 0 {
		n, ends, err := p.frame.end(b, p.said.expectsHead(p.frame.first(b)))
		if err != nil {
			p.Client.End.Cut(downstream.Left, "broken reply from upstream")
			p.conn.Close()
			p.end(err)
			return
		}
		p.piece(b[:n], ends)
		b = b[n:]
		if p.awaitGreeted(); p.life.over() {
			return
		}
	}
	p.out.flush()
	p.silence.heard = time.Now()
	p.idle()
	p.count()
	p.show()
	p.changed.Broadcast()
}

// piece takes the next bytes of a frame. They are held back until it is clear whose they are.
func (p *Conn) piece(b []byte, ends bool) {
	f := &p.frame
	if !f.judged {
		frame := f.with(b)
		if !ends && len(frame) < classifyAt {
			f.holdBack(frame)
			return
		}
		f.verdict = p.judge(frame)
		if !ends && f.whole {
			f.holdBack(frame)
			return
		}
		p.deliver(f.verdict, frame)
		if ends {
			p.take(f.kind, frame)
		} else {
			f.goOn(frame)
		}
		return
	}
	if !f.drop {
		p.out.add(b)
	}
	if ends {
		p.take(f.kind, f.begins)
	}
}

// judge says what becomes of a frame. On a connection for subscriptions not all is for the client, and the interceptor tells it of
// confirmations.
func (p *Conn) judge(frame []byte) verdict {
	v := p.said.judge(frame)
	if p.interceptor == nil {
		return v
	}
	switch v.kind {
	case frameMessage:
		others, known := p.interceptor.Others(frame)
		v.drop, v.whole = others, !known
	case frameConfirmation:
		v.drop = true
	case frameReply:
		v.drop = v.drop || p.said.pending.oldest() == nil // a reply to a subscription that was given up
	}
	return v
}

// deliver hands on what has come of a frame.
func (p *Conn) deliver(v verdict, frame []byte) {
	switch {
	case v.into != nil:
		*v.into = append(*v.into, frame...)
	case v.instead != nil:
		p.out.add(v.instead)
	case !v.drop:
		p.out.add(frame)
	}
}

// take ends a frame, of which the beginning may be left.
func (p *Conn) take(kind frameKind, frame []byte) {
	switch {
	case p.interceptor != nil && kind == frameConfirmation:
		p.confirmed(frame)
	case p.interceptor == nil && kind == frameReply && p.said.pending.oldest() == nil:
		p.tainted = true // nobody asked for it: what Redis keeps for this connection is not known any more
	default:
		if e := p.said.take(kind, frame); e != nil {
			p.answered(e, frame)
		}
	}
	p.tell()
	if !p.said.state.executing() {
		p.out.end()
	}
	p.frame.clear()
}

// tell tells the client's session what its commands have set.
func (p *Conn) tell() {
	s := &p.said.state
	if s.pauses > 0 {
		p.Client.Process.Writes.Pause(s.pauses)
	}
	for _, set := range s.settings {
		p.Client.Set(set)
	}
	s.pauses, s.settings = 0, nil
}

// confirmed takes a confirmation on a connection for subscriptions.
func (p *Conn) confirmed(frame []byte) {
	c, ok := confirmationIn(frame)
	if !ok {
		return
	}
	p.said.state.subs.take(c, subscribes{})
	e := p.said.pending.oldest()
	told, asked := p.interceptor.Confirmed(c, e, p.said.state.proto)
	p.out.add(told)
	if !asked {
		return
	}
	if e.Names = e.Names[1:]; len(e.Names) == 0 {
		p.answered(e, frame)
	}
}

// unknownCommand begins Redis' answer to a command that it does not have.
var unknownCommand = []byte("-ERR unknown command")

// answered takes the oldest command off the list, to which this was the last frame.
func (p *Conn) answered(e *Reply, frame []byte) {
	took := p.said.pending.pop(telemetry.Clock())
	if e.call != "" && (!e.Wait.Blocks || p.said.state.multi()) { // nobody knows how long another one has waited
		p.Client.Timed(e.Cmd, e.call, took)
	}
	if e.Wait.Shuts {
		p.Client.Process.Writes.Shutting(-1)
	}
	if e.changesRights() && !p.said.state.multi() {
		p.Host.RightsChanged(p.said.pending.oldest() == nil) // if others are pending, one of them may be to what changes the rights
	}
	if e.Cmd == commandtable.Unlisted && !bytes.HasPrefix(frame, unknownCommand) {
		p.tainted = true // nobody knows what it has done to the connection
	}
	if _, hello := e.Effect.(Protocol); hello {
		p.greeting = frame[0] != '-'
	}
}

// awaitGreeted has what comes behind the answer to HELLO, in the other protocol, wait for Greeted.
func (p *Conn) awaitGreeted() {
	if !p.greeting {
		return
	}
	p.out.flush()
	p.changed.Broadcast()
	for p.greeting && !p.life.over() {
		p.changed.Wait()
	}
}

// Greeted says that the client has its reply to the HELLO that was answered here.
func (p *Conn) Greeted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greeting = false
	p.changed.Broadcast()
}

// count tells the budget how many bytes are kept, with what has come of a frame and cannot be passed on yet. leave gives them back.
func (p *Conn) count() {
	if !p.life.over() {
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

var _ upstream.Receiver = (*Conn)(nil)
