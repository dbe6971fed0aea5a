package lock

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
)

const (
	// chunkMost is the most holds one renewal script extends: about 0.6 ms of Redis' time.
	chunkMost = 500
	// renewAllowed is how long Redis may take to get to a renewal, while the lock lasts; a Redis that was slower gets up to
	// renewAllowedMost.
	renewAllowed, renewAllowedMost = 5 * time.Second, 20 * time.Second
	// laneRest is how long a lane starts nothing after its node could not be reached.
	laneRest = 50 * time.Millisecond
	// laneKept is how long a lane is kept in which nothing is renewed any more, for what it knows of a node that was slow or away. A node that has
	// left a cluster does not come back.
	laneKept = time.Minute
)

// chunkKey is what the holds that go into one renewal script have in common.
type chunkKey struct {
	db       int
	kind     Kind
	lease    time.Duration // 0: only look
	replicas int64
	slot     int   // on a cluster
	restored *hold // the hold goes by itself, since what is left of its lease is its own: see restores; nil: any hold
}

// chunk is what goes into one renewal script. While it waits for its turn its holds are free for verbs, and watchdog.mu guards it; when
// it is sent they are busy, and it is its goroutine's.
type chunk struct {
	chunkKey
	holds         []*hold
	registrations []lockstore.Registration // of each of the holds, as far as it is known
	allow         time.Duration            // how long Redis may take to come to it; 0: lockstore.Allowed
	planned       time.Time                // when the first of them should have been sent
	deadline      time.Time                // the earliest at which one of them is reported lost
	inQueue       int                      // its index in the lane's queue
}

// laneKey names a lane. Nodes do not wait for each other, and what waits for replicas holds up nothing else.
type laneKey struct {
	node       any // see lockstore.Lane
	replicated bool
}

// lane is the renewals of one node. watchdog.mu guards it.
type lane struct {
	key     laneKey
	atOnce  int // scripts that the node gets side by side
	running int
	queue   agenda.Agenda[*chunk] // that wait for a place: the one with the earliest deadline goes first
	open    map[chunkKey]*chunk   // those of them that take more holds
	rest    time.Time             // nothing is started before
	allow   time.Duration         // how long Redis may take to get to a script: more than renewAllowed when it was slower
	ended   time.Time             // when its last script did
	failed  int                   // renewals that failed since that was logged last
	logged  time.Time
}

// laneOf is where a hold's renewals go. mu and holds.mu are held.
func (wd *watchdog) laneOf(h *hold) *lane {
	key := laneKey{replicated: h.watched && h.replicas > 0}
	at := wd.store.Lane(h.id.Key)
	key.node = at.Node
	ln := wd.lanes[key]
	if ln == nil {
		ln = &lane{key: key, atOnce: at.AtOnce, allow: renewAllowed, open: map[chunkKey]*chunk{}}
		ln.queue = agenda.New(func(c *chunk) time.Time { return c.deadline }, func(c *chunk) *int { return &c.inQueue })
		wd.lanes[key] = ln
	}
	return ln
}

// chunkOf names the chunk that a hold belongs in. mu is held.
func (hs *holds) chunkOf(h *hold) chunkKey {
	key := chunkKey{db: h.id.DB, kind: h.id.Kind, slot: hs.store.Lane(h.id.Key).Slot}
	switch {
	case h.watched:
		key.lease, key.replicas = h.lease, h.replicas
	case hs.restores(h):
		if key.lease = hs.shared(time.Until(h.certainUntil())); key.lease == 0 {
			key.restored = h
		}
	}
	return key
}

// shared is the lease that holds with so much left have together in one chunk, about half of that or more: there are few such leases. The next looks
// give back the rest. 0: so little is left that each hold goes by itself.
func (hs *holds) shared(left time.Duration) (lease time.Duration) {
	for next := hs.opts.Watchdog; next+renewAllowedMost < left; next *= 2 {
		lease = next
	}
	return lease
}

// restores says whether a look at a connection's hold with a lease of its own is to give Redis back what is left of that, should it have less.
// It may: a new master may lack a RENEW, Redis' clock may have been set ahead, and Redisson's watchdog sets the lease of a lock that it reads to
// 30 s, whatever other readers were promised, and up to Redisson 4.3 that of their holds, too. mu is held.
func (hs *holds) restores(h *hold) bool {
	return !h.watched && !h.named && !hs.store.Rules().Votes && (h.maybeCut || h.id.Kind == Read)
}

// enqueue puts a hold into a chunk that waits for its turn. mu and holds.mu are held.
func (wd *watchdog) enqueue(h *hold) {
	ln, key := wd.laneOf(h), wd.holds.chunkOf(h)
	deadline, _ := h.lossAt()
	if deadline.IsZero() {
		deadline = h.deadline
	}
	if key.restored != nil {
		deadline = deadline.Add(time.Hour) // those that nobody else has renewed go first
	}
	c := ln.open[key]
	if c == nil {
		c = &chunk{chunkKey: key, planned: h.next, deadline: deadline}
		ln.open[key] = c
	}
	h.inChunk = c
	c.holds = append(c.holds, h)
	if deadline.Before(c.deadline) {
		c.deadline = deadline
	}
	ln.queue.Put(c)
	if len(c.holds) == chunkMost {
		delete(ln.open, key)
	}
}

// startAll starts what may start in every lane, and says when there will be more to start even if no chunk ends before. mu is held.
func (wd *watchdog) startAll() (next time.Duration) {
	next = time.Hour
	for key, ln := range wd.lanes {
		wd.start(ln)
		rest := time.Until(ln.rest)
		switch {
		case ln.queue.Len() > 0 && ln.running == 0 && rest > 0:
			next = min(next, rest)
		case ln.queue.Len() == 0 && ln.running == 0 && (ln.failed == 0 && ln.allow == renewAllowed || time.Since(ln.ended) > laneKept):
			delete(wd.lanes, key)
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
		// Later than that the lock is lost, or a verb waits too long for a renewal whose reply was lost: see sitOut.
		c.allow = max(lockstore.Allowed, min(ln.allow, time.Until(c.deadline)))
		if c.restored != nil {
			c.allow = lockstore.Allowed // the lease would end later by what Redis is late
		}
		ln.running++
		wd.background(func() { wd.runChunk(ln, c) })
	}
}

// take marks the holds of a chunk busy. Those that have ended, or changed, meanwhile are left out, and those a verb is working on:
// they come back when it has left them. watchdog.mu is held.
//
// Their order is that of their names, so that a simulation sends the same bytes whenever it is repeated.
func (hs *holds) take(c *chunk) {
	slices.SortFunc(c.holds, func(x, y *hold) int {
		return cmp.Or(strings.Compare(x.id.Key, y.id.Key), strings.Compare(x.id.Owner, y.id.Owner))
	})
	hs.mu.Lock()
	defer hs.mu.Unlock()
	kept := c.holds[:0]
	for _, h := range c.holds {
		if h.inChunk != c { // it has ended, for one
			continue
		}
		if h.inChunk = nil; hs.chunkOf(h) != c.chunkKey {
			hs.plan(h, time.Now())
			continue
		}
		select {
		case h.busy <- struct{}{}:
		default:
			h.passed = true
			continue
		}
		h.users++
		kept, c.registrations = append(kept, h), append(c.registrations, h.registration)
	}
	clear(c.holds[len(kept):])
	c.holds = kept
}

// runChunk renews a chunk and makes room for the next one.
func (wd *watchdog) runChunk(ln *lane, c *chunk) {
	came := wd.renewChunk(c)
	failed := wd.noteChunk(ln, len(c.holds), came)
	if failed > 0 {
		wd.log.Warn("renewal failed, trying again", "locks", failed, "error", came.err)
	}
}

// outcomeOf is what a chunk of renewals tells about its node.
type outcomeOf struct {
	err   error
	took  time.Duration
	brief bool // Redis was allowed less time than the lane's
}

// noteChunk notes what a chunk tells about its node, and returns how many failed renewals are to be logged now: one line a
// second, however many locks there are.
func (wd *watchdog) noteChunk(ln *lane, holds int, came outcomeOf) (failed int) {
	wd.mu.Lock()
	defer wd.mu.Unlock()
	now := time.Now()
	ln.running--
	ln.ended = now
	switch {
	case came.brief && !lockstore.Unreached(came.err): // it says nothing of the others
	case errors.Is(came.err, lockstore.ErrLate):
		ln.allow = min(2*ln.allow, renewAllowedMost)
	case lockstore.Unreached(came.err):
		ln.rest = now.Add(laneRest)
	case came.err == nil && came.took < ln.allow/4:
		ln.allow = max(ln.allow/2, renewAllowed)
	}
	if came.err != nil {
		ln.failed += holds
		if now.Sub(ln.logged) >= time.Second {
			failed, ln.failed, ln.logged = ln.failed, 0, now
		}
	}
	if came.err == nil {
		ln.failed = 0
	}
	wd.start(ln)
	if ln.queue.Len() > 0 && ln.running == 0 {
		retry.Wake(wd.holds.schedule.Wake) // it rests: the watchdog comes back to it
	}
	return failed
}
