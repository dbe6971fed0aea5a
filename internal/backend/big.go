package backend

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Commands that are long, or are known to have long replies, go over a connection that nobody else uses until their replies
// are there, so that others do not wait behind them. After two long replies, close by, that were not expected, all that the
// client sends goes that way for some time.
const (
	// Big is the length above which a command is forwarded by itself, and a reply is remembered.
	Big      = 64 << 10
	firstRun = 1 // commands in a run of a client whose replies are not known to be small

	closeBy = 16 // commands between two long replies that were not expected, so that the next ones are not, either

	// backAfter is after how many small commands a client goes back, and backAfterAge after how long.
	backAfter    = 1000
	backAfterAge = 10 * time.Second
)

// bigTraffic decides between the shared pipe and a private one.
type bigTraffic struct {
	on    bool
	left  int       // commands until the last long reply that was not expected no longer counts; 0 or less: none does
	since time.Time // of that reply
	proof int       // commands a run may have, so that its replies come to some runBytes; 0: firstRun
}

// isBig says whether a command is to go over a private pipe, by itself, because it is long, or because its reply was long
// when somebody gave it before.
func (f *Forwarder) isBig(raw []byte, words [][]byte, c *commandtable.Command) bool {
	return len(raw) > Big || f.large.expected(c, words)
}

// seen notes a long reply that was not expected.
func (b *bigTraffic) seen() {
	b.on = b.on || b.left > backAfter-closeBy
	b.left, b.since = backAfter, time.Now()
}

// wanted says whether the next n commands go over the private pipe.
func (b *bigTraffic) wanted(n int) bool {
	b.left -= n
	b.on = b.on && b.left >= 0 && time.Since(b.since) <= backAfterAge
	return b.on
}

func (b *bigTraffic) runLength() int { return max(b.proof, firstRun) }

// measure learns from the sizes of the replies to the run: of all together, and of the largest, which is that to the
// at-th command.
func (f *Forwarder) measure(b *Batch, largest, at, total int) {
	t, commands := &f.big, len(b.run)
	switch {
	case largest <= Big && b.big:
		f.large.forget(b.cmds[0], b.nodes.args[0])
	case largest > Big:
		f.large.note(b.cmds[at], b.nodes.args[at])
		if !b.big { // others that are not known to be long may follow
			t.seen()
		}
	}
	switch {
	case total > runBytes:
		t.proof = (commands + 1) / 2
	case commands >= t.runLength():
		t.proof = min(2*t.runLength(), runCommands)
	}
}

// stream is the sink of a private pipe: it passes replies on as they come. Of a long reply only the beginning is copied.
type stream struct {
	f       *Forwarder
	b       *Batch
	to      downstream.Passage
	scan    resp.Scanner
	whole   int // how many bytes of the batch's replies end with a whole reply
	frame   int // bytes of the current reply
	largest int
	at      int // which reply that is
	replies int // whole ones
	total   int
}

func (f *Forwarder) newStream(b *Batch) *stream {
	return &stream{f: f, b: b, to: f.client.Writer.Passage(), whole: len(b.Bytes)}
}

func (t *stream) Reply(p []byte) {
	b := t.b
	for seen := 0; seen < len(p); {
		n, done, err := t.scan.Scan(p[seen:])
		if err != nil {
			t.f.client.End.HangUp(downstream.Left, "broken reply from upstream")
			return
		}
		seen += n
		t.frame += n
		t.total += n
		if done {
			t.ended(len(b.Bytes) + seen)
		}
	}
	if !t.to.Within() && len(b.Bytes)+len(p) < flushAt {
		b.Bytes = append(b.Bytes, p...)
		return
	}
	if len(b.Bytes) > 0 {
		t.pass(b.Bytes, true)
	}
	t.pass(p, t.frame > 0)
	b.Bytes, t.whole = b.Bytes[:0], 0
}

// ended notes the end of the current reply, which is there in the batch's replies.
func (t *stream) ended(there int) {
	t.whole = there
	if t.frame > t.largest {
		t.largest, t.at = t.frame, t.replies
	}
	t.replies++
	t.frame = 0
}

// pass writes p to a client that is still there and wants it; within: more follows that is written before anything else.
func (t *stream) pass(p []byte, within bool) {
	switch {
	case t.f.client.Replies.Silent:
	case t.f.client.End.Over():
		t.to.GiveUp("left within a reply")
	default:
		t.to.Write(p, within)
	}
}

// finish ends the run: the part of a reply that will not be completed is taken back, or, when the client has some
// of it already, the client is cut off, since nothing after it could be understood.
func (t *stream) finish() {
	if t.frame > 0 {
		t.to.GiveUp("upstream lost within a reply")
		t.b.Bytes = t.b.Bytes[:t.whole]
	}
}
