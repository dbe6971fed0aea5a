package lock

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// acquire is one request for a lock: a step, and what the engine knows of it.
type acquire struct {
	lockstore.Acquire
	c      *Client
	r      Request
	w      *waiter        // the waiter that it is for; nil: the verb does not wait
	rec    *record        // the connection's; nil: of a named owner, of which nothing is kept here
	busy   bool           // the record is, until it is left
	again  bool           // the connection has the lock already
	inARow handoffsInARow // those before it, if it is handed the lock
}

// newAcquire is a request for a verb that waits as w, or (nil) does not wait. place is as placeOf says.
func (c *Client) newAcquire(r Request, w *waiter, place int64) *acquire {
	a := &acquire{c: c, r: r, w: w, Acquire: lockstore.Acquire{
		ID: c.id(r.Kind, r.DB, r.Key, r.Owner), Lease: r.lease(c.m.opts), Limit: max(1, r.Limit), Fence: r.Fence, Blocks: r.Blocks,
		Replicas: r.Replicas, ReplicaWait: r.within(time.Second), Patience: r.within(time.Minute),
	}}
	if r.Owner != "" && (r.joins || r.Replicas > 0) {
		a.There = lockstore.Joins
	}
	if w != nil {
		a.Queues, a.Place = r.Fair, place
		if w.line != nil {
			a.Patience, a.Splits = 0, w.splits // the waiter asks again soon
		}
	}
	return a
}

// goBy takes from the connection's hold what the step is to make of it. holds.mu is held.
func (a *acquire) goBy(rec *record) {
	h := rec.wanted()
	a.rec, a.busy, a.again = rec, true, h.live()
	a.Counts = h.counts.With(a.ID.Kind, h.counts.Of(a.ID.Kind)+1)
	a.Lease = a.r.lease(a.c.m.opts)
	if hs := a.c.m.holds; a.again { // a hold has one lease, and the key of a new read hold is to last as long
		a.Lease = max(a.Lease, h.asserts(hs.now(), hs.terms).Milliseconds())
	}
}

// within is a time for a part of the request's work: at most so long, within BLOCK, and within half of the lease, so
// that the rest of it is of use.
func (r Request) within(most time.Duration) time.Duration {
	if left := r.left(nil); left > 0 {
		most = min(most, left)
	}
	if r.Lease > 0 {
		most = min(most, lockstore.Milliseconds(r.Lease)/2)
	}
	return most
}

// left is for how long a verb waits in any case that waits as w, or (nil) has just come; 0: it does not wait, or not any
// more.
func (r Request) left(w *waiter) time.Duration {
	switch {
	case !r.Blocks:
		return 0
	case r.Block == 0:
		return math.MaxInt64
	case w == nil:
		return lockstore.Milliseconds(r.Block)
	}
	return max(0, lockstore.Milliseconds(r.Block)-time.Since(w.since))
}

// try asks Redis once, for a verb that waits as w, or (nil) does not wait. may says why not, if it is not to: it is told
// whether the connection is in the lock already.
func (c *Client) try(ctx context.Context, r Request, w *waiter, may func(inside bool) error) (Grant, error) {
	a := c.newAcquire(r, w, c.m.lines.placeOf(w))
	var err error
	if r.Owner != "" {
		err = may(false)
	} else {
		// It is made without the mutex, since whoever needs memory may have to work for the collector.
		hs, made := c.m.holds, &record{id: a.ID.Hold(), client: c}
		_, err = hs.enter(ctx, max(patience, r.left(w)), func() (*record, error) {
			if lost := c.losses.tell(r.DB, r.Key, true); lost != nil {
				return nil, lost
			}
			rec := cmp.Or(hs.of(made.id), made)
			return rec, may(rec.inside())
		}, a.goBy)
	}
	if err != nil {
		return Grant{}, err
	}
	got, err := a.ask(ctx)
	return a.finish(ctx, got, err)
}

// ask sends the request. If Redis does not have the hold that was to be taken once more, that is lost. The connection
// is told, unless the hold has ended when it was to end: then a new one is asked for.
func (a *acquire) ask(ctx context.Context) (lockstore.Acquired, error) {
	got, err := a.c.m.store.Acquire(ctx, &a.Acquire)
	if err != nil || got.Code != lockstore.NoHold {
		return got, err
	}
	if lost := a.c.m.holds.anew(a, gone{}); lost != nil {
		return got, lost
	}
	return a.c.m.store.Acquire(ctx, &a.Acquire)
}

// anew has the step ask for a new hold after the one that was to be taken once more has ended; the error is the
// LOCKLOST of which the connection is to be told instead.
func (hs *holds) anew(a *acquire, ends ...event) error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, e := range ends {
		hs.happen(a.rec, e)
	}
	if lost := a.c.losses.tell(a.r.DB, a.r.Key, true); lost != nil {
		return lost
	}
	a.goBy(a.rec)
	return nil
}

// finish makes a verb's answer from what Redis said, if anything, and leaves the record.
func (a *acquire) finish(ctx context.Context, got lockstore.Acquired, err error) (Grant, error) {
	got, err = a.settle(ctx, got, err)
	if a.busy {
		a.c.m.holds.leave(a.rec)
	}
	return got, err
}

// settle is finish of a record that stays busy, unless the lock was granted.
func (a *acquire) settle(ctx context.Context, got lockstore.Acquired, err error) (Grant, error) {
	if lockstore.Unknown(err) {
		if a.Queues {
			a.w.final = lockstore.Later(a.w.final, got.Final)
		}
		if hs := a.c.m.holds; a.busy {
			hs.apply(a.rec, unanswered{hs.moment(got.Final), lockstore.Milliseconds(a.Lease)})
		}
	}
	if a.again && lockstore.WrongType(err) {
		got.Code, err = lockstore.OtherKind, nil
	}
	if err != nil {
		return Grant{}, err
	}
	switch got.Code {
	case lockstore.Refused:
		return got, ErrNotAcquired
	case lockstore.OtherKind:
		if a.again { // Redis says something else than was known
			a.c.m.holds.apply(a.rec, suspected{reasonGone})
		}
		return Grant{}, otherKind(a.r.Key)
	case lockstore.Upgrade:
		return Grant{}, wouldWaitForItself(a.r.Key)
	case lockstore.NoHold: // it was lost once more
		return Grant{}, ErrNotAcquired
	}
	if why := a.unusable(ctx, got); why != nil {
		a.undo(ctx, got)
		return Grant{}, why
	}
	if a.rec == nil {
		return a.settleNamed(ctx, got)
	}
	if a.c.m.holds.grant(a, got) {
		a.busy = false
		return got, nil
	}
	undone := a.undo(ctx, got)
	switch lost := a.c.m.holds.anew(a); {
	case lost != nil:
		return Grant{}, lost
	case !undone: // what gives back the hold may yet come after a new one
		return Grant{}, ErrNotAcquired
	}
	got, err = a.ask(ctx) // the hold has ended when it was to end
	return a.settle(ctx, got, err)
}

// settleNamed is settle of a grant to a named owner.
func (a *acquire) settleNamed(ctx context.Context, got lockstore.Acquired) (Grant, error) {
	if a.There == lockstore.Joins && !a.r.joins && !got.Made { // replicas enough have it: now it is lengthened
		a.There, a.Replicas, a.r.Replicas, a.Fence = "", 0, 0, false
		again, err := a.ask(ctx)
		again, err = a.settle(ctx, again, err)
		again.Token = got.Token
		return again, err
	}
	a.c.m.leases.note(a.c, a.ID, lockstore.Milliseconds(a.r.Lease), got.Until())
	a.c.m.lines.callOwner(a.ID)
	return got, nil
}

// unusable is why a grant does not count; nil: it does.
func (a *acquire) unusable(ctx context.Context, got lockstore.Acquired) error {
	switch {
	case got.Acked < a.r.Replicas:
		return &Error{Code: "NOREPLICAS", Text: fmt.Sprintf(
			"%d of %d replicas had the lock in time; it was given back if this had made it", got.Acked, a.r.Replicas)}
	case a.c.hasLeft(ctx, a.r.Blocks):
		return context.Canceled
	case (a.There == "" || got.Made) && !time.Now().Before(got.Until()):
		return ErrNotAcquired // the answer took longer than the lease: nobody may rely on it
	}
	return nil
}

// hasLeft says whether the client of a verb has gone, so that it cannot be told of a grant any more. Of one that waits
// the connection is asked.
func (c *Client) hasLeft(ctx context.Context, waits bool) bool {
	return ctx.Err() != nil || waits && c.info.Gone()
}

// undo gives back a grant that does not count and that nobody was told of: what a connection had before stays, and what
// a named owner had. done says that Redis has given back what the connection got. A hold that was lost is given
// back once the connection can no longer count on it: see hold.lost.
func (a *acquire) undo(ctx context.Context, got lockstore.Acquired) (done bool) {
	m := a.c.m
	if a.rec == nil {
		m.giveBacks.takeBack(a.ID, got)
		return false
	}
	hs := m.holds
	h, final := hs.peek(a.ID).wanted(), hs.now()
	if h.live() || h.clear <= final {
		rel := &lockstore.Release{ID: a.ID, Counts: h.counts, Whole: !h.live()}
		released, err := m.store.Release(ctx, rel)
		if err == nil {
			return true
		}
		final = hs.moment(released.Final)
	}
	hs.apply(a.rec, unanswered{final, lockstore.Milliseconds(max(got.TTL, a.Lease))})
	return false
}

// grant notes a grant to a connection, and leaves the record. It returns false, and does nothing, if the hold that was
// to be taken once more was reported lost while the request was under way: it stays lost.
func (hs *holds) grant(a *acquire, got lockstore.Acquired) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	first := a.Counts.Total() == 1
	if !first && !a.rec.live() {
		return false
	}
	if first {
		a.rec.inARow = hs.inARowBefore(a)
		a.c.losses.take(a.ID.DB, a.ID.Key)
	}
	sent := hs.moment(got.Sent)
	hs.happen(a.rec, acquired{a.Counts, lockstore.Milliseconds(a.r.Lease), lockstore.Milliseconds(got.TTL), sent})
	if sent < hs.looked { // recheckIf may have come between Redis' answer and this
		hs.happen(a.rec, suspected{reasonGone})
	}
	if first { // locks of several kinds are never at one key together
		for _, other := range lockstore.HoldKinds {
			if other != a.rec.id.Kind {
				hs.suspect(a.ID.As(other).Line(), reasonGone)
			}
		}
	}
	hs.free(a.rec)
	return true
}
