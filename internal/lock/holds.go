package lock

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/chain"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/loglimit"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// record is one connection's hold, and what the engine keeps beside it. It exists while there is a hold, while Redis
// has to be told that there is none any more, and while a verb works on it.
type record struct {
	id lockstore.ID // the same for both sides of a read/write lock

	// guarded by holds.mu
	hold
	client    *Client       // nil: it has gone
	inChunk   *chunk        // of renewals that has not been sent yet; nil: none
	ends      moment        // when watchDeadlines looks at it
	freed     chan struct{} // closed when it is no longer busy; nil: nobody waits for that
	users     int32         // that have or wait for busy
	busy      bool          // one step at a time: whoever has set it may talk to Redis about this hold
	releasing bool          // a step that gives it back is under way
	leaving   bool          // RESET gives it back: whoever waits for busy finds it free

	inARow handoffsInARow
	pause  time.Duration // of the line that had no more waiters when this was granted, for the next one

	ofClient, atKey         chain.Link[*record]
	inSchedule, inDeadlines int32 // its places in the agendas
}

// holds is what the connections of this proxy hold, until when they can be sure of it, and when something is to be done
// about it.
type holds struct {
	terms
	votes  bool            // they are on a quorum
	store  lockstore.Store // is told of holds that end by themselves
	counts *counts
	log    *slog.Logger
	events *events.Log

	mu        sync.Mutex // guards all below, and what records and clients say it does
	byID      map[lockstore.ID]*record
	byKey     map[lockstore.LineKey]chain.Chain[*record] // those that are live
	live      int64                                      // how many these are
	looked    moment                                     // when recheckIf last went through those that are live
	schedule  agenda.Agenda[*record]                     // when the watchdog has something to do about each
	deadlines agenda.Agenda[*record]                     // when each ends unless something happens before
}

func newHolds(o Options, c *counts) *holds {
	maxHold := min(o.MaxHold, lockstore.Milliseconds(math.MaxInt64)) // a moment has no room for more
	return &holds{
		terms: terms{clock: newClock(), watchdog: o.Watchdog, maxHold: maxHold}, counts: c,
		log: loglimit.Most(o.Logger, lossesLogged), events: o.Events,
		byID:      map[lockstore.ID]*record{},
		byKey:     map[lockstore.LineKey]chain.Chain[*record]{},
		schedule:  agenda.New(func(r *record) *int32 { return &r.inSchedule }),
		deadlines: agenda.New(func(r *record) *int32 { return &r.inDeadlines }),
	}
}

// at says where the holds are kept, and by what rules.
func (hs *holds) at(s lockstore.Store, by lockstore.Rules) {
	hs.store, hs.votes, hs.drift = s, by.Votes, by.Drift
}

// forEver is how long whoever gives a lock back waits for others at work on it.
const forEver = time.Duration(math.MaxInt64)

// enter gives the caller the busy mark of a connection's record, at once if nobody has it; leave gives it back. It
// waits for others only so long: a verb whose reply was lost may be at the hold for as long as its lease.
func (hs *holds) enter(ctx context.Context, c *Client, id lockstore.ID, long time.Duration) (*record, error) {
	if rec := hs.tryEnter(c, id); rec != nil {
		return rec, nil
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	rec := hs.record(c, id)
	rec.users++
	for rec.busy {
		if err := hs.awaitFree(ctx, rec, timer.C); err != nil {
			hs.unuse(rec)
			return nil, err
		}
	}
	rec.busy = true
	return rec, nil
}

// awaitFree waits until a record has been freed. mu is held, but not while it waits.
func (hs *holds) awaitFree(ctx context.Context, rec *record, over <-chan time.Time) error {
	if rec.freed == nil {
		rec.freed = make(chan struct{})
	}
	freed := rec.freed
	hs.mu.Unlock()
	defer hs.mu.Lock()
	select {
	case <-freed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-over:
		return lockstore.ErrBehind
	}
}

// tryEnter is enter without waiting; nil: somebody works on the record.
func (hs *holds) tryEnter(c *Client, id lockstore.ID) *record {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if rec := hs.record(c, id); rec.tryBusy() {
		return rec
	}
	return nil
}

// tryBusy takes the busy mark of a record, if nobody has it. holds.mu is held.
func (rec *record) tryBusy() bool {
	if rec.busy {
		return false
	}
	rec.busy = true
	rec.users++
	return true
}

// record is what is known of a connection's hold, for one that works on it from now on. mu is held, but not while a
// record is made: who needs memory may have to work for the collector.
func (hs *holds) record(c *Client, id lockstore.ID) *record {
	if rec := hs.byID[id.Hold()]; rec != nil {
		return rec
	}
	hs.mu.Unlock()
	made := &record{id: id.Hold(), client: c}
	hs.mu.Lock()
	if rec := hs.byID[made.id]; rec != nil {
		return rec
	}
	hs.byID[made.id] = made
	return made
}

func (hs *holds) leave(rec *record) {
	hs.mu.Lock()
	hs.free(rec)
	hs.mu.Unlock()
}

// free is leave for a caller that has mu. A hold that the watchdog has passed by while it was busy is visited at once: the
// time of the visit is over.
func (hs *holds) free(rec *record) {
	rec.releasing, rec.busy = false, false
	if rec.freed != nil {
		close(rec.freed)
		rec.freed = nil
	}
	if rec.inSchedule == 0 {
		hs.reschedule(rec)
	}
	hs.unuse(rec)
}

func (hs *holds) unuse(rec *record) {
	rec.users--
	hs.forget(rec)
}

// forget drops the record of a hold that is not live, of which Redis has nothing, and which nobody uses.
func (hs *holds) forget(rec *record) {
	if rec.users > 0 || rec.live() || rec.clear != 0 {
		return
	}
	hs.schedule.Drop(rec)
	if hs.byID[rec.id] == rec {
		delete(hs.byID, rec.id)
	}
}

// peek is what is known of a connection's hold now; the zero value: nothing.
func (hs *holds) peek(id lockstore.ID) hold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if rec := hs.byID[id.Hold()]; rec != nil {
		return rec.hold
	}
	return hold{}
}

// see is peek of a record that the caller has.
func (hs *holds) see(rec *record) hold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return rec.hold
}

// apply has an event happen to a hold.
func (hs *holds) apply(rec *record, e event) (h hold, lost string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	lost = hs.happen(rec, e)
	return rec.hold, lost
}

// happen is apply for a caller that has mu. It does no I/O.
func (hs *holds) happen(rec *record, e event) (lost string) {
	was := rec.hold
	now := hs.now()
	h, fx := rec.on(e, now, hs.terms)
	rec.hold = h
	switch {
	case !was.live() && h.live():
		hs.list(rec)
	case fx.ended && was.live():
		hs.unlist(rec)
	}
	if fx.lost != "" {
		hs.lose(rec, was, fx.lost, now)
	}
	hs.reschedule(rec)
	hs.forget(rec)
	return fx.lost
}

// on is the event's own.
func (h hold) on(e event, now moment, t terms) (hold, effects) { return e.on(h, now, t) }

// comes is next, but for a renewal that waits to be sent already.
func (rec *record) comes() moment {
	if rec.inChunk != nil {
		return rec.clear
	}
	return rec.next()
}

// reschedule puts a record where the agendas look at it next. mu is held.
func (hs *holds) reschedule(rec *record) {
	if at := rec.comes(); at == 0 {
		hs.schedule.Drop(rec)
	} else {
		hs.schedule.Put(rec, hs.time(at))
	}
	switch at := rec.due(hs.terms); {
	case at == 0:
		hs.deadlines.Drop(rec)
	case rec.inDeadlines == 0 || at < rec.ends: // one that is put off is only seen when its time has come
		hs.putDeadline(rec, at)
	}
}

// putDeadline has watchDeadlines look at a record at that time. mu is held.
func (hs *holds) putDeadline(rec *record, at moment) {
	rec.ends = at
	hs.deadlines.Put(rec, hs.time(at))
}

// list and unlist note that a hold is, or is no longer, one of those that are live. mu is held.
func (hs *holds) list(rec *record) {
	key := rec.id.Line()
	live := hs.byKey[key]
	live.Add(&rec.atKey, rec)
	hs.byKey[key] = live
	hs.live++
	if c := rec.client; c != nil {
		c.holds.Add(&rec.ofClient, rec)
		c.share.hold()
	}
}

func (hs *holds) unlist(rec *record) {
	key := rec.id.Line()
	live := hs.byKey[key]
	if live.Drop(&rec.atKey); live.Len() == 0 {
		delete(hs.byKey, key)
	} else {
		hs.byKey[key] = live
	}
	hs.live--
	rec.inChunk, rec.leaving, rec.releasing = nil, false, false
	if c := rec.client; c != nil {
		c.holds.Drop(&rec.ofClient)
		c.share.leave()
	}
}

// lose tells everybody who should know of a loss; was is the hold before. It does no I/O. mu is held.
func (hs *holds) lose(rec *record, was hold, reason string, now moment) {
	kind := rec.kindOf(was.counts)
	e := eventOf(events.Loss, time.Now(), rec.id.As(kind))
	e.Held, e.Reason = now.sub(was.granted), reason
	if c := rec.client; c != nil {
		c.noteLoss(rec.id, lossRecord{reason, e.At})
		c.info.Push(Loss{Key: rec.id.Key, Kind: kind, Reason: reason})
		e.Client = c.who()
	}
	hs.tell(rec.id.As(kind), e)
	if rec.clear == 0 { // else they are woken when Redis is told
		hs.vacate(rec.id.As(kind), now, max(now, rec.sure))
	}
}

// released tells of a hold that was given back.
func (hs *holds) released(rec *record, id lockstore.ID, granted moment) {
	e := eventOf(events.Release, time.Now(), id)
	e.Held = e.At.Sub(hs.time(granted))
	telemetry.LockReleased(e.Side, e.Held)
	if !events.Long(e.Held) {
		return
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if e.Reason = "its client has gone"; rec.client != nil {
		e.Reason, e.Client = "", rec.client.who()
	}
	hs.events.Add(e)
}

// kindOf is the kind of hold as which others see it that count so often: of a read/write lock its writer, if it writes.
func (rec *record) kindOf(c lockstore.Counts) Kind {
	if rec.id.Kind.Spec().RW && c.Writes == 0 {
		return Read
	}
	return rec.id.Kind
}

// vacate makes the store wake those that wait for a lock whose hold ends by itself, from at on.
func (hs *holds) vacate(id lockstore.ID, at, until moment) {
	hs.store.Vacate(id, hs.time(at), hs.time(until.add(expirySlack)))
}

// count is how many holds are live.
func (hs *holds) count() int64 {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.live
}

// any says whether a connection of this proxy holds a lock.
func (hs *holds) any(key lockstore.LineKey) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.byKey[key].Len() > 0
}

// recheckKey makes the watchdog check every live hold of a key at once: one of them may be newer than what ended the
// others.
func (hs *holds) recheckKey(key lockstore.LineKey, reason string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for rec := range hs.byKey[key].All() {
		hs.happen(rec, suspected{reason})
	}
}

// recheckIf makes the watchdog check, as soon as it can, those live holds for which why gives a reason; why gets their
// key, and what they are suspected for already. A lock that is granted between two pieces is recheckLate's.
func (hs *holds) recheckIf(why func(key, already string) string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.looked = hs.now()
	done := 0
	for key, live := range hs.byKey {
		for rec := range live.All() {
			if reason := why(key.Key, rec.suspect); reason != "" {
				hs.happen(rec, suspected{reason})
			}
		}
		yield(&hs.mu, &done, live.Len())
	}
}

// recheckLate is recheckIf for a hold that Redis has just been said to have, in an answer to what was sent at that
// time: the last look may have come between the two. mu is held.
func (hs *holds) recheckLate(rec *record, sent moment) {
	if rec.live() && sent < hs.looked {
		hs.happen(rec, suspected{reasonGone})
	}
}

// shorten moves the deadlines of the holds of some keys earlier by that much: at a new master whose clock is ahead of
// the former one's locks end earlier, because Redis keeps the time at which a key expires, not its lease.
func (hs *holds) shorten(by time.Duration, then time.Time, some func(key string) bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for key, live := range hs.byKey {
		if !some(key.Key) {
			continue
		}
		for rec := range live.All() {
			hs.happen(rec, shortened{by, hs.moment(then)})
		}
	}
}
