package lock

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/chain"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/loglimit"
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
	busy      bool          // one step at a time: whoever has set it may talk to Redis about this hold
	releasing bool          // a step that gives it back is under way

	inARow handoffsInARow

	ofClient, atKey         chain.Link[*record]
	inSchedule, inDeadlines int32 // its places in the agendas
}

// holds is what the connections of this proxy hold, until when they can be sure of it, and when something is to be done
// about it. A verb comes here twice: enter, with which its step's values are taken from the hold, and what notes the
// step's outcome and leaves.
type holds struct {
	mu sync.Mutex // guards all below, and what records and clients say it does
	records
}

// records are the holds without their mutex: whoever calls their methods has it.
type records struct {
	terms
	news
	votes bool            // they are on a quorum
	store lockstore.Store // is told of holds that end by themselves

	byID      map[lockstore.ID]*record
	byKey     map[lockstore.LineKey]chain.Chain[*record] // those that are live
	live      int64                                      // how many these are
	looked    moment                                     // when recheckIf last went through those that are live
	schedule  agenda.Agenda[*record]                     // when the watchdog has something to do about each
	deadlines agenda.Agenda[*record]                     // when each ends unless something happens before
}

func newHolds(o ManagerOptions, c *counts) *holds {
	maxHold := min(o.MaxHold, lockstore.Milliseconds(math.MaxInt64)) // a moment has no room for more
	return &holds{records: records{
		terms:     terms{clock: newClock(), watchdog: o.Watchdog, maxHold: maxHold},
		news:      news{c, loglimit.Most(o.Logger, lossesLogged), o.Events},
		byID:      map[lockstore.ID]*record{},
		byKey:     map[lockstore.LineKey]chain.Chain[*record]{},
		schedule:  agenda.New(func(r *record) *int32 { return &r.inSchedule }),
		deadlines: agenda.New(func(r *record) *int32 { return &r.inDeadlines }),
	}}
}

// forEver is how long whoever gives a lock back waits for others at work on it.
const forEver = time.Duration(math.MaxInt64)

// enter is how a step about a connection's hold begins: of the record that pick has found the caller gets the busy
// mark, and begin takes from the hold, at the same moment, what the step goes by. If somebody else has the mark, pick is
// called again after the wait for that, which takes so long at most: a verb whose reply was lost may be at the hold for
// as long as its lease. Both are called with mu held. Without a record, or with an error, there is nothing to leave. No
// begin: the step goes by nothing.
func (hs *holds) enter(ctx context.Context, long time.Duration, pick func() (*record, error), begin func(*record)) (*record, error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var over <-chan time.Time
	for {
		rec, err := pick()
		if rec == nil || err != nil {
			return nil, err
		}
		if hs.tryBusy(rec) {
			if begin != nil {
				begin(rec)
			}
			return rec, nil
		}
		if over == nil {
			timer := time.NewTimer(long)
			defer timer.Stop()
			over = timer.C
		}
		if err := hs.awaitFree(ctx, rec, over); err != nil {
			return nil, err
		}
	}
}

// enterHeld is enter of a hold that is live; nil: it is not.
func (hs *holds) enterHeld(ctx context.Context, id lockstore.ID, long time.Duration, begin func(*record)) (*record, error) {
	return hs.enter(ctx, long, func() (*record, error) {
		if rec := hs.of(id); rec != nil && rec.live() {
			return rec, nil
		}
		return nil, nil
	}, begin)
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

// tryBusy takes the busy mark of a record, if nobody has it.
func (hs *records) tryBusy(rec *record) bool {
	if rec.busy {
		return false
	}
	rec.busy = true
	hs.byID[rec.id] = rec
	return true
}

// of is the record of a connection's hold; nil: there is none.
func (hs *records) of(id lockstore.ID) *record { return hs.byID[id.Hold()] }

// leave gives back the busy mark, after some events have happened to the hold.
func (hs *holds) leave(rec *record, events ...event) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, e := range events {
		hs.happen(rec, e)
	}
	hs.free(rec)
}

// free gives back the busy mark. A hold that the watchdog has passed by while it was busy is visited at once: the time
// of the visit is over.
func (hs *records) free(rec *record) {
	rec.releasing, rec.busy = false, false
	if rec.freed != nil {
		close(rec.freed)
		rec.freed = nil
	}
	if rec.inSchedule == 0 {
		hs.reschedule(rec)
	}
	hs.forget(rec)
}

// forget drops the record of a hold that is not live, of which Redis has nothing, and on which nobody works.
func (hs *records) forget(rec *record) {
	if rec.busy || rec.live() || rec.clear != 0 {
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
	if rec := hs.of(id); rec != nil {
		return rec.hold
	}
	return hold{}
}

// apply has an event happen to a hold.
func (hs *holds) apply(rec *record, e event) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.happen(rec, e)
}

// happen has an event happen to a hold. It does no I/O.
func (hs *records) happen(rec *record, e event) {
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

// reschedule puts a record where the agendas look at it next.
func (hs *records) reschedule(rec *record) {
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

// putDeadline has watchDeadlines look at a record at that time.
func (hs *records) putDeadline(rec *record, at moment) {
	rec.ends = at
	hs.deadlines.Put(rec, hs.time(at))
}

// list and unlist note that a hold is, or is no longer, one of those that are live.
func (hs *records) list(rec *record) {
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

func (hs *records) unlist(rec *record) {
	key := rec.id.Line()
	live := hs.byKey[key]
	if live.Drop(&rec.atKey); live.Len() == 0 {
		delete(hs.byKey, key)
	} else {
		hs.byKey[key] = live
	}
	hs.live--
	rec.inChunk, rec.releasing = nil, false
	if c := rec.client; c != nil {
		c.holds.Drop(&rec.ofClient)
		c.share.leave()
	}
}

// lose tells everybody who should know of a loss; was is the hold before. It does no I/O.
func (hs *records) lose(rec *record, was hold, reason string, now moment) {
	kind := rec.kindOf(was.counts)
	e := eventOf(events.Loss, time.Now(), rec.id.As(kind))
	e.Held, e.Reason = now.sub(was.granted), reason
	if c := rec.client; c != nil {
		if c.losses.note(rec.id, lossRecord{reason, e.At}) {
			c.info.Close("it has lost more locks than it is told of")
		}
		c.info.Push(Loss{Key: rec.id.Key, Kind: kind, Reason: reason})
		e.Client = c.who()
	}
	hs.ended(rec.id.As(kind), e)
	if rec.clear == 0 { // else they are woken when Redis is told
		hs.store.Vacate(rec.id.As(kind), hs.time(now), hs.time(max(now, rec.sure).add(expirySlack)))
	}
}

// kindOf is the kind of hold as which others see it that count so often: of a read/write lock its writer, if it writes.
func (rec *record) kindOf(c lockstore.Counts) Kind {
	if rec.id.Kind.Spec().RW && c.Writes == 0 {
		return Read
	}
	return rec.id.Kind
}

// count is how many holds are live.
func (hs *holds) count() int64 {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.live
}

// keeps says whether a connection of this proxy has a lock that it is not giving back: its release is yet to come.
func (hs *holds) keeps(key lockstore.LineKey) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return handed(hs.byKey[key])
}

// recheckKey makes the watchdog check every live hold of a key at once: one of them may be newer than what ended the
// others.
func (hs *holds) recheckKey(key lockstore.LineKey, reason string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.suspect(key, reason)
}

// suspect is recheckKey.
func (hs *records) suspect(key lockstore.LineKey, reason string) {
	for rec := range hs.byKey[key].All() {
		hs.happen(rec, suspected{reason})
	}
}

// recheckIf makes the watchdog check, as soon as it can, those live holds for which why gives a reason; why gets their
// key, and what they are suspected for already. Of a lock that is granted between two pieces grant sees to that.
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
