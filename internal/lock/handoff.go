package lock

import (
	"runtime"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// When a holder gives the lock back and the next waiter stands on this proxy, one script moves it from owner to owner.
// This is lock cohorting (Dice, Marathe, Shavit 2012); turns.go keeps the turns of other proxies and of Redisson.

// handoffReaders is the most readers that one script lets in.
const handoffReaders = 32

// inARowBefore are the grants before a new hold: a reader that comes to others continues the longest row of theirs. mu
// is held.
func (hs *holds) inARowBefore(a *acquire) handoffsInARow {
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
	lines  *lines
	line   *line
	to     []successor
	inARow handoffsInARow // before this one
}

// successor is a waiter that was claimed, and what it asks for.
type successor struct {
	*waiter
	ask *acquire
}

// claim picks the waiters that are next and may be handed the lock that id gives back, whose record is own, if it has
// one; nil = nobody here.
func (ls *lines) claim(id lockstore.ID, own *record) *handoff {
	h := ls.pickNext(id, own)
	if h == nil {
		return nil
	}
	for i, w := range h.to {
		var rec *record
		if w.r.Owner == "" {
			if rec = ls.holds.tryEnter(w.c, w.id); rec == nil {
				for j := range h.to[i:] {
					h.offerNothing(i + j)
				}
				h.to = h.to[:i]
				break
			}
		}
		h.to[i].ask = w.c.newAcquire(rec, w.r, w.waiter)
		h.Asks = append(h.Asks, &h.to[i].ask.Acquire)
	}
	if len(h.to) == 0 {
		return nil
	}
	return h
}

// pickNext claims the waiters that are next. Each of them waits for its offer then.
func (ls *lines) pickNext(id lockstore.ID, own *record) *handoff {
	inARow, shared := ls.holds.releasing(id, own)
	if shared || ls.draining() {
		return nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byKey[id.Line().Fairly()] // the fair queue comes first
	if l == nil {
		l = ls.byKey[id.Line()]
	}
	if l == nil {
		return nil
	}
	h := &handoff{lines: ls, line: l, inARow: inARow, Handoff: lockstore.Handoff{Line: l.key}}
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
		h.to = append(h.to, successor{waiter: w})
	}
	if len(h.to) == 0 {
		return nil
	}
	if h.Turn = !l.key.Fair && h.inARow.over(l.last, time.Now()); h.Turn {
		l.heard.forget() // afterGrant sees by those that come from now on whether somebody has used the turn
	}
	return h
}

// releasing notes that a hold is about to be given back, and returns the grants before it. shared says that another
// owner of this proxy goes on holding the lock, so that it is not free after this.
func (hs *holds) releasing(id lockstore.ID, own *record) (inARow handoffsInARow, shared bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if own != nil {
		own.releasing, inARow = true, own.inARow
	}
	if id.Kind.Spec().RW {
		for other := range hs.byKey[id.Line()].All() {
			if other != own && !other.releasing {
				return inARow, true
			}
		}
	}
	return inARow, false
}

// pauseAt is the longest pause of lines that ended with the grant of a hold of this lock.
func (hs *holds) pauseAt(key lockstore.LineKey) (pause time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for rec := range hs.byKey[key].All() {
		pause = max(pause, rec.pause)
	}
	return pause
}

// keepPause keeps the pause of a line that has ended, for the next one.
func (hs *holds) keepPause(id lockstore.ID, pause time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if rec := hs.byID[id.Hold()]; rec != nil {
		rec.pause = pause
	}
}

// given tells the waiters what each has got.
func (h *handoff) given(done lockstore.Released, err error) {
	if err == nil {
		h.lines.noteGrants(h, done.Turn, done.Given[0].Code == lockstore.Granted)
	}
	for i, w := range h.to {
		got := lockstore.Acquired{Final: done.Final}
		if err == nil {
			got = done.Given[i]
		}
		granted := got.Code == lockstore.Granted
		if granted || lockstore.Unknown(err) {
			w.offer <- offer{acquire: w.ask, got: got, err: err}
			if granted {
				h.lines.holds.counts.handedOff.Add(1, w.id.Kind.String(), "")
			}
			continue
		}
		if w.ask.rec != nil {
			h.lines.holds.leave(w.ask.rec)
		}
		h.offerNothing(i)
	}
	runtime.Gosched() // those who wait next are answered before the one who has given the lock back
}

// offerNothing lets a waiter that was claimed go on by itself. Unless it is the first it may yet share the lock with
// those claimed before it.
func (h *handoff) offerNothing(i int) {
	h.to[i].offer <- offer{}
	if i > 0 {
		h.line.Wake()
	}
}

// noteGrants keeps count of the grants in a row.
func (ls *lines) noteGrants(h *handoff, turn, given bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case turn:
		h.line.offer(time.Now())
		h.line.tryAt = h.line.holdBack
	case given:
		for _, w := range h.to {
			w.ask.inARow = h.inARow.next()
		}
	}
}
