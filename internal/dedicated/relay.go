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

// Received passes on what Redis sent, as it came, and learns from it which replies are pending and what state the
// connection is in. The client gets the bytes unchanged, unless the verdict about a frame drops or replaces it.
func (p *Conn) Received(b []byte) {
	defer p.tellCame()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over { // the session ended while this waited for mu, or nobody asked for these bytes
		p.conn.Close()
		return
	}
	for len(b) > 0 {
		n, ends, err := p.frame.end(b, p.said.expectsHead())
		if err != nil {
			p.Client.End.Cut(downstream.Left, "broken reply from upstream")
			p.end(err)
			return
		}
		p.piece(b[:n], ends)
		b = b[n:]
		if p.awaitGreeted(); p.over {
			return
		}
	}
	p.out.flush()
	if p.said.pending.oldest() == nil {
		p.out.rest()
	}
	p.heard = time.Now()
	p.count()
	p.show()
}

// piece takes the next bytes of a frame. They are held back until it is clear whose they are.
func (p *Conn) piece(b []byte, ends bool) {
	f := &p.frame
	if f.judged {
		if !f.drop {
			p.out.add(b)
		}
		if ends {
			p.take(f.kind, f.begins)
		}
		return
	}
	frame := f.holdBack(b, ends)
	if !ends && len(frame) < classifyAt {
		return
	}
	switch v := p.said.judge(frame); {
	case ends:
		v.deliver(frame, &p.out)
		p.take(v.kind, frame)
	case !v.whole:
		v.deliver(frame, &p.out)
		f.goOn(v)
	}
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

// take ends a frame, of which the beginning may be left.
func (p *Conn) take(kind frameKind, frame []byte) {
	o := p.said.take(kind, frame)
	p.out.add(o.told)
	p.tainted = p.tainted || o.unasked
	if o.answered != nil {
		p.answered(o.answered, frame)
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
	for _, set := range s.settings {
		p.Client.Set(set)
	}
	s.settings = nil
}

// unknownCommand begins Redis' answer to a command that it does not have.
var unknownCommand = []byte("-ERR unknown command")

// answered takes the oldest command off the list, to which this was the last frame.
func (p *Conn) answered(e *Reply, frame []byte) {
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
	if _, hello := e.Effect.(Protocol); hello {
		if frame[0] != '-' {
			p.greeting = make(chan struct{})
		}
	}
}

// awaitGreeted has what comes behind the answer to HELLO, in the other protocol, wait for Greeted.
func (p *Conn) awaitGreeted() {
	greeting := p.greeting
	if greeting == nil {
		return
	}
	p.out.flush()
	p.mu.Unlock()
	p.tellCame()
	<-greeting
	p.mu.Lock()
}

// Greeted says that the client has its reply to the HELLO that was answered here.
func (p *Conn) Greeted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greeted()
}

func (p *Conn) greeted() {
	if p.greeting != nil {
		close(p.greeting)
		p.greeting = nil
	}
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

var _ upstream.Receiver = (*Conn)(nil)
