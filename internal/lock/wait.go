package lock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// wait stands in line until the lock is ours, the time for that is over, the client goes, or the proxy drains. place is
// the proxy's among those that are woken, if the waiter's first try has entered it.
func (w *waiter) wait(ctx context.Context, place int64) (g Grant, err error) {
	m := w.c.m
	_, span := telemetry.Span(ctx, "wait")
	defer span.End()
	// The subscription comes before the try that follows it, so that no unlock falls between.
	m.lines.join(w, place)
	defer func() { m.lines.leave(w, err == nil) }()
	if err := m.deadlock(ctx, w); err != nil {
		return Grant{}, err
	}

	var over <-chan time.Time
	if w.r.Block > 0 {
		timer := time.NewTimer(lockstore.Milliseconds(w.r.Block) - time.Since(w.since))
		defer timer.Stop()
		over = timer.C
	}
	g, err = w.stand(ctx, over)
	switch {
	case errors.Is(err, ErrNotAcquired):
		err = cmp.Or(w.trouble, err)
	case lockstore.Unknown(w.trouble) && lockstore.RefusedByRedis(err): // a refusal tells nothing of the try before
		err = w.trouble
	}
	return g, err
}

// stand waits in line until the verb has the lock, or its wait ends.
func (w *waiter) stand(ctx context.Context, over <-chan time.Time) (Grant, error) {
	m := w.c.m
	for {
		if err := w.listen(ctx, over); err != nil {
			return Grant{}, err
		}
		e := w.next(ctx, over)
		var g Grant
		var err error
		switch {
		case e.offer.acquire != nil:
			g, err = e.offer.acquire.finish(ctx, e.offer.got, e.offer.err)
		case e.ended != nil:
			return Grant{}, e.ended
		case !e.tries:
			continue
		default:
			g, err = w.c.try(ctx, w.r, w, always)
		}
		switch {
		case err == nil:
		case errors.Is(err, ErrNotAcquired):
			w.trouble = nil
		case !lockstore.Passing(err):
			w.line.Wake() // the next head acts on what woke us
			return Grant{}, err
		case !lockstore.Unknown(w.trouble):
			w.trouble = err
		}
		if m.lines.tried(w, g, err); err == nil {
			return g, nil
		}
		if e.ended != nil {
			return Grant{}, e.ended
		}
	}
}

// arrival is what came to a waiter: an offer, the time to try, or an end, which may come together with an offer.
type arrival struct {
	offer offer
	tries bool
	ended error
}

// next waits for the next event.
func (w *waiter) next(ctx context.Context, over <-chan time.Time) arrival {
	m := w.c.m
	var e arrival
	woken, offered := false, false
	wake, hearsay := m.lines.park(w)
	select {
	case e.offer = <-w.offer:
		offered = true
	case <-w.changed:
	case <-wake:
		woken = true
	case <-hearsay:
		m.lines.heard(w.line)
	case <-w.timer.C:
	case <-over:
		e.ended = ErrNotAcquired
	case <-ctx.Done():
		e.ended = ctx.Err()
	case <-m.drained:
		e.ended = errDraining
	}
	if m.lines.unpark(w) == claimed && !offered {
		e.offer = <-w.offer // which comes for sure, and is taken first
	}
	e.tries = m.lines.mayTry(w, woken, e.offer.acquire == nil && e.ended == nil)
	return e
}

// heard sets when the head tries after a message on the lock's channel: soon, but if others wait not all at once, since
// one of them may have been told.
func (ls *lines) heard(l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if soon := time.Now().Add(jitter.N(1 + time.Duration(l.others)*hearsayApart)); soon.Before(l.tryAt) {
		l.tryAt = soon
	}
}

// unpark says what a waiter was at. Nobody claims it from now on.
func (ls *lines) unpark(w *waiter) (was waiterState) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	was, w.state = w.state, trying
	return was
}

// mayTry says whether it is time for a waiter to try, if it has nothing else to do, and sees to it that somebody acts
// on what has woken it.
func (ls *lines) mayTry(w *waiter, woken, idle bool) (tries bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, first, now := w.line, w.first(), time.Now()
	due := w.called || first && !now.Before(l.holdBack) && (woken || !now.Before(l.tryAt))
	tries, w.called = due && idle, false
	switch {
	case tries && first:
		forget(l.wake) // the try acts on it
	case woken:
		l.Wake() // it is not acted on here
	}
	return tries
}

// park lets a waiter be claimed, and sets when it is to try. What wakes it comes over the channel that is returned, if
// it is the head, and so does what other proxies may have been told.
func (ls *lines) park(w *waiter) (wake, hearsay <-chan struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := w.line
	if w.r.Replicas == 0 { // a lock that is handed on waits for no replicas
		w.state = parked
	}
	if !w.first() {
		w.timer.Stop()
		return nil, nil
	}
	if w.hears == nil {
		retry.Wake(w.changed) // it has become the head since it listened
	}
	if hold := time.Until(l.holdBack); hold > 0 {
		w.timer.Reset(hold)
		return nil, nil
	}
	w.timer.Reset(max(0, time.Until(l.tryAt)))
	return l.wake, l.hearsay
}

// listen waits until the channel is subscribed to that wakes the head of a line, when the waiter has become that. It is to
// try at once then, since a message may have been missed, unless a client of this proxy has the lock for itself: the
// release of that is yet to come, and wakes it.
func (w *waiter) listen(ctx context.Context, over <-chan time.Time) error {
	ls := w.c.m.lines
	if !ls.subscribe(w) {
		return nil
	}
	err := w.hears.Ready(ctx, over)
	if err == nil && !w.r.Fair {
		err = w.line.own.Ready(ctx, over)
	}
	switch {
	case errors.Is(err, lockstore.ErrOver):
		return ErrNotAcquired
	case err == nil:
		ls.listens(w)
	}
	return err
}

// listens sets when the head of a line tries that listens now. Of one that listens before it is the head no message can have been missed: its
// turn in the fair queue comes after the head's.
func (ls *lines) listens(w *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case !w.first():
	case w.r.Kind == Limit || !ls.holds.keeps(w.id.Line()):
		w.line.tryAt = time.Time{}
	case w.line.tryAt.IsZero():
		w.line.tryNext(-1, ls.opts.Poll)
	}
}

// subscribe makes the subscriptions of a waiter that has become the head of its line, or is the next one in a fair line; false: it is neither, or has
// them.
func (ls *lines) subscribe(w *waiter) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := w.line
	next := l.key.Fair && w.place.Prev() == l.waiters.Front()
	if !w.first() && !next || w.hears != nil || w.called {
		return false
	}
	if w.hears = &l.subscription; l.key.Fair {
		own := ls.store.Subscribe(w.ownChannel(), l.wake)
		w.hears = &own
	}
	return true
}
