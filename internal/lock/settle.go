package lock

import (
	"context"
	"errors"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// A mutating script whose reply was lost is never sent again blindly. Once Redis' clock has passed its not-after it can no
// longer run; only then what Redis holds says whether it was done. For a connection as owner the count tells, since nobody else
// changes it, and a LOCK that enters a hold again makes none if that has gone (lockstore.NoHold). A named owner has the lock or not, and may be
// at work through other connections and proxies: LOCK may be sent again, and so may UNLOCK while the registration says that it is the same hold.

// settled is the outcome of a request.
type settled struct {
	lockstore.Acquired
	registered bool  // Redis has the registration that the request asked for; so it may be with an error, too
	err        error // errNotDone: the request was not done and never will be; or it asked for a fencing token, which nobody knows
}

// findOutcome finds out how an acquire ended.
func (a *acquire) findOutcome() settled {
	s, err := a.c.m.store.Look(a.ID, a.Named, a.notAfter, a.lasts().Add(5*time.Second))
	if err != nil {
		return settled{err: err}
	}
	var done bool
	switch {
	case a.Named:
		done = s.Count > 0
	case a.Count == 0:
		done = s.Count == 1 // more: a hold that was lost before, and this request was not done
	default:
		done = s.Count > a.Count
	}
	ours := !a.Named || a.fresh && s.Registration.NamesAlone(a.Registration) // else its owner may have had it before, or count on it elsewhere
	if !done || a.r.Fence && ours && s.Token == 0 {
		return settled{err: errNotDone} // of a FENCE: or its token is not known
	}
	ans := lockstore.Acquired{Code: lockstore.Granted, Count: s.Count, TTL: s.TTL, Sent: s.At}
	if a.r.Fence && !ours {
		return settled{Acquired: ans, registered: s.Registration.Names(a.Registration), err: errNotDone} // its token may be another LOCK's
	}
	if ours {
		ans.Raised = true
	}
	if a.r.Fence {
		ans.Token = s.Token
	}
	return settled{Acquired: ans, registered: s.Registration.Names(a.Registration)}
}

// lasts is until when the owner may have the lock: by this request, or since before it.
func (a *acquire) lasts() time.Time {
	return lockstore.Later(a.c.m.holds.snapshot(a.h).deadline, time.Now().Add(lockstore.Milliseconds(a.Lease)))
}

// abandon ends an acquire whose client got an error or has gone: a grant nobody heard of is given back. What a named owner had
// before, or counts on elsewhere, stays as it is.
func (a *acquire) abandon(s settled) {
	defer a.c.m.giveBacks.readEnded(a.ID) // when it has left the hold
	defer a.c.m.holds.leave(a.h)
	if s.registered && !s.Raised {
		a.uphold(s.Acquired)
		return
	}
	if s.err != nil || s.Code != lockstore.Granted || !s.Raised {
		return
	}
	rel := a.c.m.giveBacks.newRelease(a.h, nil, a.Count == 0)
	rel.Count, rel.Alone, rel.Registration, rel.until = s.Count, a.Named, a.Registration, until(s.Acquired)
	if code, left, err := rel.complete(); err == nil {
		a.c.m.holds.released(a.h, a.c, code, left)
	}
}

// patiently runs work, which finds out how a request ended, and waits for it. When the client goes or patience ends
// first, ok is false and abandon is given the result later.
func patiently[T any](ctx context.Context, l *life, work func() T, abandon func(T)) (result T, ok bool) {
	return outlast(ctx, l, patience, nil, work, abandon)
}

// outlast is patiently for a patience of its own, which also ends when end is closed.
func outlast[T any](ctx context.Context, l *life, long time.Duration, end <-chan struct{}, work func() T, abandon func(T)) (result T, ok bool) {
	done, quit := make(chan T), make(chan struct{})
	l.background(func() { workFor(done, quit, work, abandon) })
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case result = <-done:
		return result, true
	case <-timer.C:
	case <-end:
	case <-ctx.Done():
	}
	close(quit)
	return result, false
}

// workFor runs work and sends the result to done, or calls abandon with it once quit is closed, because nobody waits for it any more.
func workFor[T any](done chan<- T, quit <-chan struct{}, work func() T, abandon func(T)) {
	v := work()
	select {
	case done <- v:
	case <-quit:
		abandon(v)
	}
}

// remaining is for how long whoever asked for the lock waits for it in any case; 0: it does not wait, or not any more.
func (w *waiter) remaining() time.Duration {
	switch {
	case w == nil:
		return 0
	case w.r.Block == 0:
		return math.MaxInt64
	}
	return max(0, lockstore.Milliseconds(w.r.Block)-time.Since(w.since))
}

// awaitOutcome is the outcome of an acquire whose reply was lost. A verb that waits for the lock waits for this, too, however long
// Redis is away; others get an error after patience.
func (a *acquire) awaitOutcome(ctx context.Context) (settled, bool) {
	m := a.c.m
	for {
		left := a.w.remaining()
		if left <= patience {
			return patiently(ctx, m.life, a.findOutcome, a.abandon)
		}
		done, ok := outlast(ctx, m.life, left, m.drained, a.findOutcome, a.abandon)
		if !ok || done.err == nil || errors.Is(done.err, errNotDone) {
			return done, ok
		}
	}
}

// lookAtAll asks a quorum whether what a named owner has was taken over while other locks were waited for. It takes some time to be sure of
// that, and the leases, which begin after it, are to begin together.
func (b *multiLock) lookAtAll(ctx context.Context) {
	if b.r.Owner == "" || !b.c.m.store.Rules().Votes || time.Since(b.began) < round {
		return
	}
	var group errgroup.Group
	group.SetLimit(releaseAtOnce)
	for _, t := range b.taken {
		group.Go(func() error { return b.c.m.watchdog.lookAgain(ctx, t.id, true, patience) })
	}
	_ = group.Wait() // whoever sets the lease looks again, and returns the error
}
