package lock

import (
	"context"
	"time"
)

const (
	// Tick is the shortest time between two looks at the deadlines: losses that come due meanwhile are reported
	// together.
	tick = 2 * time.Millisecond
	// tellAtOnce is how many losses are reported before others get a chance at holds.mu: about a millisecond.
	tellAtOnce = 256
)

// watchDeadlines ends the holds whose time is over, and tells their holders, until ctx ends. It does no I/O and waits
// for nothing but holds.mu, which nobody holds for long, so that a Redis that does not answer delays no report.
func (hs *holds) watchDeadlines(ctx context.Context) { rounds(ctx, hs.deadlines.Wake, hs.tellLosses) }

// rounds calls look whenever the time that it has returned is over, or something wakes it, until ctx ends.
func rounds(ctx context.Context, wake <-chan struct{}, look func() (next time.Duration)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(look())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-wake:
		}
	}
}

// tellLosses ends holds that are due, and says in how long to come again: at once after tellAtOnce, so that others do
// not wait for mu for long.
func (hs *holds) tellLosses() (next time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now := hs.now()
	for range tellAtOnce {
		rec, over := hs.deadlines.Due(hs.time(now))
		if !over {
			return hs.deadlines.Sleep(tick)
		}
		if at := rec.due(hs.terms); at > now { // it was put off
			hs.putDeadline(rec, at)
		} else {
			hs.deadlines.Drop(rec)
			hs.happen(rec, overdue{})
		}
	}
	return 0
}
