package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// deadlock returns the error for a waiter that has just joined its line and whose wait can never end: those that keep
// it waiting wait themselves, directly or through others, for a lock that it holds. nil: the wait may end.
//
// Only a circle that is certain counts: each of its members is a connection that is its own owner, waits with BLOCK 0,
// and holds what the one before it waits for, with a lease that the watchdog renews for as long as it waits. A named
// owner's lock may be released by others; a hold with EX or PX ends, and so do one under max-hold and a wait with a
// time; of other proxies' waits we know nothing. Readers do not wait for readers, unless they stand behind a writer
// that does.
//
// It is enough to ask when a wait begins. Think of an arrow from whoever waits to whoever holds. The last arrow of a
// circle cannot come with a new hold: its holder has just run a verb that granted the lock (LOCK, or one step of
// MULTILOCK) or handed it to the watchdog (RENEW, a LOCK of the same key without EX and PX), so it does not wait, and
// no arrow leaves it until its next wait begins. Waits do not change while they last. So the last arrow comes with a
// new wait, and by then all holds of the circle are known here.
//
// A hold may have been ended elsewhere without our knowing, so Redis is asked about those of a circle before it is
// reported.
func (m *Manager) deadlock(ctx context.Context, w *waiter) error {
	if m.opts.MaxHold > 0 || !w.endless() {
		return nil
	}
	for _, id := range m.lines.circle(w, false) {
		if m.watchdog.visitNow(ctx, id, min(patience, m.opts.Watchdog/3)) != nil {
			return nil // nothing is certain, or the client has gone, with whom the wait ends
		}
	}
	if circle := m.lines.circle(w, true); circle != nil {
		return neverEnds(circle)
	}
	return nil
}

// endless says whether a wait ends only when a certain hold does, or with its connection: of a lock that several hold any
// of them may end.
func (w *waiter) endless() bool {
	return w.id.Owner == w.c.owner && w.r.Blocks && w.r.Block == 0 && w.id.Kind != Limit
}

// circle is the holds that keep w waiting for itself: the first is at the key that w waits for, the last is w's own.
// nil: there is no circle. With leaves the waiter is out of the circle then: of two waits that close one at the same time
// only one gets the error, which is enough.
func (ls *lines) circle(w *waiter, leaves bool) []lockstore.ID {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.holds.mu.Lock()
	defer ls.holds.mu.Unlock()
	seen := map[*Client]bool{}
	var follow func(at *waiter) []lockstore.ID
	follow = func(at *waiter) []lockstore.ID {
		shares := at.id.Kind.Spec().Shared && !at.behindAlone()
		for h := range ls.holds.byKey[at.id.Line()].All() {
			if h.client == at.c || !h.lasts() || shares && h.counts.Writes == 0 {
				continue
			}
			if h.client == w.c {
				return []lockstore.ID{h.id}
			}
			next := h.client.waits
			if next == nil || !next.endless() || seen[h.client] {
				continue
			}
			seen[h.client] = true
			if rest := follow(next); rest != nil {
				return append(rest, h.id)
			}
		}
		return nil
	}
	found := follow(w)
	slices.Reverse(found)
	if leaves && found != nil {
		w.c.waits = nil
	}
	return found
}

// behindAlone says whether somebody stands ahead in line whose wait may be endless, and who wants the lock alone: a
// reader there waits for the other readers, too. lines.mu is held.
func (w *waiter) behindAlone() bool {
	if w.line == nil || w.line.alone == 0 {
		return false
	}
	for at := w.place.Prev(); at != nil; at = at.Prev() {
		if ahead := at.Value.(*waiter); !ahead.id.Kind.Spec().Shared && ahead.endless() {
			return true
		}
	}
	return false
}

// lasts says whether a live hold does not end before its connection ends it. holds.mu is held.
func (rec *record) lasts() bool { return rec.client != nil && rec.is == watched }

// mostNamed is the number of keys that a DEADLOCK names.
const mostNamed = 8

func neverEnds(circle []lockstore.ID) error {
	names := make([]string, len(circle))
	for i, id := range circle {
		names[i] = "'" + lockstore.Printable(id.Key) + "'"
	}
	if more := len(names) - mostNamed; more > 0 {
		names = slices.Replace(names, mostNamed-1, len(names)-1, fmt.Sprintf("%d more", more))
	}
	return &Error{Code: "DEADLOCK",
		Text: fmt.Sprintf("waiting for %s could never end: its holder waits for %s, which this connection holds",
			names[0], strings.Join(names[1:], ", whose holder waits for "))}
}
