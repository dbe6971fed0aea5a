package lock

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// acquire is one request for a lock: a step, and what the engine knows of it.
type acquire struct {
	lockstore.Acquire
	c *Client
	r Request
	w *waiter // the waiter that it is for; nil: the verb does not wait
	// The connection's, which is busy meanwhile; nil: of a named owner, of which nothing is kept here.
	rec    *record
	inARow handoffsInARow // those before it, if it is handed the lock
}

func (c *Client) newAcquire(rec *record, r Request, w *waiter) *acquire {
	a := &acquire{c: c, r: r, w: w, rec: rec, Acquire: lockstore.Acquire{
		ID: c.id(r.Kind, r.DB, r.Key, r.Owner), Lease: r.lease(c.m.opts), Fence: r.Fence, Blocks: r.Blocks,
		Replicas: r.Replicas, ReplicaWait: r.within(time.Second), Patience: r.within(time.Minute),
	}}
	if rec == nil && (r.joins || r.Replicas > 0) {
		a.There = lockstore.Joins
	}
	if w != nil {
		a.Queues = r.Fair
		if w.line != nil {
			a.Patience, a.Splits = 0, w.splits // the waiter asks again soon
		}
	}
	a.update()
	return a
}

// update brings the step up to date with what is known now.
func (a *acquire) update() {
	if a.Queues {
		a.Place = a.c.m.lines.ticket(a.w)
	}
	if a.rec == nil {
		return
	}
	h := a.before()
	a.Counts = h.counts.With(a.ID.Kind, h.counts.Of(a.ID.Kind)+1)
	a.Lease = a.r.lease(a.c.m.opts)
	if h.live() { // a hold has one lease, and the key of a new read hold is to last as long
		a.Lease = max(a.Lease, h.asserts(a.c.m.holds.now(), a.c.m.holds.terms).Milliseconds())
	}
}

// before is the connection's hold as it is now. One that is not wanted any more is none: a LOCK begins anew.
func (a *acquire) before() hold {
	h := a.c.m.holds.see(a.rec)
	if h.givenUp {
		return hold{}
	}
	return h
}

// within is a time for a part of the request's work: at most so long, within BLOCK, and within half of the lease, so
// that the rest of it is of use.
func (r Request) within(most time.Duration) time.Duration {
	if r.Blocks && r.Block > 0 {
		most = min(most, lockstore.Milliseconds(r.Block))
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

// refusal is what Redis says of a lock that somebody else has: the time in ms that the holder has left (negative: none
// known), and the place in the fair queue, if the verb waits there. With turn nobody has the lock yet: ttl is for how
// long the waiter whose turn it is counts as alive.
type refusal struct {
	ttl, place int64
	turn       bool
	split      bool // of a quorum: several asked at once, and come again after ttl
}

// try asks Redis once, for a verb that waits as w, or (nil) does not wait.
func (c *Client) try(ctx context.Context, r Request, w *waiter) (Grant, refusal, error) {
	var rec *record
	if r.Owner == "" {
		var err error
		if rec, err = c.m.holds.enter(ctx, c, c.id(r.Kind, r.DB, r.Key, ""), max(patience, r.left(w))); err != nil {
			return Grant{}, refusal{}, err
		}
		if lost := c.told(r.DB, r.Key, true); lost != nil { // it was lost while this waited for others at work on it
			c.m.holds.leave(rec)
			return Grant{}, refusal{}, lost
		}
	}
	a := c.newAcquire(rec, r, w)
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
	a.c.m.holds.apply(a.rec, gone{})
	if lost := a.c.told(a.r.DB, a.r.Key, true); lost != nil {
		return got, lost
	}
	a.update()
	return a.c.m.store.Acquire(ctx, &a.Acquire)
}

// finish makes a verb's answer from what Redis said, if anything, and leaves the record.
func (a *acquire) finish(ctx context.Context, got lockstore.Acquired, err error) (Grant, refusal, error) {
	if a.rec != nil {
		defer a.c.m.holds.leave(a.rec)
	}
	return a.settle(ctx, got, err)
}

// settle is finish of a record that stays busy.
func (a *acquire) settle(ctx context.Context, got lockstore.Acquired, err error) (Grant, refusal, error) {
	if lockstore.Unknown(err) {
		a.unanswered(got.Final)
		return Grant{}, refusal{}, err
	}
	if err != nil {
		return Grant{}, refusal{}, err
	}
	switch got.Code {
	case lockstore.Refused:
		return Grant{}, refusal{got.TTL, got.Place, got.Turn, got.Split}, ErrNotAcquired
	case lockstore.OtherKind:
		a.recheck()
		return Grant{}, refusal{}, otherKind(a.r.Key)
	case lockstore.Upgrade:
		return Grant{}, refusal{}, wouldWaitForItself(a.r.Key)
	case lockstore.NoHold: // it was lost once more
		return Grant{}, refusal{}, ErrNotAcquired
	}
	if why := a.unusable(ctx, got); why != nil {
		a.undo(ctx, got)
		return Grant{}, refusal{}, why
	}
	if a.rec == nil {
		if a.There == lockstore.Joins && !a.r.joins && !got.Made { // replicas enough have it: now it is lengthened
			a.There, a.Replicas, a.r.Replicas, a.Fence = "", 0, 0, false
			again, err := a.ask(ctx)
			g, no, err := a.settle(ctx, again, err)
			g.Token = got.Token
			return g, no, err
		}
		a.c.m.leases.note(a.c, a.ID, lockstore.Milliseconds(a.r.Lease), got.Until())
		a.c.m.lines.callOwner(a.ID)
		return Grant{Token: got.Token, got: got}, refusal{}, nil
	}
	if !a.c.m.holds.grant(a, got) {
		undone := a.undo(ctx, got)
		if lost := a.c.told(a.r.DB, a.r.Key, true); lost != nil {
			return Grant{}, refusal{}, lost
		}
		if !undone { // what gives back the hold may yet come after a new one
			return Grant{}, refusal{}, ErrNotAcquired
		}
		a.update() // the hold has ended when it was to end: a new one is asked for
		got, err = a.ask(ctx)
		return a.settle(ctx, got, err)
	}
	return Grant{Token: got.Token, got: got}, refusal{}, nil
}

// unanswered notes that the reply to the request was lost.
func (a *acquire) unanswered(final time.Time) {
	if a.Queues {
		a.w.final = lockstore.Later(a.w.final, final)
	}
	if a.rec != nil {
		a.c.m.holds.apply(a.rec, unanswered{a.c.m.holds.moment(final), lockstore.Milliseconds(a.Lease)})
	}
}

// recheck has the watchdog come to the connection's hold, of which Redis says something else than was known.
func (a *acquire) recheck() {
	if a.rec != nil && a.before().live() {
		a.c.m.holds.apply(a.rec, suspected{reasonGone})
	}
}

// unusable is why a grant does not count; nil: it does.
func (a *acquire) unusable(ctx context.Context, got lockstore.Acquired) error {
	switch {
	case got.Acked < a.r.Replicas:
		return &Error{Code: "NOREPLICAS", Text: fmt.Sprintf(
			"%d of %d replicas had the lock in time; it was given back if this had made it", got.Acked, a.r.Replicas)}
	case a.c.hasLeft(ctx, a.r):
		return context.Canceled
	case (a.There == "" || got.Made) && !time.Now().Before(got.Until()):
		return ErrNotAcquired // the answer took longer than the lease: nobody may rely on it
	}
	return nil
}

// hasLeft says whether the client of a verb that waits has gone, so that it cannot be told of a grant any more.
func (c *Client) hasLeft(ctx context.Context, r Request) bool {
	return ctx.Err() != nil || r.Blocks && c.info.Gone()
}

// undo gives back a grant that does not count and that nobody was told of: what a connection had before stays, and what
// a named owner had. done says that Redis has given back what the connection got.
func (a *acquire) undo(ctx context.Context, got lockstore.Acquired) (done bool) {
	m := a.c.m
	if a.rec == nil {
		m.giveBacks.takeBack(a.ID, got)
		return false
	}
	before := a.before().counts
	rel := &lockstore.Release{ID: a.ID, Counts: before, Whole: before.Total() == 0}
	released, err := m.store.Release(ctx, rel)
	if err != nil {
		final := m.holds.moment(released.Final)
		m.holds.apply(a.rec, unanswered{final, lockstore.Milliseconds(max(got.TTL, a.Lease))})
	}
	return err == nil
}

// grant notes a grant to a connection. It returns false if the hold that was to be taken once more was reported lost
// while the request was under way: it stays lost.
func (hs *holds) grant(a *acquire, got lockstore.Acquired) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if a.Counts.Total() > 1 && !a.rec.live() {
		return false
	}
	first := a.Counts.Total() == 1
	if first {
		a.rec.inARow = hs.inARowBefore(a)
		a.c.takeLoss(a.ID.DB, a.ID.Key)
	}
	hs.happen(a.rec, acquired{a.Counts, lockstore.Milliseconds(a.r.Lease), lockstore.Milliseconds(got.TTL), hs.moment(got.Sent)})
	hs.recheckLate(a.rec, hs.moment(got.Sent))
	if first {
		hs.suspectOtherKind(a)
	}
	return true
}

// suspectOtherKind has those holds checked that cannot exist beside the one just granted: a plain lock and a read/write
// lock are never at one key together. mu is held.
func (hs *holds) suspectOtherKind(a *acquire) {
	l := a.ID.Line()
	l.RW = !l.RW
	for rec := range hs.byKey[l].All() {
		if !rec.releasing {
			hs.happen(rec, suspected{reasonGone})
		}
	}
}
