package dedicated

import (
	"bytes"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// frameKind is what a frame on a dedicated connection is to its client.
type frameKind uint8

const (
	frameReply        frameKind = iota // to the oldest command without one
	frameMessage                       // comes by itself
	frameConfirmation                  // of a subscription
)

// frame is the frame that is being received.
type frame struct {
	scan     resp.Scanner
	head     []byte // what has come of it, while it is kept back
	start    []byte // its first bytes
	kind     frameKind
	passing  bool // it is passed on, or dropped, piece by piece
	dropping bool // it is not for the client
}

// output is what the client is to get.
type output struct {
	bytes []byte // not written yet
	whole int    // how many of these bytes end with a whole frame
	to    downstream.Passage
}

// add adds whole frames.
func (o *output) add(frames []byte) {
	o.bytes = append(o.bytes, frames...)
	o.whole = len(o.bytes)
}

// cut forgets the frame that is not whole.
func (o *output) cut() { o.bytes = o.bytes[:o.whole] }

// Received passes on what Redis sent, as it came, and learns from it which replies are pending and what state the connection is in.
// The client gets the bytes unchanged, unless begin drops or replaces a reply.
func (p *Conn) Received(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.released { // the session ended while this waited for mu, or nobody asked for these bytes
		p.conn.Close()
		return
	}
	for len(b) > 0 {
		if b = p.headed(b); len(b) == 0 {
			break
		}
		n, done, err := p.frame.scan.Scan(b)
		if err != nil {
			p.Client.End.Cut(downstream.Left, "broken reply from upstream")
			p.conn.Close()
			p.endLocked(err)
			return
		}
		p.piece(b[:n], done)
		b = b[n:]
		if p.awaitGreeted(); p.life.released {
			return
		}
	}
	p.write(false)
	p.idle()
	p.replyTimeout.quietSince = time.Now()
	p.giveBackIfUnused()
	p.show()
	p.changed.Broadcast()
}

// awaitGreeted has what comes behind the answer to HELLO, in the other protocol, wait for Greeted.
func (p *Conn) awaitGreeted() {
	if !p.life.greeting {
		return
	}
	p.write(false)
	p.changed.Broadcast()
	for p.life.greeting && !p.life.released {
		p.changed.Wait()
	}
}

// Greeted says that the client has its reply to the HELLO that was answered here.
func (p *Conn) Greeted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life.greeting = false
	p.changed.Broadcast()
}

// piece takes the next bytes of a frame. They are kept back until it is clear whose they are.
func (p *Conn) piece(b []byte, done bool) {
	if p.frame.passing {
		p.state.follow(b, false)
		p.count()
		if !p.frame.dropping {
			p.pass(b)
		}
		if done {
			p.finish(nil)
		}
		return
	}
	frame := b
	if len(p.frame.head) > 0 || !done {
		p.frame.head = append(p.frame.head, b...)
		frame = p.frame.head
		p.count()
	}
	if !done && len(frame) < classifyAt {
		return
	}
	p.frame.kind = p.classify(frame)
	if !done && p.needsWhole(frame) {
		return
	}
	if p.interceptor != nil && p.frame.kind == frameConfirmation {
		p.intercept(frame)
		p.dropHead()
		return
	}
	if e := p.oldest(); p.frame.kind == frameReply && e != nil && e.Kind == commandtable.ConnExec {
		p.state.follow(frame, true)
	}
	p.begin(frame)
	if done {
		p.finish(frame)
	} else {
		p.frame.passing, p.frame.head = true, nil
	}
}

// classify tells what a frame is, by its beginning.
func (p *Conn) classify(frame []byte) frameKind {
	e := p.oldest()
	switch {
	case frame[0] == '>':
	case frame[0] == '*' && p.state.proto == 2 && (p.state.subscribed() > 0 || e != nil && e.Kind == commandtable.ConnSubscribe):
	case frame[0] == '+' && p.state.monitor && monitorLine(frame):
		return frameMessage
	default:
		return frameReply
	}
	verb, confirms := confirmation(frame)
	switch {
	case confirms:
		return frameConfirmation
	case frame[0] == '>' || isMessage(verb) && (!p.state.stray || p.state.message(frame)):
		return frameMessage
	}
	return frameReply
}

// needsWhole says that the frame must be complete before it is handled.
func (p *Conn) needsWhole(frame []byte) bool {
	switch p.frame.kind {
	case frameConfirmation:
		return true
	case frameMessage:
		if p.interceptor == nil {
			return false
		}
		_, known := p.interceptor.Others(frame)
		return !known
	}
	e := p.oldest()
	return e != nil && (frame[0] == '-' && (e.Refusal != nil || e.Queues || e.Kind == commandtable.ConnExec) || e.Got != nil || e.Instead != "")
}

// begin passes on what has come of the frame, or puts it where the pending reply wants it if it is not for the client.
func (p *Conn) begin(frame []byte) {
	e := p.oldest()
	p.frame.start = append(p.frame.start[:0], frame[:min(len(frame), classifyAt)]...)
	p.frame.dropping = false
	if p.frame.kind == frameReply && e != nil {
		p.frame.dropping = true
		switch {
		case e.Refusal != nil && frame[0] == '-':
			*e.Refusal = append(*e.Refusal, frame...)
			return
		case e.Got != nil:
			*e.Got = append(*e.Got, frame...)
			return
		case e.call.quiet, e.Own:
			return
		case e.Queues && IsRedirect(frame):
			p.out.add(queuedReply)
			return
		case e.Instead != "":
			p.out.bytes = resp.AppendError(p.out.bytes, e.Instead)
			p.out.whole = len(p.out.bytes)
			return
		}
		p.frame.dropping = false
	}
	if p.life.making && p.frame.kind == frameConfirmation {
		p.frame.dropping = true // the client has had this confirmation long ago
		return
	}
	switch { // what comes on a connection for subscriptions may not be for the client
	case p.interceptor == nil:
	case p.frame.kind == frameReply:
		p.frame.dropping = e == nil // a reply to a subscription that was given up
	case p.frame.kind == frameMessage:
		p.frame.dropping, _ = p.interceptor.Others(frame)
	}
	if p.frame.dropping {
		return
	}
	p.pass(frame)
}

// pass hands bytes to the client. Many at once are not copied first.
func (p *Conn) pass(b []byte) {
	if len(b) >= flushAt {
		if len(p.out.bytes) > 0 {
			p.write(true)
		}
		p.out.to.Write(b, true)
		return
	}
	p.out.bytes = append(p.out.bytes, b...)
	if len(p.out.bytes) >= flushAt {
		p.write(true)
	}
}

// finish ends a frame: its command is answered. frame is nil when it was passed on in pieces.
func (p *Conn) finish(frame []byte) {
	if !p.frame.dropping {
		p.out.whole = len(p.out.bytes)
	}
	if frame == nil {
		frame = p.frame.start
	}
	e := p.oldest()
	switch {
	case p.state.stray && p.frame.kind != frameMessage:
		p.state.strayed(frame)
	case p.frame.kind == frameConfirmation:
		if e != nil && e.Kind == commandtable.ConnSubscribe && !e.subs.begun {
			e.subs = confirmations{true, p.state.confirmationsOf(e)}
		}
		verb, _ := confirmation(frame)
		p.state.confirmed(frame)
		if e != nil && e.subs.begun && e.Cmd.Name == verb {
			p.confirmed(e)
		}
	case p.frame.kind == frameReply && e != nil:
		if e.Queues && IsRedirect(frame) {
			p.state.refused = append([]byte(nil), frame...)
			frame = queuedReply
		}
		p.state.answered(e, frame)
		p.life.greeting = e.Effect.Proto != 0 && frame[0] != '-'
		if !p.state.multi && (e.Kind == commandtable.ConnExec || e.Cmd != nil && e.Cmd.Rights) {
			p.Host.RightsChanged(len(p.pending.all) == 1) // if others are pending, one of them may be to what changes the rights
		}
		if e.Cmd == commandtable.Unlisted && !bytes.HasPrefix(frame, unknownCommand) {
			p.life.tainted = true // nobody knows what it has done to the connection
		}
		p.popPending()
	case p.frame.kind == frameReply && p.interceptor == nil:
		p.life.tainted = true // nobody asked for it: what Redis keeps for this connection is not known any more
	}
	if p.state.pauses != 0 || p.state.settings != nil {
		p.Client.Process.Writes.Pause(p.state.pauses)
		for _, t := range p.state.settings {
			p.Client.Set(t)
		}
		p.state.pauses, p.state.settings = 0, nil
	}
	p.frame.passing, p.frame.dropping = false, false
	p.dropHead()
}

// unknownCommand begins Redis' answer to a command that it does not have.
var unknownCommand = []byte("-ERR unknown command")

// dropHead forgets what was kept back of the frame.
func (p *Conn) dropHead() {
	p.frame.head = p.frame.head[:0]
	if cap(p.frame.head) > keepBytes {
		p.frame.head = nil
		p.count()
	}
}

// intercept takes a confirmation on a connection for subscriptions.
func (p *Conn) intercept(frame []byte) {
	p.state.confirmed(frame)
	e := p.oldest()
	told, asked := p.interceptor.Confirmed(frame, e, p.state.proto, p.out.bytes)
	p.out.bytes, p.out.whole = told, len(told)
	if asked {
		if e.Names = e.Names[1:]; len(e.Names) == 0 {
			p.popPending()
		}
	}
}

// idle tells the host where invalidations go, once no command is under way, about to be sent or queued that may change that.
func (p *Conn) idle() {
	if !p.life.held && !p.life.released && !p.state.multi && len(p.pending.all) == 0 {
		p.Host.Idle(p.redirected())
	}
}

// redirected returns the client that invalidations go to; 0: none.
func (p *Conn) redirected() int64 {
	if !p.state.tracking.on {
		return 0
	}
	return p.state.tracking.redirect.Client
}

// headed removes the head of EXEC's reply from b if FENCED sent that EXEC, and the command was run: what follows is the
// command's own reply, as if there had been no transaction. Any other reply of EXEC's is left as it is. mu is held.
func (p *Conn) headed(b []byte) (rest []byte) {
	e, f := p.oldest(), &p.frame
	if e == nil || e.Exec.Head == "" || e.Exec.Ran || f.passing || len(f.head) > 0 && !strings.HasPrefix(e.Exec.Head, string(f.head)) {
		return b
	}
	head, had := e.Exec.Head, len(f.head)
	n := min(len(b), len(head)-had)
	if !bytes.Equal(b[:n], []byte(head[had:had+n])) {
		return b
	}
	if had+n < len(head) {
		return b // it is kept back as any beginning of a frame
	}
	e.Exec.Ran, e.Got = true, nil
	f.scan, f.head = resp.Scanner{}, f.head[:0]
	return b[n:]
}

// write writes what has been gathered to the client; within: that ends in the middle of a frame.
func (p *Conn) write(within bool) {
	if len(p.out.bytes) == 0 && !p.out.to.Within() {
		return
	}
	p.out.to.Write(p.out.bytes, within || p.frame.passing && !p.frame.dropping)
	p.out.bytes, p.out.whole = p.out.bytes[:0], 0
	if big := cap(p.out.bytes) > keepBytes; big || len(p.pending.all) == 0 {
		if p.out.bytes = nil; big {
			p.count()
		}
	}
}

var _ upstream.Receiver = (*Conn)(nil)
