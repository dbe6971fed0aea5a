package lock

import (
	"context"
	"fmt"
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
	var u *unlocking
	var side Kind
	if _, err := c.m.holds.enter(ctx, patience, func() (rec *record, err error) {
		rec, side, err = c.m.holds.own(c, id)
		if err == nil && rec.is == runsOut {
			err = &Error{Code: "ERR",
				Text: fmt.Sprintf("not released: an earlier command of this connection may still "+
					"take effect; the lock runs out by itself within %d ms", max(rec.sure.sub(c.m.holds.now()).Milliseconds(), 0))}
		}
		return rec, err
	}, func(rec *record) {
		left := rec.counts.Of(side) - 1
		if r.All || rec.is == givenUp {
			left = 0
		}
		u = c.m.holds.unlocking(rec, side, rec.counts.With(side, left))
	}); err != nil {
		return false, err
	}
	u.asker = c
	return u.run(ctx, c.m.giveBacks)
}

// own is the record of a lock that the connection has, for a verb about that, and the side, of which the verb may have
// named none (Plain). What was lost is told instead, and stays lost: Redis may have it for a moment longer.
func (hs *records) own(c *Client, id lockstore.ID) (rec *record, side Kind, err error) {
	if lost := c.losses.tell(id.DB, id.Key, false); lost != nil {
		return nil, side, lost
	}
	var has lockstore.Seen
	live := func(k Kind) bool { r := hs.of(id.As(k)); return r != nil && r.live() }
	rw := hs.of(id.As(Write))
	has.Plain, has.Place = live(Plain), live(Limit)
	if rw != nil {
		has.Reads, has.Writes = rw.counts.Reads > 0, rw.counts.Writes > 0
	}
	if side, err = sideOf(id, has); err != nil {
		return nil, side, err
	}
	if rec = hs.of(id.As(side)); rec == nil || rec.counts.Of(side) == 0 {
		return nil, side, notHeld(id.Key, c.library.Load())
	}
	return rec, side, nil
}

// sideOf is the side of a lock that a verb is about which may have named none (Plain), of an owner that has these.
func sideOf(id lockstore.ID, has lockstore.Seen) (Kind, error) {
	switch {
	case has.Unsure, id.Kind == Plain && has.Reads && has.Writes:
		return id.Kind, bothSides(id.Key)
	case id.Kind.Spec().RW && (has.Plain || has.Place):
		return id.Kind, otherKind(id.Key)
	case id.Kind != Plain, has.Plain:
		return id.Kind, nil
	case has.Writes:
		return Write, nil
	case has.Reads:
		return Read, nil
	case has.Place:
		return Limit, nil
	}
	return Plain, nil
}

// unlocking is a lock being given back: a step, and what the engine knows of it. The connection's record is busy
// meanwhile.
type unlocking struct {
	lockstore.Release
	asker *Client // is told of a loss, instead; nil: nobody asks
	next  *handoff
	done  lockstore.Released

	// What was so of the connection's hold before; rec is nil of a named owner.
	rec     *record
	granted moment
	givenUp bool
	inARow  handoffsInARow // the grants before it
	shared  bool           // another owner of this proxy goes on holding the lock
}

// unlocking is a step after which a connection's hold has these counts.
func (hs *records) unlocking(rec *record, side Kind, left lockstore.Counts) *unlocking {
	u := &unlocking{rec: rec, granted: rec.granted, givenUp: rec.is == givenUp, Release: lockstore.Release{ID: rec.id.As(side), Counts: left}}
	if left.Total() == 0 {
		rec.releasing, u.inARow = true, rec.inARow
		u.shared = hs.shared(u.ID, rec)
	}
	return u
}

// run gives back what the step says, and hands the lock on if it is free then. free says that the owner has nothing
// left on that side.
func (u *unlocking) run(ctx context.Context, g *giveBacks) (free bool, err error) {
	if u.Counts.Total() == 0 && !u.shared && !g.holds.votes { // the nodes of a quorum hand nothing on
		u.next = g.lines.claim(u)
	}
	err = u.send(ctx, g)
	if u.rec == nil {
		return u.done.Code == lockstore.Freed, err
	}
	return g.holds.unlock(u, err)
}

// unlock notes what became of a connection's UNLOCK, and leaves the record. Nobody else writes the connection's field:
// if that has gone after a request without an answer, the request was done.
func (hs *holds) unlock(u *unlocking, err error) (free bool, _ error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	defer hs.free(u.rec)
	frees, code := u.Counts.Total() == 0, u.done.Code
	if lockstore.WrongType(err) {
		code, err = lockstore.OtherKind, nil
	}
	switch doneBefore := u.done.Again || u.givenUp; {
	case err != nil:
		e := notUnlocked{u.Counts, lockstore.Unknown(err), hs.moment(u.done.Final)}
		if u.asker == nil { // nobody says UNLOCK again: Redis is told until it is done
			e.unknown, e.final = true, max(e.final, hs.now().add(clearPause))
		}
		hs.happen(u.rec, e)
		err = explained("UNLOCK", err)
	case code == lockstore.Freed, code == lockstore.StillHeld, frees && doneBefore:
		hs.happen(u.rec, unlocked{u.Counts})
		if frees {
			hs.released(u.rec, u.ID.Kind, hs.now().sub(u.granted))
		}
		free = u.Counts.Of(u.ID.Kind) == 0
	default:
		hs.happen(u.rec, gone{})
		err = notHeld(u.ID.Key, false)
	}
	if u.asker != nil { // what was lost meanwhile is told instead
		if lost := u.asker.losses.tell(u.ID.DB, u.ID.Key, false); lost != nil {
			return false, lost
		}
	}
	return free, err
}

// send sends the request. One that hands the lock on is sent once; if it was not done, or (see lockstore.Lost) may not
// have been, the release alone is sent then.
func (u *unlocking) send(ctx context.Context, g *giveBacks) (err error) {
	var lost error // set when the reply to the request that hands the lock on was lost
	if u.next != nil {
		u.Next = &u.next.Handoff
		alone := u.IfLost().Then == lockstore.Alone
		u.done, err = g.store.Release(ctx, &u.Release)
		u.next.given(u.done, err)
		if u.Next = nil; alone && lockstore.Unknown(err) {
			lost = err
		}
		if !lockstore.NotSent(err) && (lost == nil || !g.sleep(ctx, time.Until(u.done.Final))) {
			return err
		}
	}
	done, err := g.store.Release(ctx, &u.Release)
	if lost != nil {
		if err != nil { // a refusal does not say what became of the first request
			return lost
		}
		done.Again = true
	}
	u.done = done
	return err
}

// onNamedSide runs a verb of a named owner. If the owner has named no side, and the lock has sides, Redis is asked on
// which one the owner is.
func (c *Client) onNamedSide(id lockstore.ID, verb func(lockstore.ID) error) error {
	err := verb(id)
	if id.Kind != Plain || !ofAnotherKind(err) {
		return err
	}
	seen, err := c.m.store.Look(id, time.Time{}, time.Now().Add(patience))
	if err != nil {
		return err
	}
	if id.Kind, err = sideOf(id, seen); err != nil {
		return err
	}
	if !seen.Any() {
		return notHeld(id.Key, false)
	}
	return verb(id)
}

// unlockNamed gives back one side of a named owner. Its request is sent once: after a lost reply the owner may have
// taken the lock anew.
func (c *Client) unlockNamed(ctx context.Context, id lockstore.ID) (bool, error) {
	u := &unlocking{Release: lockstore.Release{ID: id, Named: true}}
	c.m.holds.mu.Lock()
	u.shared = c.m.holds.shared(id, nil)
	c.m.holds.mu.Unlock()
	free, err := u.run(ctx, c.m.giveBacks)
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
	if seen.On(id.Kind) {
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
		kinds = lockstore.HoldKinds[:] // either side of a read/write lock will do for Redis to tell which one it is
	}
	for _, k := range kinds {
		id := lockstore.ID{DB: r.DB, Key: r.Key, Kind: k}
		done, err := c.m.store.Release(ctx, &lockstore.Release{ID: id, Whole: r.Side == Plain})
		freed, err := c.forced(id, done.Code, err)
		switch code := done.Code; {
		case r.Side == Plain && k != Limit && ofAnotherKind(err):
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
	for _, kind := range lockstore.HoldKinds {
		m.holds.recheckKey(lockstore.ID{DB: db, Key: key, Kind: kind}.Line(), reasonForced)
	}
}
