package lock

import (
	"cmp"
	"runtime"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// When a holder gives the lock back and the next waiter stands on this proxy, one script moves it from owner to owner.
// This is lock cohorting (Dice, Marathe, Shavit 2012); turns.go keeps the turns of other proxies and of Redisson.

// handoffReaders is the most readers that one script lets in.
const handoffReaders = 32

// inARowBefore are the grants before a new hold: a reader that comes to others continues the longest row of theirs.
func (hs *records) inARowBefore(a *acquire) handoffsInARow {
	s := a.inARow
	if a.ID.Kind.Spec().Shared {
		for other := range hs.byKey[a.ID.Line()].All() {
			if other.inARow.grants > s.grants {
				s = other.inARow
			}
		}
	}
	if s.grants == 0 {
		s.since = time.Now()
	}
	return s
}

// offer is what a waiter that was claimed gets: the answer to an acquire that somebody else sent for it, or nothing.
type offer struct {
	acquire *acquire
	got     lockstore.Acquired
	err     error
}

// handoff is one release that hands the lock to those who wait next.
type handoff struct {
	lockstore.Handoff
	lines *lines
	line  *line
	to    []*acquire // of the waiters that were claimed
}

// claim picks the waiters that are next and may be handed the lock that is given back; nil: nobody here.
func (ls *lines) claim(u *unlocking) *handoff {
	h := ls.pickNext(u)
	if h == nil {
		return nil
	}
	for i, a := range h.to {
		if a.r.Owner == "" && !ls.holds.tryEnter(a) {
			for j := range h.to[i:] {
				h.offerNothing(i + j)
			}
			h.to = h.to[:i]
			break
		}
		h.Asks = append(h.Asks, &a.Acquire)
	}
	if len(h.to) == 0 {
		return nil
	}
	return h
}

// pickNext claims the waiters that are next. Each of them waits for its offer then.
func (ls *lines) pickNext(u *unlocking) *handoff {
	if ls.draining() {
		return nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := cmp.Or(ls.byKey[u.ID.Line().Fairly()], ls.byKey[u.ID.Line()]) // the fair queue comes first
	if l == nil {
		return nil
	}
	h := &handoff{lines: ls, line: l, Handoff: lockstore.Handoff{Line: l.key}}
	kind, most := l.waiters.Front().Value.(*waiter).id.Kind, 1
	if kind.Spec().Shared {
		most = handoffReaders
	}
	for at := l.waiters.Front(); at != nil && len(h.to) < most; at = at.Next() {
		w := at.Value.(*waiter)
		if w.state != parked || w.id.Kind != kind || w.ctx.Err() != nil {
			break
		}
		w.state = claimed
		a := w.c.newAcquire(w.r, w, w.asksAt())
		a.inARow = u.inARow.next()
		h.to = append(h.to, a)
	}
	if len(h.to) == 0 {
		return nil
	}
	if h.Turn = !l.key.Fair && u.inARow.over(l.waiters.Len(), time.Now()); h.Turn {
		h.Others = u.inARow.long(time.Now())
		forget(l.wake) // what was heard was about releases before this one
		forget(l.hearsay)
	}
	return h
}

// tryEnter begins the step of a connection's waiter that is handed a lock; false: somebody works on its record.
func (hs *holds) tryEnter(a *acquire) bool {
	made := &record{id: a.ID.Hold(), client: a.c}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	rec := cmp.Or(hs.of(made.id), made)
	if !hs.tryBusy(rec) {
		return false
	}
	a.goBy(rec)
	return true
}

// shared says that another owner of this proxy goes on holding a lock that is given back, so that it is not free then.
func (hs *records) shared(id lockstore.ID, own *record) bool {
	if !id.Kind.Spec().RW {
		return false
	}
	for other := range hs.byKey[id.Line()].All() {
		if other != own && !other.releasing {
			return true
		}
	}
	return false
}

// given tells the waiters what each has got.
func (h *handoff) given(done lockstore.Released, err error) {
	if done.Turn != 0 {
		h.lines.leaveTurn(h.line, done.Turn)
	}
	for i, a := range h.to {
		got := lockstore.Acquired{Final: done.Final}
		if err == nil {
			got = done.Given[i]
		}
		switch {
		case lockstore.Unknown(err):
		case got.Code == lockstore.Granted:
			h.lines.holds.counts.handedOff.Add(1, a.ID.Kind.String(), "")
		default:
			if a.busy {
				h.lines.holds.leave(a.rec)
			}
			h.offerNothing(i)
			continue
		}
		a.w.offer <- offer{acquire: a, got: got, err: err}
	}
	runtime.Gosched() // those who wait next are answered before the one who has given the lock back
}

// offerNothing lets a waiter that was claimed go on by itself. Unless it is the first it may yet share the lock with
// those claimed before it.
func (h *handoff) offerNothing(i int) {
	h.to[i].w.offer <- offer{}
	if i > 0 {
		h.line.Wake()
	}
}

// leaveTurn notes that others have a turn now: other proxies, and this one that place among those that are woken, or those
// that have none.
func (ls *lines) leaveTurn(l *line, place int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.tryAt = time.Now().Add(turnLong); place == lockstore.NoPlace {
		l.holdBack = l.tryAt
	} else {
		l.place = place
	}
}
