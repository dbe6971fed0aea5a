package dedicated

import (
	"regexp"
	"strings"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// conversation is what has been said on a connection: which replies are pending, and what Redis keeps for it. A frame
// that comes is judged when enough of it is there, and taken at its end. There is no I/O and no lock here: see
// TestConversation.
type conversation struct {
	state       State
	pending     queue
	interceptor Interceptor // nil unless the connection is for subscriptions only
}

// frameKind is what a frame on a dedicated connection is to its client.
type frameKind uint8

const (
	frameReply        frameKind = iota // to the oldest command without one, or to one of EXEC's commands
	frameHead                          // of the reply of an EXEC that has run something
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

// expectsHead says that EXEC's reply comes next, unless it is an error: an array is its head then.
func (c *conversation) expectsHead() bool {
	e := c.pending.oldest()
	if e == nil || e.Kind != commandtable.ConnExec {
		return false
	}
	switch c.state.transaction.phase {
	case queueing, aborted:
		return true
	case executing:
		return false
	}
	return e.Fenced
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
		if c.state.monitor && monitorLine.Match(frame) {
			return frameMessage
		}
	}
	return frameReply
}

// classifyArray tells what an array is in RESP2. A reply may look like a message, or a confirmation, but to a
// subscriber none does that is no element of EXEC's: of such ones a confirmation is asked for, and a message is of what
// the client has subscribed to.
func (c *conversation) classifyArray(frame []byte) frameKind {
	asks, subscribing := c.effect().(subscribes)
	executing := c.state.executing()
	if !executing && !subscribing && c.state.subs.total() == 0 {
		return frameReply
	}
	verb := FirstText(frame)
	word := firstWords[verb]
	if !executing {
		return word.kind
	}
	switch word.kind {
	case frameConfirmation:
		if asks.verb == verb {
			return frameConfirmation
		}
	case frameMessage:
		if c.state.subs.brings(word.of, frame) {
			return frameMessage
		}
	}
	return frameReply
}

// judge says what becomes of a frame, by its beginning.
func (c *conversation) judge(frame []byte) verdict {
	kind, e := c.classify(frame), c.pending.oldest()
	switch {
	case c.interceptor != nil && kind != frameReply:
		return c.intercept(kind, frame)
	case kind == frameMessage:
		return verdict{kind: kind}
	case kind == frameConfirmation:
		return verdict{kind: kind, whole: true}
	case e == nil:
		return verdict{}
	case c.state.executing():
		return verdict{drop: e.quiet || e.Fenced && c.state.transaction.left > 1}
	}
	return e.judge(frame)
}

// intercept is judge on a connection for subscriptions: a message may come by another one as well, and of confirmations
// the interceptor tells.
func (c *conversation) intercept(kind frameKind, frame []byte) verdict {
	if kind == frameConfirmation {
		return verdict{kind: kind, whole: true, drop: true}
	}
	others, known := c.interceptor.Others(frame)
	return verdict{kind: kind, whole: !known, drop: others}
}

// judge says what becomes of the reply to e.
func (e *Reply) judge(frame []byte) verdict {
	refuses := frame[0] == '-'
	v := verdict{whole: refuses}
	switch {
	case e.Kind == commandtable.ConnExec && elements(frame) > 0:
		v.kind, v.drop = frameHead, e.quiet || e.Fenced
	case refuses && e.Refusal != nil:
		v.into = e.Refusal
	case e.Got != nil:
		v.into, v.whole = e.Got, true
	case e.quiet, e.Own:
		v.drop = true
	case e.InMulti && cluster.Redirects(frame):
		v.instead = resp.AppendError(nil, e.redirected())
	case e.Instead != "":
		v.instead, v.whole = resp.AppendError(nil, e.Instead), true
	}
	return v
}

// redirected is what the client is told where a node has sent its transaction to another one.
func (e *Reply) redirected() string {
	if e.Kind == commandtable.ConnExec {
		return commandtable.ExecAborted("its slot has moved to another node")
	}
	return "ERR the slot of this transaction has moved to another node: EXEC will abort it"
}

// outcome is what comes of a frame that was taken.
type outcome struct {
	answered *Reply // the command that has all of its reply now; nil: there is none
	told     []byte // this the client gets
	unasked  bool   // nobody has asked for it: what Redis keeps for this connection is not known any more
}

// take takes a frame at its end, of which the beginning is enough unless the verdict was whole.
func (c *conversation) take(kind frameKind, frame []byte) outcome {
	e, s := c.pending.oldest(), &c.state
	switch {
	case kind == frameMessage:
		return outcome{}
	case kind == frameConfirmation:
		return c.confirmed(frame)
	case e == nil:
		return outcome{unasked: true}
	case kind == frameHead:
		s.execute(elements(frame))
		if e.Fenced {
			e.Ran, e.Got = true, nil
		}
	case s.executing():
		s.element(frame)
	default:
		s.answered(e, frame)
	}
	return c.answered()
}

// answered is the outcome when the oldest command has its reply, unless that is EXEC's and there is more.
func (c *conversation) answered() outcome {
	if c.state.executing() {
		return outcome{}
	}
	return outcome{answered: c.pending.oldest()}
}

// confirmed takes a confirmation. The last one of a command answers that.
func (c *conversation) confirmed(frame []byte) outcome {
	n, ok := confirmationIn(frame)
	if !ok {
		return outcome{}
	}
	s := &c.state
	if c.interceptor == nil {
		asks, _ := c.effect().(subscribes)
		if !s.subs.take(n, asks) {
			return outcome{}
		}
		if s.executing() {
			s.transaction.next()
		}
		return c.answered()
	}
	s.subs.take(n, subscribes{})
	e := c.pending.oldest()
	told, asked := c.interceptor.Confirmed(n, e, s.proto)
	if asked {
		e.Names = e.Names[1:]
		asked = len(e.Names) == 0
	}
	if !asked {
		e = nil
	}
	return outcome{answered: e, told: told}
}

// lost takes that the connection was lost under a client that stays. It returns what the client is told: for each
// command without a reply an error, that line, or OK.
func (c *conversation) lost(line string) (told []byte) {
	s := &c.state
	if s.executing() {
		s.ended()
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
	return told
}

// bytes is what is kept for all of it, about.
func (c *conversation) bytes() int { return c.state.bytes() + c.pending.bytes }

// classifyAt is how many bytes of a frame tell what it is.
const classifyAt = 96

var queuedReply = []byte("+QUEUED\r\n")

// elements is how many an array has, by its head. It is 0 of null, and of everything else.
func elements(head []byte) int {
	f, _, _ := resp.Next(head)
	if f.Kind != '*' {
		return 0
	}
	return max(f.N, 0)
}

// firstWords are those of what comes by itself to a subscriber, and of what confirms a subscription or, if ends, the
// end of one.
var firstWords = map[string]struct {
	kind frameKind
	of   SubscriptionKind
	ends bool
}{
	"message":      {frameMessage, OfChannel, false},
	"pmessage":     {frameMessage, OfPattern, false},
	"smessage":     {frameMessage, OfShard, false},
	"subscribe":    {frameConfirmation, OfChannel, false},
	"psubscribe":   {frameConfirmation, OfPattern, false},
	"ssubscribe":   {frameConfirmation, OfShard, false},
	"unsubscribe":  {frameConfirmation, OfChannel, true},
	"punsubscribe": {frameConfirmation, OfPattern, true},
	"sunsubscribe": {frameConfirmation, OfShard, true},
}

// FirstText is the first element of an array or push when it is a short string, else "".
func FirstText(frame []byte) string {
	e, _ := resp.Element(frame, 0)
	if e.Kind != '$' || !e.Whole || e.N > commandtable.LongestName {
		return ""
	}
	return string(e.Text)
}

// secondText says whether the second element of an array is that string, as far as the frame's beginning tells.
func secondText(frame []byte, text string) bool {
	e, _ := resp.Element(frame, 1)
	return e.Kind == '$' && e.N == len(text) && strings.HasPrefix(text, string(e.Text))
}

// monitorLine is how a line of MONITOR begins: +1700000000.123456 [0 127.0.0.1:1] "get" "k".
var monitorLine = regexp.MustCompile(`^\+\d+\.\d+ \[`)
