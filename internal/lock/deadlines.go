package lock

import (
	"context"
	"time"
)

const (
	// tick is the shortest time between two looks at the deadlines: losses that come due meanwhile are reported together.
	tick = 2 * time.Millisecond
	// tellAtOnce is how many losses are reported before others get a chance at holds.mu: about a millisecond.
	tellAtOnce = 256
	// reserveMost bounds reserve.
	reserveMost = 2 * time.Second
)

// reserve is how long before its deadline a watched lock is reported lost if no renewal is confirmed. In that time a busy machine
// has to wake the proxy, to report some ten thousand losses, and to bring them to the clients before Redis frees the locks.
func reserve(lease time.Duration) time.Duration { return min(lease/10, reserveMost) }

// lossAt is when a hold is reported lost unless its deadline is put off before that. ok is false when this proxy cannot tell
// that its end is a loss: about a named owner's lock that is not renewed Redis alone decides. holds.mu is held.
func (h *hold) lossAt() (at time.Time, ok bool) {
	switch {
	case h.count == 0 || h.named && !h.watched:
		return time.Time{}, false
	case h.watched:
		if at = h.deadline.Add(-reserve(h.lease)); h.certainUntil().Before(at) {
			at = h.certainUntil() // its owner has chosen it
		}
		return at, true
	default:
		return h.certainUntil(), true // its owner has chosen it
	}
}

// watchDeadlines reports to their holders the locks that were not renewed in time, until ctx ends. It does no I/O and waits for
// nothing but holds.mu, which nobody holds for long, so that a Redis that does not answer delays no report.
func (hs *holds) watchDeadlines(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(hs.tellLosses())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-hs.deadlines.Wake:
		}
	}
}

// tellLosses reports every loss that is due, and says when the next one may be.
func (hs *holds) tellLosses() (next time.Duration) {
	for {
		if next, all := hs.tellSome(time.Now()); all {
			return next
		}
	}
}

// tellSome is tellLosses for at most tellAtOnce, so that others do not wait for mu for long; all says that no other is due.
func (hs *holds) tellSome(now time.Time) (next time.Duration, all bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for range tellAtOnce {
		h, over := hs.deadlines.Due(now)
		if !over {
			return hs.deadlines.Sleep(tick), true
		}
		hs.tellIfOver(h, now)
	}
	return 0, false
}

// tellIfOver decides about a hold whose time may have come: a deadline that was put off is only seen here. mu is held.
func (hs *holds) tellIfOver(h *hold, now time.Time) {
	at, ok := h.lossAt()
	if ok && !at.After(now) && hs.lengthenByRead(h, now) {
		at, ok = h.lossAt()
	}
	switch {
	case !ok:
		hs.deadlines.Drop(h)
	case at.After(now):
		h.ends = at
		hs.deadlines.Put(h)
	case h.watched:
		hs.lose(h, reasonUnrenewed)
	default:
		hs.lose(h, reasonExpired)
	}
}

// noteDeadline makes watchDeadlines look at a hold when its time is over. Nothing needs to be done when the time is put off. holds.mu
// is held.
func (t *timetable) noteDeadline(h *hold) {
	at, ok := h.lossAt()
	if ok && (h.inDeadlines == 0 || at.Before(h.ends)) {
		h.ends = at
		t.deadlines.Put(h)
	}
}
