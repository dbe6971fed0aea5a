package session

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// classifyAt is how many bytes of a frame tell what it is.
const classifyAt = 96

// frameKind is what a frame on a dedicated connection is to its client.
type frameKind uint8

const (
	frameReply        frameKind = iota // to the oldest command without one
	frameMessage                       // comes by itself
	frameConfirmation                  // of a subscription
)

// Received passes on what Redis sent, as it came, and learns from it which replies are pending and what state the connection is in.
// Nothing here decides what bytes the client gets, but for replies nobody wants.
func (p *dedicated) Received(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released { // the session ended while this waited, or nobody asked for what comes
		p.conn.Close()
		return
	}
	for len(b) > 0 {
		if b = p.headed(b); len(b) == 0 {
			break
		}
		n, done, err := p.scan.Scan(b)
		if err != nil {
			p.s.guard.Cut(downstream.Left, "broken reply from upstream")
			p.conn.Close()
			p.endLocked(err)
			return
		}
		p.piece(b[:n], done)
		b = b[n:]
	}
	p.write(false)
	p.settleTargets()
	p.replyTimeout.heard = time.Now()
	p.giveBackIfUnused()
	p.show()
	p.changed.Broadcast()
}

// piece takes the next bytes of a frame. They are kept back until it is clear whose they are.
func (p *dedicated) piece(b []byte, done bool) {
	if p.passing {
		p.state.follow(b, false)
		if !p.dropping {
			p.pass(b)
		}
		if done {
			p.finish(nil)
		}
		return
	}
	frame := b
	if len(p.head) > 0 || !done {
		p.head = append(p.head, b...)
		frame = p.head
	}
	if !done && len(frame) < classifyAt {
		return
	}
	p.kind = p.classify(frame)
	if !done && p.needsWhole(frame) {
		return
	}
	if p.subscriptionConn != nil && p.kind == frameConfirmation {
		p.subscriptionConfirmed(frame)
		p.head = p.head[:0]
		return
	}
	if e := p.oldest(); p.kind == frameReply && e != nil && e.kind == commandtable.ConnExec {
		p.state.follow(frame, true)
	}
	p.begin(frame)
	if done {
		p.finish(frame)
	} else {
		p.passing, p.head = true, nil
	}
}

// classify tells what a frame is, by its beginning.
func (p *dedicated) classify(frame []byte) frameKind {
	e := p.oldest()
	switch {
	case frame[0] == '>':
	case frame[0] == '*' && p.state.proto == 2 && (p.state.subscribed() > 0 || e != nil && e.kind == commandtable.ConnSubscribe):
	case frame[0] == '+' && p.state.monitor && monitorLine(frame):
		return frameMessage
	default:
		return frameReply
	}
	verb, confirms := confirmation(frame)
	switch {
	case confirms:
		return frameConfirmation
	case frame[0] == '>' || isMessage(verb):
		return frameMessage
	}
	return frameReply
}

// needsWhole says that the frame must be looked at as a whole.
func (p *dedicated) needsWhole(frame []byte) bool {
	switch p.kind {
	case frameConfirmation:
		return true
	case frameMessage:
		return p.subscriptionConn != nil && !p.knowsWhose(frame)
	}
	e := p.oldest()
	return e != nil && (frame[0] == '-' && (e.refusal != nil || e.queues || e.kind == commandtable.ConnExec) || e.got != nil || e.instead != "")
}

// begin passes on what has come of the frame, unless it is not for the client.
func (p *dedicated) begin(frame []byte) {
	e := p.oldest()
	p.dropping = false
	if p.kind == frameReply && e != nil {
		p.dropping = true
		switch {
		case e.refusal != nil && frame[0] == '-':
			*e.refusal = append(*e.refusal, frame...)
			p.start = append(p.start[:0], frame[:min(len(frame), classifyAt)]...)
			return
		case e.got != nil:
			*e.got = append(*e.got, frame...)
			return
		case e.quiet, e.own:
			p.start = append(p.start[:0], frame[:min(len(frame), classifyAt)]...)
			return
		case e.queues && isRedirect(frame):
			p.out = append(p.out, queuedReply...)
			p.whole = len(p.out)
			return
		case e.instead != "":
			p.out = resp.AppendError(p.out, e.instead)
			p.whole = len(p.out)
			return
		}
		p.dropping = false
	}
	p.start = append(p.start[:0], frame[:min(len(frame), classifyAt)]...)
	if p.making && p.kind == frameConfirmation {
		p.dropping = true // the client was told long ago
		return
	}
	switch { // what comes on a connection for subscriptions may not be for the client
	case p.subscriptionConn == nil:
	case p.kind == frameReply:
		p.dropping = e == nil // to a subscription that was given up
	case p.kind == frameMessage:
		p.dropping = p.isOthers(frame)
	}
	if p.dropping {
		return
	}
	p.pass(frame)
}

// pass hands bytes to the client.
func (p *dedicated) pass(b []byte) {
	p.out = append(p.out, b...)
	if len(p.out) >= flushAt {
		p.write(true)
	}
}

// finish ends a frame: its command is answered. frame is nil when it was passed on in pieces.
func (p *dedicated) finish(frame []byte) {
	if !p.dropping {
		p.whole = len(p.out)
	}
	if frame == nil {
		frame = p.start
	}
	e := p.oldest()
	switch {
	case p.state.stray && p.kind != frameMessage:
		p.state.strayed(frame)
	case p.kind == frameConfirmation:
		if e != nil && e.kind == commandtable.ConnSubscribe && !e.begun {
			e.begun, e.left = true, p.state.confirmationsOf(e)
		}
		verb, _ := confirmation(frame)
		p.state.confirmed(frame)
		if e != nil && e.begun && e.cmd.Name == verb {
			if e.left--; e.left == 0 {
				p.popPending()
			}
		}
	case p.kind == frameReply && e != nil:
		if e.queues && isRedirect(frame) {
			p.slots.redirect = append([]byte(nil), frame...)
			frame = queuedReply
		}
		p.state.answered(e, frame)
		if !p.state.multi && (e.kind == commandtable.ConnExec || e.cmd != nil && e.cmd.Rights) {
			p.s.srv.rightsChanged(p.rights)
			if len(p.pending) == 1 { // else one of those to come may be what changes them
				p.rights = rightsChange{}
			}
		}
		p.popPending()
	}
	p.adopt()
	p.passing, p.dropping, p.head = false, false, p.head[:0]
	if cap(p.head) > keepBytes {
		p.head = nil
	}
}

// adopt has the session, and the proxy, know what the client's commands have set.
func (p *dedicated) adopt() {
	p.s.srv.pauseWrites(p.state.pauses)
	p.state.pauses = 0
	for _, t := range p.state.settings {
		p.s.take(t)
	}
	p.state.settings = nil
}

// write gives the client what there is.
func (p *dedicated) write(within bool) {
	if len(p.out) == 0 && !p.to.Within() {
		return
	}
	p.to.Write(p.out, within || p.passing && !p.dropping)
	p.out, p.whole = p.out[:0], 0
	if cap(p.out) > keepBytes || len(p.pending) == 0 {
		p.out = nil
	}
}

// Ended is the connection's last word.
func (p *dedicated) Ended(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(err)
}

// endLocked ends the client, as Redis would have, when replies to it are pending or has lost more than that, a transaction or its
// subscriptions. One that holds locks gets an error in place of each reply, and stays.
func (p *dedicated) endLocked(err error) {
	if p.released {
		return
	}
	p.leave()
	p.ended = true
	g := p.s.guard
	p.to.GiveUp("upstream lost within a reply")
	p.out, p.passing, p.dropping = p.out[:p.whole], false, false
	lost := &upstream.LostError{Cause: err}
	closes := p.closesClient(lost)
	if !closes {
		p.answerLost(lost)
	}
	for _, e := range p.pending {
		p.doubt = p.doubt || e.cmd == nil && !e.own || e.cmd != nil && !e.cmd.ReadOnly
		e.lost = err
	}
	if p.subscriptionConn != nil {
		p.subscriptionConnEnded()
	}
	p.state.inside = nil
	p.clearPending()
	p.whole = len(p.out)
	p.write(false)
	if closes {
		g.Cut(downstream.Left, upstreamLost(err))
	} else {
		p.startRestore()
	}
	p.show()
	p.changed.Broadcast()
	p.s.srv.learnAgain()
}

var _ upstream.Receiver = (*dedicated)(nil)

var errGone = errors.New("session: client has gone")
