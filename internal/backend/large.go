package backend

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

const (
	largeSlots = 16 << 10         // a power of two
	largeFor   = 10 * time.Minute // for how long a long reply is remembered
)

// largeReplies remembers which commands have had long replies lately, by name and first argument: that is most often
// the key, or the script. Two that fall into one slot displace each other. The zero value remembers nothing.
type largeReplies struct {
	any   atomic.Bool
	slots [largeSlots]largeReply
}

type largeReply struct {
	call  atomic.Uint64
	until atomic.Int64 // unix nanoseconds
}

var largeSeed = maphash.MakeSeed()

func callOf(c *commandtable.Command, words [][]byte) uint64 {
	if len(words) < 2 {
		return maphash.String(largeSeed, c.Name)
	}
	return maphash.String(largeSeed, c.Name) ^ maphash.Bytes(largeSeed, words[1])
}

// note notes a long reply to a command.
func (l *largeReplies) note(c *commandtable.Command, words [][]byte) {
	call := callOf(c, words)
	slot := &l.slots[call%largeSlots]
	slot.call.Store(call)
	slot.until.Store(time.Now().Add(largeFor).UnixNano())
	l.any.Store(true)
}

// forget notes that the reply to such a command was not long.
func (l *largeReplies) forget(c *commandtable.Command, words [][]byte) {
	if call := callOf(c, words); l.slots[call%largeSlots].call.Load() == call {
		l.slots[call%largeSlots].until.Store(0)
	}
}

// expected says that the reply to such a command has been long lately.
func (l *largeReplies) expected(c *commandtable.Command, words [][]byte) bool {
	if !l.any.Load() {
		return false
	}
	call := callOf(c, words)
	slot := &l.slots[call%largeSlots]
	return slot.call.Load() == call && time.Now().UnixNano() < slot.until.Load()
}
