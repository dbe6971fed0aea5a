package lock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// UnlockRequest is one UNLOCK.
type UnlockRequest struct {
	DB    int
	Key   string
	Side  Kind // Read or Write; Plain = what this owner holds
	Owner string
	All   bool              // every hold of this owner, on that side
	Force bool              // everybody's
	From  []lockstore.Owned // with Force: nobody but these loses the lock; nil: everybody
}

// Unlock gives back one hold, or all. free says that the lock is now free of this owner, on that side (with Force: that
// something was held).
//
// Errors: *Error with NOTHELD, LOCKLOST once (the connection has lost it), LOCKKIND or ERR,
// *upstream.ReplyError with Redis' words, *upstream.NotSentError when Redis cannot be reached (nothing changed).
func (c *Client) Unlock(ctx context.Context, r UnlockRequest) (free bool, err error) {
	ctx, verb := beginVerb(ctx, "UNLOCK", r.Key)
	if r.Force {
		free, err = c.force(ctx, r)
	} else {
		free, err = c.unlock(ctx, r)
	}
	c.ended(ctx, verb, err, c.id(r.Side, r.DB, "", r.Owner), r.Key)
	return free, err
}

func (c *Client) unlock(ctx context.Context, r UnlockRequest) (free bool, err error) {
	if err := c.m.nameable(r.Key); err != nil {
		return false, err
	}
	id := c.id(r.Side, r.DB, r.Key, r.Owner)
	if r.Owner != "" {
		err = c.onNamedSide(id, func(id lockstore.ID) (err error) { free, err = c.unlockNamed(ctx, id); return err })
		return free, err
	}
	err = c.onOwnSide(ctx, id, func(rec *record, id lockstore.ID, was hold) (err error) {
		defer c.m.holds.leave(rec)
		if was.runsOut {
			return &Error{Code: "ERR",
				Text: fmt.Sprintf("not released: an earlier command of this connection may still "+
					"take effect; the lock runs out by itself within %d ms", max(was.sure.sub(c.m.holds.now()).Milliseconds(), 0))}
		}
		left := was.counts.Of(id.Kind) - 1
		if r.All || was.givenUp {
			left = 0
		}
		u := &unlocking{g: c.m.giveBacks, rec: rec, was: was}
		u.ID, u.Counts = id, was.counts.With(id.Kind, left)
		free, err = u.run(ctx)
		return err
	})
	return free && err == nil, err
}

// onOwnSide runs a verb about a lock that the connection has, with its record busy, which the verb leaves. What was
// lost before, or while the verb was under way, is told instead, and stays lost: Redis may have had it for a moment
// longer.
func (c *Client) onOwnSide(ctx context.Context, id lockstore.ID,
	verb func(rec *record, id lockstore.ID, h hold) error) error {
	if lost := c.told(id.DB, id.Key, false); lost != nil {
		return lost
	}
	id, err := c.ownSide(id)
	if err != nil {
		return err
	}
	rec, err := c.m.holds.enter(ctx, c, id, patience)
	if err != nil {
		return err
	}
	h := c.m.holds.see(rec)
	if h.counts.Of(id.Kind) == 0 {
		c.m.holds.leave(rec)
		return c.lostOrNotHeld(id.DB, id.Key)
	}
	err = verb(rec, id, h)
	if lost := c.told(id.DB, id.Key, false); lost != nil {
		return lost
	}
	return err
}

// ownSide is the side of a lock that a verb of the connection is about which may have named none (Plain).
func (c *Client) ownSide(id lockstore.ID) (lockstore.ID, error) {
	isPlain := c.m.holds.peek(id.As(Plain)).live()
	if id.Kind != Plain && isPlain {
		return id, otherKind(id.Key)
	}
	if id.Kind != Plain || isPlain {
		return id, nil
	}
	switch rw := c.m.holds.peek(id.As(Write)).counts; {
	case rw.Reads > 0 && rw.Writes > 0:
		return id, bothSides(id.Key)
	case rw.Reads > 0:
		return id.As(Read), nil
	case rw.Writes > 0:
		return id.As(Write), nil
	}
	return id, nil
}

// unlocking is a lock being given back: a step, and what the engine knows of it. The connection's record is busy
// meanwhile.
type unlocking struct {
	lockstore.Release
	g    *giveBacks
	rec  *record // nil: of a named owner
	was  hold    // before
	next *handoff
	done lockstore.Released
}

// run gives back what the step says, and hands the lock on if it is free then. free says that the owner has nothing
// left on that side.
func (u *unlocking) run(ctx context.Context) (free bool, err error) {
	frees := u.Counts.Total() == 0
	if frees && !u.g.holds.votes { // the nodes of a quorum hand nothing on
		u.next = u.g.lines.claim(u.ID, u.rec)
	}
	err = u.send(ctx)
	if u.rec == nil {
		return u.done.Code == lockstore.Freed, err
	}
	hs := u.g.holds
	// Nobody else writes the connection's field: if it has gone after a request without an answer, that request was
	// done.
	doneBefore := u.done.Again || u.was.givenUp
	switch code := u.done.Code; {
	case err != nil:
		hs.apply(u.rec, notUnlocked{u.Counts, lockstore.Unknown(err), hs.moment(u.done.Final)})
	case code == lockstore.Freed, code == lockstore.StillHeld, frees && doneBefore:
		hs.apply(u.rec, unlocked{u.Counts})
		if frees {
			hs.released(u.rec, u.ID, u.was.granted)
		}
	default:
		hs.apply(u.rec, gone{})
		return false, notHeld(u.ID.Key, false) // the connection is told that it was lost
	}
	return u.Counts.Of(u.ID.Kind) == 0, explained("UNLOCK", err)
}

// send sends the request. One that hands the lock on is sent once; then the release alone is, unless that may be done
// twice for a named owner.
func (u *unlocking) send(ctx context.Context) (err error) {
	if u.next == nil {
		u.done, err = u.g.store.Release(ctx, &u.Release)
		return err
	}
	u.Next = &u.next.Handoff
	u.done, err = u.g.store.Release(ctx, &u.Release)
	u.next.given(u.done, err)
	u.Next = nil
	switch {
	case lockstore.NotSent(err):
	case lockstore.Unknown(err) && !u.Named:
		if !u.g.sleep(ctx, time.Until(u.done.Final)) {
			return err
		}
	default:
		return err
	}
	again := lockstore.Unknown(err)
	u.done, err = u.g.store.Release(ctx, &u.Release)
	u.done.Again = u.done.Again || again
	return err
}

// onNamedSide runs a verb of a named owner. If the owner has named no side, and the lock has sides, Redis is asked on
// which one the owner is.
func (c *Client) onNamedSide(id lockstore.ID, verb func(lockstore.ID) error) error {
	err := verb(id)
	if id.Kind != Plain || !isCode(err, "LOCKKIND") {
		return err
	}
	seen, err := c.m.store.Look(id, time.Time{}, time.Now().Add(patience))
	switch sides := seen.Sides(); {
	case err != nil:
		return err
	case len(sides) > 1 || seen.Unsure:
		return bothSides(id.Key)
	case len(sides) == 0:
		return notHeld(id.Key, false)
	default:
		return verb(id.As(sides[0]))
	}
}

// unlockNamed gives back one side of a named owner. Its request is sent once: after a lost reply the owner may have
// taken the lock anew.
func (c *Client) unlockNamed(ctx context.Context, id lockstore.ID) (bool, error) {
	u := &unlocking{g: c.m.giveBacks, Release: lockstore.Release{ID: id, Named: true}}
	free, err := u.run(ctx)
	switch {
	case lockstore.Unknown(err):
		return false, c.whatBecame(id, u.done.Final, err)
	case err != nil:
		return false, err
	case u.done.Code == lockstore.OtherKind:
		return false, otherKind(id.Key)
	case u.done.Code == lockstore.NotHeld:
		c.m.leases.forget(id)
		return false, notHeld(id.Key, false)
	}
	telemetry.LockReleased(id.Kind.String(), 0)
	e := eventOf(events.Release, time.Now(), id)
	if granted := c.m.leases.forget(id); !granted.IsZero() && events.Long(e.At.Sub(granted)) {
		e.Held, e.Client = e.At.Sub(granted), c.who()
		c.m.opts.Events.Add(e)
	}
	return free, nil
}

// whatBecame is the answer to a named owner's UNLOCK whose reply was lost, once it can no longer be done.
func (c *Client) whatBecame(id lockstore.ID, final time.Time, lost error) error {
	seen, err := c.m.store.Look(id, final, time.Now().Add(patience))
	if err != nil || seen.Unsure {
		return explained("UNLOCK", lost)
	}
	if slices.Contains(seen.Sides(), id.Kind) {
		return about(id.Key, "ERR", "the reply to this UNLOCK was lost, and the owner has '%s': "+
			"say UNLOCK again, unless it has taken the lock since")
	}
	c.m.leases.forget(id)
	return about(id.Key, "ERR", "the reply to this UNLOCK was lost; '%s' is free of this owner")
}

// force frees a lock whoever holds it, of whatever kind it is when r names no side.
func (c *Client) force(ctx context.Context, r UnlockRequest) (bool, error) {
	if err := c.m.nameable(r.Key); err != nil {
		return false, err
	}
	if r.From != nil {
		return c.forceFrom(ctx, r)
	}
	kinds := []Kind{r.Side}
	if r.Side == Plain {
		kinds = []Kind{Plain, Read} // either side will do for Redis to tell which one it is
	}
	for _, k := range kinds {
		code, err := c.m.store.Force(ctx, lockstore.Forcing{DB: r.DB, Key: r.Key, Kind: k, Side: r.Side})
		freed, err := c.forced(lockstore.ID{DB: r.DB, Key: r.Key, Kind: k}, code, err)
		switch {
		case err != nil:
			return false, err
		case code == lockstore.NoLock:
			return false, about(r.Key, "WRONGTYPE", "the hash at '%s' is no lock")
		case code != lockstore.OtherKind:
			return freed, nil
		}
	}
	return false, otherKind(r.Key)
}

// forceFrom takes the lock from some owners alone: whoever has got it since keeps it.
func (c *Client) forceFrom(ctx context.Context, r UnlockRequest) (freed bool, err error) {
	for _, o := range r.From {
		id := lockstore.ID{DB: r.DB, Key: r.Key, Owner: o.Owner, Kind: o.Kind}
		done, err := c.m.store.Release(ctx, &lockstore.Release{ID: id, Named: true})
		this, err := c.forced(id, done.Code, err)
		if err != nil {
			return freed, err
		}
		if this {
			freed = true
			c.m.leases.forget(id)
		}
	}
	return freed, nil
}

// forced tells the log of a lock that was freed by force, and has the holders told that are here; these, too, if it is
// not known what was done.
func (c *Client) forced(id lockstore.ID, code int64, err error) (freed bool, _ error) {
	if freed = err == nil && code == lockstore.Freed; freed {
		c.m.log.Warn("lock freed by force", "key", id.Key, "kind", id.Kind, "db", id.DB,
			"by", c.info.Addr, "user", c.info.User(), "name", c.info.Name())
		e := eventOf(events.Force, time.Now(), id)
		e.Client = c.who()
		c.m.opts.Events.Add(e)
	}
	if freed || lockstore.Unknown(err) {
		c.m.holds.recheckKey(id.Line(), reasonForced)
	}
	return freed, explained("UNLOCK", err)
}

// Forced has the holders that are here of a lock looked at, and told, of which another proxy says that it has freed it by
// force.
func (m *Manager) Forced(db int, key string) {
	for _, kind := range []Kind{Plain, Read} {
		m.holds.recheckKey(lockstore.ID{DB: db, Key: key, Kind: kind}.Line(), reasonForced)
	}
}
