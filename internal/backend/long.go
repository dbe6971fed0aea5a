package backend

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Commands that are long (see [resp.Long]), or are known to have long replies, go over a connection that nobody else uses until their replies
// are there, so that others do not wait behind them. After two long replies, close by, that were not expected, all that the
// client sends goes that way for some time. So the first long reply still goes over the shared connection: to ask Redis for
// the length first would cost each GET a round trip.
const (
	firstRun = 1 // commands in a run of a client whose replies are not known to be small

	closeBy = 16 // commands between two long replies that were not expected, so that the next ones are not, either

	// backAfter is after how many small commands a client goes back, and backAfterAge after how long.
	backAfter    = 1000
	backAfterAge = 10 * time.Second
)

// longTraffic decides between the shared pipe and a private one.
type longTraffic struct {
	on    bool
	left  int       // commands until the last long reply that was not expected no longer counts; 0 or less: none does
	since time.Time // of that reply
	proof int       // commands a run may have, so that its replies come to some runBytes; 0: firstRun
}

// isLong says whether a command is to go over a private pipe, by itself, because it is long, or because its reply was long
// when somebody gave it before.
func (f *Forwarder) isLong(raw []byte, words [][]byte, c *commandtable.Command) bool {
	return len(raw) > resp.Long || f.replies.expected(c, words)
}

// seen notes a long reply that was not expected.
func (t *longTraffic) seen() {
	t.on = t.on || t.left > backAfter-closeBy
	t.left, t.since = backAfter, time.Now()
}

// wanted says whether the next n commands go over the private pipe.
func (t *longTraffic) wanted(n int) bool {
	t.left -= n
	t.on = t.on && t.left >= 0 && time.Since(t.since) <= backAfterAge
	return t.on
}

func (t *longTraffic) runLength() int { return max(t.proof, firstRun) }

// measure learns from the sizes of the replies to the run: of all together, and of the longest, which is that to the
// at-th command.
func (f *Forwarder) measure(b *Batch, longest, at, total int) {
	t, commands := &f.long, len(b.run)
	switch {
	case longest <= resp.Long && b.long:
		f.replies.forget(b.cmds[0], b.nodes.args[0])
	case longest > resp.Long:
		f.replies.note(b.cmds[at], b.nodes.args[at])
		if !b.long { // others that are not known to be long may follow
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

const (
	longSlots = 16 << 10         // a power of two
	longFor   = 10 * time.Minute // for how long a long reply is remembered
)

// longReplies remembers which commands have had long replies lately, by name and first argument: that is most often
// the key, or the script. Two that fall into one slot displace each other. The zero value remembers nothing.
type longReplies struct {
	any   atomic.Bool
	slots [longSlots]longReply
}

type longReply struct {
	call  atomic.Uint64
	until atomic.Int64 // unix nanoseconds
}

var longSeed = maphash.MakeSeed()

func callOf(c *commandtable.Command, words [][]byte) uint64 {
	if len(words) < 2 {
		return maphash.String(longSeed, c.Name)
	}
	return maphash.String(longSeed, c.Name) ^ maphash.Bytes(longSeed, words[1])
}

// note notes a long reply to a command.
func (l *longReplies) note(c *commandtable.Command, words [][]byte) {
	call := callOf(c, words)
	slot := &l.slots[call%longSlots]
	slot.call.Store(call)
	slot.until.Store(time.Now().Add(longFor).UnixNano())
	l.any.Store(true)
}

// forget notes that the reply to such a command was not long.
func (l *longReplies) forget(c *commandtable.Command, words [][]byte) {
	if call := callOf(c, words); l.slots[call%longSlots].call.Load() == call {
		l.slots[call%longSlots].until.Store(0)
	}
}

// expected says that the reply to such a command has been long lately.
func (l *longReplies) expected(c *commandtable.Command, words [][]byte) bool {
	if !l.any.Load() {
		return false
	}
	call := callOf(c, words)
	slot := &l.slots[call%longSlots]
	return slot.call.Load() == call && time.Now().UnixNano() < slot.until.Load()
}
