// Package slowlog keeps the last commands that took long, for those who look after a proxy.
package slowlog

import (
	"slices"
	"sync"
	"time"
)

// Entry is one command that took long, or several that were sent to Redis together and did.
type Entry struct {
	ID       int64     // counts entries since the start
	At       time.Time // when it was over
	Took     time.Duration
	Upstream time.Duration // of that from sending it to Redis' reply; negative: the proxy answered it by itself
	Args     []string      // of the first command, as far as they are shown
	Commands int           // that were sent together
	Client
}

// Client is who sent it.
type Client struct{ Addr, Name, User string }

// Log is the last entries. All methods are safe for concurrent use.
type Log struct {
	mu      sync.Mutex // a leaf; guards all below
	entries []Entry    // oldest first
	added   int64
	second  int64 // unix time in which Takes was asked last,
	asked   int   // so many times
}

// Most is how many entries are kept.
const Most = 128

// Takes says whether what took long until then is to be added: of a second that has more than are kept, the first is.
// In a proxy that has too much to do every command takes long, and to add each would take the more of its time.
func (l *Log) Takes(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second := at.Unix(); second != l.second {
		l.second, l.asked = second, 0
	}
	l.asked++
	return l.asked <= Most
}

// Add gives an entry its number and keeps it, in place of the oldest if there are too many.
func (l *Log) Add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.added
	l.added++
	if len(l.entries) == Most {
		l.entries = slices.Delete(l.entries, 0, 1)
	}
	l.entries = append(l.entries, e)
}

// Latest are the last n entries, or as many as there are, the newest first.
func (l *Log) Latest(n int) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	latest := slices.Clone(l.entries[max(0, len(l.entries)-n):])
	slices.Reverse(latest)
	return latest
}

// Len is how many entries there are.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Reset forgets them all. Numbers go on.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.asked = nil, 0
}
