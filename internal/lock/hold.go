package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/chain"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// hold is what this proxy knows of one owner's lock. The entry exists while it is held or a verb works on it.
type hold struct {
	id    lockstore.ID
	named bool
	// busy is a mutex with a context: one verb or one renewal at a time, so that a renewal in flight ends before the
	// UNLOCK or the next LOCK is sent. Whoever has it may talk to Redis about this hold.
	busy chan struct{}

	// guarded by holds.mu
	users     int // verbs and renewals that have or wait for busy
	count     int64
	releasing bool // its release has been sent
	leaving   bool // RESET gives it back: whoever waits for busy finds it free
	holder
	leased
	voted
	suspicion
	planned
	streak handoffStreak
	pause  time.Duration     // of the line that had no more waiters when this was granted, for the next one
	atKey  chain.Link[*hold] // while it is live, in holds.byKey
}

// holder is whose hold it is.
type holder struct {
	client     *Client              // the connection that last named this owner for this key; nil when it has gone
	ofClient   chain.Link[*hold]    // in its holds
	by         *taking              // of the MULTILOCK by which that connection got it; nil: by a verb of its own
	lent       map[*taking]struct{} // of the MULTILOCKs under way for which alone it is renewed; nil: there are none, or somebody else wants that
	own        *account             // its namedLosses, also when it has gone
	nth        int64                // the number of the LOCK or RENEW that named this owner last, which no other has
	renewUntil time.Time            // client has gone: no renewals from then on
	doubt      bool                 // never release: an earlier effect of the holder may still happen
}

// leased is how long a hold lasts, and has lasted.
type leased struct {
	registration   lockstore.Registration // of a named owner's hold, as far as it is known here
	watched        bool
	maybeUnrenewed bool          // a RENEW with a lease, whose reply was lost, may have set the mark of a hold that nobody renews
	lease          time.Duration // of the renewals when watched, else as taken
	replicas       int64
	grantedAt      time.Time
	renewedAt      time.Time
	renewals       int64
	deadline       time.Time // we are sure of the lock until then
	asked          time.Time // when that was sent to which Redis has answered so
	mayEnd         time.Time // or, if a RENEW that is under way is done, until then; zero: there is none
	ownEnd         time.Time // when it ends if it is not renewed, and its owner does not read beside it
	maybeCut       bool      // Redis may have less of its lease than its connection was promised
}

// voted is what is known of a hold on a quorum.
type voted struct {
	attempt  string    // under which this proxy's renewals count on the nodes; "": under none
	taken    time.Time // since when another connection seems to have taken it over
	unsure   bool      // the last renewal did not tell: the nodes do not agree, or too few have answered
	unwanted bool      // an UNLOCK without a majority has gone out: when it is gone it was given back, not lost
}

// suspicion is why a hold may not be what it seems.
type suspicion struct {
	suspect   string    // the watchdog only looks whether it is still there; the loss' reason if it is not
	suspected time.Time // since when
	late      time.Time // an unconfirmed renewal may still be done until then
}

// planned is what the watchdog, and watchDeadlines, are to do about a hold.
type planned struct {
	next        time.Time // when the watchdog looks at it
	inChunk     *chunk    // of renewals that has not been sent yet; nil: none
	passed      bool      // a renewal passed it by because a verb was at work on it
	inSchedule  int       // its index in holds.schedule
	ends        time.Time // when watchDeadlines looks at it
	inDeadlines int       // its index in holds.deadlines
}

// holds is what the clients of this proxy hold, until when they can be sure of it, and when something is to be done about it.
type holds struct {
	opts        Options
	store       lockstore.Store // knows the rules and where renewals go, and is told of holds that end by themselves
	namedLosses *namedLosses
	done        *finishedUnlocks
	lossLog     *lossLog

	lost, given, renewals atomic.Int64 // count losses, holds that were given back, and renewals

	mu     sync.Mutex // guards all below, and what the holds and clients say it does
	byID   map[lockstore.ID]*hold
	byKey  map[lockstore.LineKey]chain.Chain[*hold] // those that are live
	grants int64                                    // the last hold.nth that was given out
	looked time.Time                                // when recheckIf last went through those that are live
	timetable
}

func newHolds(o Options, losses *namedLosses, done *finishedUnlocks, log *lossLog) *holds {
	return &holds{
		opts: o, namedLosses: losses, done: done, lossLog: log, timetable: newTimetable(),
		byID:  map[lockstore.ID]*hold{},
		byKey: map[lockstore.LineKey]chain.Chain[*hold]{},
	}
}

// timetable is when something is to be done about holds, whose times and places in it change with what they are. holds.mu guards it.
type timetable struct {
	schedule  agenda.Agenda[*hold] // when the watchdog renews each, or looks at it
	deadlines agenda.Agenda[*hold] // when each is reported lost
}

func newTimetable() timetable {
	return timetable{
		schedule:  agenda.New(func(h *hold) time.Time { return h.next }, func(h *hold) *int { return &h.inSchedule }),
		deadlines: agenda.New(func(h *hold) time.Time { return h.ends }, func(h *hold) *int { return &h.inDeadlines }),
	}
}

// enter gives the caller the hold's busy mark, also when ctx is over if nobody has it; leave gives it back.
func (hs *holds) enter(ctx context.Context, id lockstore.ID, named bool) (*hold, error) {
	hs.mu.Lock()
	h := hs.entry(id, named)
	h.users++
	hs.mu.Unlock()
	select {
	case h.busy <- struct{}{}:
		return h, nil
	default:
	}
	select {
	case h.busy <- struct{}{}:
		return h, nil
	case <-ctx.Done():
		hs.mu.Lock()
		hs.unuse(h)
		hs.mu.Unlock()
		return nil, ctx.Err()
	}
}

// enterSoon is enter for a verb, which waits for others only so long: one whose reply was lost may be at the hold for as long as its lease.
func (hs *holds) enterSoon(ctx context.Context, id lockstore.ID, named bool, long time.Duration) (*hold, error) {
	if h := hs.tryEnter(id, named); h != nil {
		return h, nil
	}
	limited, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	h, err := hs.enter(limited, id, named)
	if err != nil && ctx.Err() == nil {
		err = lockstore.ErrBehind
	}
	return h, err
}

// entry is what is known of a hold, for one who works on it from now on. mu is held.
func (hs *holds) entry(id lockstore.ID, named bool) *hold {
	h := hs.byID[id]
	if h == nil {
		h = &hold{id: id, named: named, busy: make(chan struct{}, 1)}
		hs.byID[id] = h
	}
	return h
}

func (hs *holds) leave(h *hold) {
	hs.mu.Lock()
	hs.free(h)
	hs.mu.Unlock()
}

// free is leave for one who has mu. A renewal that passed the hold by meanwhile comes back to it.
func (hs *holds) free(h *hold) {
	if h.passed && h.count > 0 {
		hs.plan(h, time.Now())
	}
	h.passed = false
	<-h.busy
	hs.unuse(h)
}

func (hs *holds) unuse(h *hold) {
	h.users--
	hs.forget(h)
}

// forget drops the entry of a hold that is not live and that nobody uses. While a renewal without an answer may
// still be done it stays, and the watchdog comes back to it.
func (hs *holds) forget(h *hold) {
	switch {
	case h.users > 0 || h.count != 0 || hs.byID[h.id] != h:
	case h.late.After(time.Now()):
		hs.plan(h, h.late)
	default:
		hs.schedule.Drop(h)
		delete(hs.byID, h.id)
	}
}

// held says whether the hold of id is live.
func (hs *holds) held(id lockstore.ID) bool { return hs.find(id).live }

// snapshot is what was known of a hold at one moment.
type snapshot struct {
	live, doubt bool
	beside      bool // its owner held the other side of a read/write lock, too
	count, nth  int64
	late        time.Time
	leased
	voted
}

// snapshot is what is known of a hold now.
func (hs *holds) snapshot(h *hold) snapshot {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.copy(h)
}

// find is the snapshot of an owner's hold; zero: there is none.
func (hs *holds) find(id lockstore.ID) (s snapshot) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h := hs.byID[id]; h != nil {
		s = hs.copy(h)
	}
	return s
}

// copy is snapshot for one who has mu.
func (hs *holds) copy(h *hold) snapshot {
	n := h.id.Kind.Spec()
	return snapshot{live: h.live(), doubt: h.doubt, beside: n.RW && hs.byID[h.id.As(n.Other)].live(), count: h.count, nth: h.nth, late: h.late, leased: h.leased, voted: h.voted}
}

// promise notes that Redis has answered to what was sent at asked that it has the hold until then. holds.mu is held.
func (h *hold) promise(until, asked time.Time) {
	if until.After(h.deadline) {
		h.deadline, h.asked = until, asked
	}
}

// certainUntil is until when we are sure of a hold. holds.mu is held.
func (h *hold) certainUntil() time.Time {
	if !h.mayEnd.IsZero() && h.mayEnd.Before(h.deadline) {
		return h.mayEnd
	}
	return h.deadline
}

// live says whether a hold, which may be nil, is held and no RESET is giving it back. holds.mu is held.
func (h *hold) live() bool { return h != nil && h.count > 0 && !h.leaving }

// begin makes a hold live or brings it up to date after a grant. mu is held.
func (hs *holds) begin(h *hold, c *Client, count int64) {
	if h.count == 0 {
		h.grantedAt, h.renewedAt, h.doubt, h.watched, h.replicas = time.Now(), time.Time{}, false, false, 0
		h.deadline, h.suspect, h.leaving, h.releasing, h.maybeUnrenewed = time.Time{}, "", false, false, false
		h.renewals, h.lent, h.maybeCut, h.ownEnd = 0, nil, false, time.Time{}
		hs.list(h)
		telemetry.LocksHeld.Add(1)
	}
	h.count, h.unwanted = max(count, 1), false
	h.taken, h.unsure = time.Time{}, false // the registration is this proxy's again
	hs.grants++
	h.nth = hs.grants
	if hs.adopt(h, c); h.named && h.client == nil {
		hs.leaveOwner(h)
	}
}

// adopt makes c the connection whose life keeps the hold watched; none, if that has closed. mu is held.
func (hs *holds) adopt(h *hold, c *Client) {
	if c != nil {
		h.own = c.namedLosses
	}
	if c != nil && c.over {
		c = nil
	}
	if h.client == c {
		return
	}
	if h.client != nil {
		h.client.holds.Drop(&h.ofClient)
		h.client.share.Held(-1)
	}
	h.client = c
	if c == nil {
		return
	}
	c.holds.Add(&h.ofClient, h)
	c.share.Held(1)
}

// end makes a hold no longer live: released, lost, or no longer ours. mu is held.
func (hs *holds) end(h *hold) {
	if h.count == 0 {
		return
	}
	h.count, h.inChunk, h.by = 0, nil, nil
	hs.adopt(h, nil)
	hs.schedule.Drop(h)
	hs.deadlines.Drop(h)
	hs.unlist(h)
	telemetry.LocksHeld.Add(-1)
	hs.forget(h)
}

// list and unlist note that a hold is, or is no longer, one of those that are live at its key. mu is held.
func (hs *holds) list(h *hold) {
	key := h.id.Line()
	live := hs.byKey[key]
	live.Add(&h.atKey, h)
	hs.byKey[key] = live
}

func (hs *holds) unlist(h *hold) {
	key := h.id.Line()
	live := hs.byKey[key]
	if live.Drop(&h.atKey); live.Len() == 0 {
		delete(hs.byKey, key)
	} else {
		hs.byKey[key] = live
	}
}

// count is how many holds are live.
func (hs *holds) count() (n int64) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, live := range hs.byKey {
		n += int64(live.Len())
	}
	return n
}

// any says whether a client of this proxy holds a lock.
func (hs *holds) any(key lockstore.LineKey) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.byKey[key].Len() > 0
}

// stopRenewing ends the renewals of a live hold: it expires with its lease.
func (hs *holds) stopRenewing(h *hold) {
	hs.mu.Lock()
	hs.runOut(h)
	hs.mu.Unlock()
}

// runOut is stopRenewing for one who has mu.
func (hs *holds) runOut(h *hold) {
	if h.count != 0 {
		if h.watched {
			h.watched, h.ownEnd = false, h.deadline
		}
		hs.plan(h, hs.nextLook(h, time.Now()))
	}
}

// plan makes the watchdog renew the hold, or look at it, at the given time. holds.mu is held.
func (t *timetable) plan(h *hold, next time.Time) {
	h.next = next
	t.schedule.Put(h)
	t.noteDeadline(h)
}
