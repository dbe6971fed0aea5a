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
	// renewChunk is the most holds one renewal script extends: about 0.6 ms of Redis' time.
	renewChunk = 500
	// renewAllowed is how long Redis may take to get to a renewal, while the lock lasts; a Redis that was slower gets up to
	// renewAllowedMost.
	renewAllowed, renewAllowedMost = 5 * time.Second, 20 * time.Second
	// laneRest is how long a lane starts nothing after its node could not be reached.
	laneRest = 50 * time.Millisecond
)

// batchKey is what the holds that go into one renewal script have in common.
type batchKey struct {
	db       int
	kind     Kind
	lease    time.Duration // 0: only look
	replicas int64
	slot     int   // on a cluster
	restored *hold // the hold goes by itself, since what is left of its lease is its own: see restores; nil: any hold
}

// batch is what goes into one renewal script. While it waits for its turn its holds are free for verbs, and watchdog.mu guards it; when
// it is sent they are busy, and it is its goroutine's.
type batch struct {
	batchKey
	holds         []*hold
	registrations []lockstore.Registration // of each of the holds, as far as it is known
	allow         time.Duration            // how long Redis may take to come to it; 0: lockstore.Allowed
	planned       time.Time                // when the first of them should have been sent
	deadline      time.Time                // the earliest at which one of them is reported lost
	place         int                      // in the lane's queue
}

// laneKey names a lane. Nodes do not wait for each other, and what waits for replicas holds up nothing else.
type laneKey struct {
	node       any // see lockstore.Lane
	replicated bool
}

// lane is the renewals of one node. watchdog.mu guards it.
type lane struct {
	key     laneKey
	places  int
	running int
	queue   agenda.Agenda[*batch] // that wait for a place: the one with the earliest deadline goes first
	open    map[batchKey]*batch   // those of them that take more holds
	rest    time.Time             // nothing is started before
	allow   time.Duration         // how long Redis may take to get to a script: more than renewAllowed when it was slower
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
		ln = &lane{key: key, places: at.AtOnce, allow: renewAllowed, open: map[batchKey]*batch{}}
		ln.queue = agenda.New(func(b *batch) time.Time { return b.deadline }, func(b *batch) *int { return &b.place })
		wd.lanes[key] = ln
	}
	return ln
}

// batchOf is the batch a hold belongs into. holds.mu is held.
func (wd *watchdog) batchOf(h *hold) batchKey {
	key := batchKey{db: h.id.DB, kind: h.id.Kind, slot: wd.store.Lane(h.id.Key).Slot}
	switch {
	case h.watched:
		key.lease, key.replicas = h.lease, h.replicas
	case wd.restores(h):
		if key.lease = wd.shared(time.Until(h.certainUntil())); key.lease == 0 {
			key.restored = h
		}
	}
	return key
}

// shared is the lease that holds with so much left have together in one batch, about half of that or more: there are few such leases. The next looks
// give back the rest. 0: so little is left that each hold goes by itself.
func (wd *watchdog) shared(left time.Duration) (lease time.Duration) {
	for next := wd.opts.Watchdog; next+renewAllowedMost < left; next *= 2 {
		lease = next
	}
	return lease
}

// restores says whether a look at a connection's hold with a lease of its own is to give Redis back what is left of that, should it have less.
// It may: a new master may lack a RENEW, Redis' clock may have been set ahead, and Redisson's watchdog sets the lease of a lock that it reads to
// 30 s, whatever other readers were promised, and up to Redisson 4.3 that of their holds, too. holds.mu is held.
func (wd *watchdog) restores(h *hold) bool {
	return !h.watched && !h.named && !wd.store.Rules().Votes && (h.maybeCut || h.id.Kind == Read)
}

// enqueue puts a hold into a batch that waits for its turn. mu and holds.mu are held.
func (wd *watchdog) enqueue(h *hold) {
	ln, key := wd.laneOf(h), wd.batchOf(h)
	deadline, _ := h.lossAt()
	if deadline.IsZero() {
		deadline = h.deadline
	}
	if key.restored != nil {
		deadline = deadline.Add(time.Hour) // those that nobody else has renewed go first
	}
	b := ln.open[key]
	if b == nil {
		b = &batch{batchKey: key, planned: h.next, deadline: deadline}
		ln.open[key] = b
	}
	h.waits = b
	b.holds = append(b.holds, h)
	if deadline.Before(b.deadline) {
		b.deadline = deadline
	}
	ln.queue.Put(b)
	if len(b.holds) == renewChunk {
		delete(ln.open, key)
	}
}

// startAll starts what may start in every lane, and says when there will be more to start even if no batch ends before. mu is held.
func (wd *watchdog) startAll() (next time.Duration) {
	next = time.Hour
	for key, ln := range wd.lanes {
		wd.start(ln)
		rest := time.Until(ln.rest)
		switch {
		case ln.queue.Len() > 0 && ln.running == 0 && rest > 0:
			next = min(next, rest)
		case ln.queue.Len() == 0 && ln.running == 0 && ln.failed == 0 && ln.allow == renewAllowed:
			delete(wd.lanes, key)
		}
	}
	return next
}

// start starts batches of one lane for as long as there is a place. mu is held.
func (wd *watchdog) start(ln *lane) {
	for ln.running < ln.places && ln.queue.Len() > 0 && !time.Now().Before(ln.rest) {
		b := ln.queue.First()
		ln.queue.Drop(b)
		if ln.open[b.batchKey] == b {
			delete(ln.open, b.batchKey)
		}
		if wd.take(b); len(b.holds) == 0 {
			continue
		}
		// Later than that the lock is lost, or a verb waits too long for a renewal whose reply was lost: see sitOut.
		b.allow = max(lockstore.Allowed, min(ln.allow, time.Until(b.deadline)))
		if b.restored != nil {
			b.allow = lockstore.Allowed // the lease would end later by what Redis is late
		}
		ln.running++
		wd.background(func() { wd.runBatch(ln, b) })
	}
}

// take marks the holds of a batch busy. Those that have ended, or changed, meanwhile are left out, and those a verb is working on:
// they come back when it has left them. mu is held.
//
// Their order is that of their names, so that a simulation sends the same bytes whenever it is repeated.
func (wd *watchdog) take(b *batch) {
	slices.SortFunc(b.holds, func(x, y *hold) int {
		return cmp.Or(strings.Compare(x.id.Key, y.id.Key), strings.Compare(x.id.Owner, y.id.Owner))
	})
	wd.holds.mu.Lock()
	defer wd.holds.mu.Unlock()
	kept := b.holds[:0]
	for _, h := range b.holds {
		if h.waits != b {
			continue
		}
		h.waits = nil
		if h.count == 0 {
			continue
		}
		if wd.batchOf(h) != b.batchKey {
			wd.holds.plan(h, time.Now())
			continue
		}
		select {
		case h.busy <- struct{}{}:
		default:
			h.passed = true
			continue
		}
		h.users++
		kept, b.registrations = append(kept, h), append(b.registrations, h.registration)
	}
	clear(b.holds[len(kept):])
	b.holds = kept
}

// runBatch renews a batch and makes room for the next one.
func (wd *watchdog) runBatch(ln *lane, b *batch) {
	came := wd.renewBatch(b)
	failed := wd.noteBatch(ln, len(b.holds), came)
	if failed > 0 {
		wd.log.Warn("renewal failed, trying again", "locks", failed, "error", came.err)
	}
}

// outcomeOf is what a batch of renewals tells about its node.
type outcomeOf struct {
	err  error
	took time.Duration
}

// noteBatch notes what a batch tells about its node, and returns how many failed renewals are to be logged now: one line a
// second, however many locks there are.
func (wd *watchdog) noteBatch(ln *lane, holds int, came outcomeOf) (failed int) {
	wd.mu.Lock()
	defer wd.mu.Unlock()
	now := time.Now()
	ln.running--
	switch {
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
