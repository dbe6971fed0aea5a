// Package hottest counts which names come most often, in little memory however many names there are: the space-saving sketch of Metwally,
// Agrawal and El Abbadi.
package hottest

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// Most is how many names are kept.
	Most = 100
	// longest is how many bytes of a name are kept; those that begin alike are one.
	longest = 256
)

// Name is what is counted.
type Name struct {
	DB  int
	Key string
}

// Entry is what is known of a name.
type Entry struct {
	Name
	Waits  int64         // at most so many
	Over   int64         // of these, as many may be of names that this one took the place of
	Waited time.Duration // in all, while it was kept
}

// Names are those counted. The zero value is none yet. All methods are safe for concurrent use.
type Names struct {
	mu      sync.Mutex // a leaf; guards entries
	entries map[Name]*Entry
}

// Wait counts a wait for a name. A new name takes the place of the one that was waited for least, and its count.
func (n *Names) Wait(db int, key string) {
	name := nameOf(db, key)
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.entries[name]
	if e == nil {
		name.Key = strings.Clone(name.Key)
		e = &Entry{Name: name}
		if n.entries == nil {
			n.entries = make(map[Name]*Entry, Most)
		}
		if len(n.entries) == Most {
			least := n.least()
			delete(n.entries, least.Name)
			e.Waits, e.Over = least.Waits, least.Waits
		}
		n.entries[name] = e
	}
	e.Waits++
}

// Waited adds how long a wait took that is over.
func (n *Names) Waited(db int, key string, took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.entries[nameOf(db, key)]; e != nil {
		e.Waited += took
	}
}

func nameOf(db int, key string) Name { return Name{db, key[:min(len(key), longest)]} }

// least is the entry with the fewest waits. mu is held.
func (n *Names) least() (least *Entry) {
	for _, e := range n.entries {
		if least == nil || e.Waits < least.Waits {
			least = e
		}
	}
	return least
}

// Top are the so many names that were waited for most, these first.
func (n *Names) Top(most int) []Entry {
	n.mu.Lock()
	all := make([]Entry, 0, len(n.entries))
	for _, e := range n.entries {
		all = append(all, *e)
	}
	n.mu.Unlock()
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Waits-b.Over, a.Waits-a.Over), cmp.Compare(b.Waits, a.Waits), cmp.Compare(a.Key, b.Key), cmp.Compare(a.DB, b.DB))
	})
	return all[:min(most, len(all))]
}

// Reset forgets them all.
func (n *Names) Reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries = nil
}
