package dedicated

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// conversation is what has been said on a connection: which replies are pending, and what Redis keeps for it. A frame that comes is judged
// when enough of it is there, and taken at its end. There is no I/O and no lock here: see TestConversation.
type conversation struct {
	state   State
	pending queue
}

// frameKind is what a frame on a dedicated connection is to its client.
type frameKind uint8

const (
	frameReply        frameKind = iota // to the oldest command without one
	frameMessage                       // comes by itself
	frameConfirmation                  // of a subscription
)

// verdict is what becomes of a frame. Unless it says otherwise, the client gets it.
type verdict struct {
	kind    frameKind
	whole   bool    // this is done when all of the frame has come
	drop    bool    // nobody gets it
	into    *[]byte // it goes here
	instead []byte  // the client gets this
}

// expectsHead says that the frame is the head of EXEC's reply, by its first byte.
func (c *conversation) expectsHead(first byte) bool {
	e := c.pending.oldest()
	if first != '*' || e == nil || e.Kind != commandtable.ConnExec || c.state.executing() {
		return false
	}
	return e.Fenced || c.state.multi() // else it is an error, and this a message in RESP2 before it
}

// effect is that of the command whose reply comes next.
func (c *conversation) effect() Effect {
	if c.state.executing() {
		return c.state.transaction.effect()
	}
	if e := c.pending.oldest(); e != nil {
		return e.Effect
	}
	return nil
}

// classify tells what a frame is, by its beginning.
func (c *conversation) classify(frame []byte) frameKind {
	switch frame[0] {
	case '>':
		if firstWords[FirstText(frame)].kind == frameConfirmation {
			return frameConfirmation
		}
		return frameMessage
	case '*':
		if c.state.proto == 2 {
			return c.classifyArray(frame)
		}
	case '+':
		if c.state.monitor && monitorLine(frame) {
			return frameMessage
		}
	}
	return frameReply
}

// classifyArray tells what an array is in RESP2. A reply may look like a message, or a confirmation, but to a subscriber none does that is no
// element of EXEC's: of such ones a confirmation is asked for, and a message is of what the client has subscribed to.
func (c *conversation) classifyArray(frame []byte) frameKind {
	verb := FirstText(frame)
	word := firstWords[verb]
	asks, subscribing := c.effect().(subscribes)
	switch {
	case !subscribing && c.state.subs.total() == 0:
		return frameReply
	case !c.state.executing():
		return word.kind
	case word.kind == frameConfirmation && asks.verb == verb, word.kind == frameMessage && c.state.subs.brings(word.of, frame):
		return word.kind
	}
	return frameReply
}

// judge says what becomes of a frame, by its beginning.
func (c *conversation) judge(frame []byte) verdict {
	v := verdict{kind: c.classify(frame)}
	e := c.pending.oldest()
	switch {
	case v.kind == frameMessage, e == nil:
	case v.kind == frameConfirmation:
		_, subscribing := c.effect().(subscribes)
		v.drop = e.Own && subscribing // the client has had this confirmation long ago
	case c.state.executing():
		v.drop = e.quiet || e.Fenced && c.state.transaction.left > 1
	default:
		v = e.judge(frame)
	}
	v.whole = v.whole || v.kind == frameConfirmation
	return v
}

// judge says what becomes of the reply to e.
func (e *Reply) judge(frame []byte) verdict {
	refuses := frame[0] == '-'
	v := verdict{whole: refuses}
	switch {
	case refuses && e.Refusal != nil:
		v.into = e.Refusal
	case e.Fenced && runs(frame):
		v.drop = true // it is the head of what EXEC has run
	case e.Got != nil:
		v.into, v.whole = e.Got, true
	case e.quiet || e.Own:
		v.drop = true
	case e.Queues && IsRedirect(frame):
		v.instead = queuedReply
	case e.Instead != "":
		v.instead, v.whole = resp.AppendError(nil, e.Instead), true
	}
	return v
}

// take takes a frame at its end, of which the beginning is enough unless the verdict was whole. It returns the command that is answered by
// that, or nil.
func (c *conversation) take(kind frameKind, frame []byte) (answered *Reply) {
	e := c.pending.oldest()
	if e == nil && kind == frameReply {
		return nil
	}
	s := &c.state
	switch within := s.executing(); {
	case kind == frameMessage:
		return nil
	case kind == frameConfirmation:
		confirmation, _ := confirmationIn(frame)
		asks, _ := c.effect().(subscribes)
		if !s.subs.take(confirmation, asks) {
			return nil
		}
		if within {
			s.transaction.next()
		}
	case within:
		s.element(frame)
	default:
		c.reply(e, frame)
	}
	if s.executing() { // there is more of EXEC's reply
		return nil
	}
	return e
}

// reply takes the reply to e, or the head of that if it is EXEC's.
func (c *conversation) reply(e *Reply, frame []byte) {
	if e.Queues && IsRedirect(frame) {
		c.state.transaction.refused = bytes.Clone(frame)
		frame = queuedReply
	}
	if e.Fenced && runs(frame) {
		e.Ran, e.Got = true, nil
	}
	c.state.answered(e, frame)
}

// lost takes that the connection was lost under a client that stays. It returns what the client is told: for each command without a reply
// an error, that line, or OK.
func (c *conversation) lost(line string) (told []byte) {
	s := &c.state
	if s.executing() {
		s.transaction = transaction{}
	}
	for _, e := range c.pending.all {
		if !e.forClient() {
			continue
		}
		switch ok := s.unanswered(e); {
		case e.quiet:
		case ok:
			told = resp.AppendSimple(told, "OK")
		default:
			told = resp.AppendError(told, line)
		}
	}
	s.transaction = transaction{phase: s.transaction.phase}
	if s.tracking.on() && s.proto == 3 {
		told = append(told, ForgetAll...)
	}
	return told
}

// bytes is what is kept for all of it, about.
func (c *conversation) bytes() int { return c.state.bytes() + c.pending.bytes }
