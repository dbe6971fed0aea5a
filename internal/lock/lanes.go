package lock

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
)

const (
	// chunkMost is the most holds one renewal script extends: about 0.6 ms of Redis' time.
	chunkMost = 500
	// renewAllowed is how long Redis may take to get to a renewal, while the lock lasts.
	renewAllowed = 20 * time.Second
	// laneRest is how long a lane starts nothing after its node could not be reached.
	laneRest = 50 * time.Millisecond
)

// chunkKey is what the holds that go into one renewal script have in common.
type chunkKey struct {
	db   int
	kind Kind // of the locks: one of lockstore.HoldKinds
	slot int  // on a cluster
}

// chunk is what goes into one renewal script. While it waits for its turn its holds are free for verbs, and watchdog.mu
// guards it; when it is sent they are busy, and it is its goroutine's.
type chunk struct {
	chunkKey
	holds    []*record
	allow    time.Duration // how long Redis may take to come to it
	planned  moment        // when the first of them should have been sent
	least    time.Duration // for how long each is to last at least
	deadline moment        // the earliest at which one of them is reported lost
	inQueue  int32         // its index in the lane's queue
}

// lane is the renewals of one node. watchdog.mu guards it.
type lane struct {
	atOnce  int // scripts that the node gets side by side
	running int
	queue   agenda.Agenda[*chunk] // that wait for a place: the one with the earliest deadline goes first
	open    map[chunkKey]*chunk   // those of them that take more holds
	rest    time.Time             // nothing is started before
}

// laneOf is where a hold's renewals go. mu is held.
func (wd *watchdog) laneOf(at lockstore.Location) *lane {
	ln := wd.lanes[at.Node]
	if ln == nil {
		ln = &lane{atOnce: at.AtOnce, open: map[chunkKey]*chunk{}}
		ln.queue = agenda.New(func(c *chunk) *int32 { return &c.inQueue })
		wd.lanes[at.Node] = ln
	}
	return ln
}

// enqueue puts a hold into a chunk that waits for its turn. mu and holds.mu are held.
func (wd *watchdog) enqueue(rec *record) {
	at := wd.store.Location(rec.id.Key)
	ln := wd.laneOf(at)
	key := chunkKey{db: rec.id.DB, kind: rec.id.Kind, slot: at.Slot}
	deadline := rec.due(wd.holds.terms)
	c := ln.open[key]
	if c == nil {
		c = &chunk{chunkKey: key, planned: rec.visit}
		ln.open[key] = c
	}
	rec.inChunk = c
	c.holds = append(c.holds, rec)
	if c.inQueue == 0 || deadline < c.deadline {
		c.deadline = deadline
		ln.queue.Put(c, wd.holds.time(deadline))
	}
	if len(c.holds) == chunkMost {
		delete(ln.open, key)
	}
}

// startAll starts what may start in every lane, and says when there will be more to start even if no chunk ends before.
// mu is held.
func (wd *watchdog) startAll() (next time.Duration) {
	next = time.Hour
	for key, ln := range wd.lanes {
		wd.start(ln)
		switch rest := time.Until(ln.rest); {
		case ln.running > 0:
		case ln.queue.Len() == 0:
			delete(wd.lanes, key)
		case rest > 0:
			next = min(next, rest)
		}
	}
	return next
}

// start starts chunks of one lane for as long as there is a place. mu is held.
func (wd *watchdog) start(ln *lane) {
	for ln.running < ln.atOnce && ln.queue.Len() > 0 && !time.Now().Before(ln.rest) {
		c := ln.queue.First()
		ln.queue.Drop(c)
		if ln.open[c.chunkKey] == c {
			delete(ln.open, c.chunkKey)
		}
		if wd.holds.take(c); len(c.holds) == 0 {
			continue
		}
		// Later than that the lock is lost.
		c.allow = max(lockstore.Allowed, min(renewAllowed, c.deadline.sub(wd.holds.now())))
		ln.running++
		wd.background(func() { wd.runChunk(ln, c) })
	}
}

// take marks the holds of a chunk busy. Those that have ended meanwhile are left out, and those a verb is working on:
// they come back when it has left them. watchdog.mu is held.
//
// In a simulation they are sorted, so that it sends the same bytes whenever it is repeated.
func (hs *holds) take(c *chunk) {
	if jitter.Repeated() {
		slices.SortFunc(c.holds, func(x, y *record) int {
			return cmp.Or(strings.Compare(x.id.Key, y.id.Key), strings.Compare(x.id.Owner, y.id.Owner))
		})
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	kept := c.holds[:0]
	for _, rec := range c.holds {
		if rec.inChunk != c { // it has ended, for one
			continue
		}
		if rec.inChunk = nil; rec.next() != 0 && hs.tryBusy(rec) {
			kept = append(kept, rec)
		}
	}
	clear(c.holds[len(kept):])
	c.holds = kept
}

// runChunk renews a chunk and makes room for the next one.
func (wd *watchdog) runChunk(ln *lane, c *chunk) {
	err := wd.renewChunk(c)
	if err != nil {
		wd.log.Warn("renewal failed, trying again", "locks", len(c.holds), "error", err)
	}
	wd.mu.Lock()
	defer wd.mu.Unlock()
	ln.running--
	if lockstore.Unreached(err) {
		ln.rest = time.Now().Add(laneRest)
	}
	wd.start(ln)
	if ln.queue.Len() > 0 && ln.running == 0 {
		retry.Wake(wd.holds.schedule.Wake) // it rests: the watchdog comes back to it
	}
}
