package lock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/loglimit"
	"github.com/lockproxy/lockproxy/internal/retry"
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

// Unlock gives back one hold, or all. free says that the lock is now free of this owner (with Force: that something was held).
//
// Errors: *Error with NOTHELD, LOCKLOST (it was held through this proxy and lost), LOCKKIND or ERR,
// *upstream.ReplyError with Redis' words, *upstream.NotSentError when Redis cannot be reached (nothing changed).
func (c *Client) Unlock(ctx context.Context, r UnlockRequest) (free bool, err error) {
	began := time.Now()
	ctx, span := telemetry.Span(ctx, "UNLOCK")
	defer span.End()
	if r.Force {
		free, err = c.force(ctx, r)
	} else {
		free, err = c.unlock(ctx, r)
	}
	telemetry.VerbDone(ctx, "unlock", outcomeWord(err), time.Since(began))
	return free, err
}

func (c *Client) unlock(ctx context.Context, r UnlockRequest) (bool, error) {
	m := c.m
	if err := m.nameable(r.Key); err != nil {
		return false, err
	}
	id, named := c.id(r.Side, r.DB, r.Key, r.Owner)
	id, err := c.resolveSide(ctx, id, named)
	if err != nil {
		return false, err
	}
	free, err := c.unlockHold(ctx, id, named, r)
	if free {
		c.readGivenBack(ctx, id)
	}
	return free, err
}

// unlockHold is unlock of a hold that the owner means.
func (c *Client) unlockHold(ctx context.Context, id lockstore.ID, named bool, r UnlockRequest) (bool, error) {
	m := c.m
	h, err := m.holds.enterSoon(ctx, id, named, patience)
	if err != nil {
		return false, err
	}
	rel := m.giveBacks.newRelease(h, c, r.All)
	if err := m.holds.doubted(h); err != nil {
		m.holds.leave(h)
		return false, err
	}
	var code, left int64
	for again := true; again; {
		code, left, err = rel.ask(ctx)
		again = false
		if lockstore.Unknown(err) {
			lost := err
			done, ok := patiently(ctx, m.life, rel.findOutcome, rel.abandon)
			if !ok {
				return false, c.orLost(h, outcomeUnknown("UNLOCK", lost))
			}
			if again = errors.Is(done.err, errNotDone); done.err != nil && !again {
				rel.abandon(done)
				return false, c.orLost(h, outcomeUnknown("UNLOCK", lost))
			}
			code, left, err = done.Code, done.Count, nil
		}
		if err == nil && !again {
			code, left, again = rel.compare(code, left)
		}
	}
	defer m.holds.leave(h)
	if err != nil {
		return false, c.orLost(h, err)
	}
	return c.unlocked(h, r.Key, code, left)
}

// unlocked turns the release script's answer into the verb's.
func (c *Client) unlocked(h *hold, key string, code, left int64) (bool, error) {
	m := c.m
	if code == lockstore.OtherKind && (h.id.Kind == Plain || !h.named && m.holds.held(h.id)) {
		code = lockstore.NotHeld // no side was named, and of a read/write lock this owner holds neither; or what it held has gone
	}
	switch code {
	case lockstore.OtherKind:
		return false, otherKind(key)
	case lockstore.NotHeld:
		m.holds.notThere(h, c, left)
		if _, finished := m.done.get(h.id); finished {
			return true, nil
		}
		if lost, ok := c.lossOf(h.id); ok {
			return false, lost.error(key)
		}
		return false, notHeld(key, c.library.Load() && !h.named)
	}
	m.holds.released(h, c, code, left)
	if lost, ok := c.lossOf(h.id); ok && !h.named {
		// Its lease was over by our clock and it was reported lost, Redis had it for a moment longer.
		return false, lost.error(key)
	}
	return code == lockstore.Freed, nil
}

// doubted refuses to release a lock if an earlier command of its holder may still take effect: the lock is left to
// expire, and stays in doubt until then, so that asking again does not help.
func (hs *holds) doubted(h *hold) error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.count == 0 || !h.doubt {
		return nil
	}
	left := time.Until(h.deadline).Milliseconds()
	hs.runOut(h)
	return &Error{Code: "ERR", Text: "not released: an earlier command of this connection may still take effect; the lock runs out by itself within " +
		strconv.FormatInt(max(left, 0), 10) + " ms"}
}

// notThere ends a hold that Redis does not have: it was given back elsewhere, or is lost.
func (hs *holds) notThere(h *hold, by *Client, left int64) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	switch {
	case h.count == 0:
	case left == lockstore.EndedElsewhere:
		hs.end(h)
		hs.done.add(h.id, by, time.Now())
	default:
		hs.lose(h, h.whyGone())
	}
}

// released notes what Redis said of a release that the connection by has asked for; nil: nobody has.
func (hs *holds) released(h *hold, by *Client, code, left int64) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	switch {
	case code == lockstore.StillHeld && h.count > 0:
		h.count = max(left, 1)
	case code == lockstore.Freed:
		if h.count > 0 {
			hs.given.Add(1)
			telemetry.LockReleased(context.Background(), h.id.Kind.String(), time.Since(h.grantedAt))
			hs.end(h)
		}
		if h.named {
			hs.done.add(h.id, by, time.Now())
		}
	}
}

// release is one hold, or all of an owner, being given back: a step, and what the engine knows of it. The hold is busy meanwhile.
type release struct {
	lockstore.Release
	g        *giveBacks
	h        *hold
	by       *Client // the connection that has asked for it; nil: none has
	sent     time.Time
	notAfter int64     // of the request sent last
	until    time.Time // Redis may have what is given back until then, beside what is known of the hold
	next     *handoff  // those that are to get it
	keeps    bool      // an attempt is taken back; what the owner has by another attempt, as this proxy knows, stays
}

// newRelease gives back one hold, or all. by is nil when no connection has asked for it.
func (g *giveBacks) newRelease(h *hold, by *Client, all bool) *release {
	r, s := &release{g: g, h: h, by: by}, g.holds.snapshot(h)
	r.Release = lockstore.Release{ID: h.id, Named: h.named, All: all || h.named, Waiters: r}
	r.Count, r.Registration = s.count, s.registration
	return r
}

// ask sends the request, and notes what it says of the hold.
func (r *release) ask(ctx context.Context) (code, left int64, err error) {
	s := r.g.holds.snapshot(r.h)
	r.GiveUp, r.Known = r.giveUp(s, time.Second), s.attempt
	done, err := r.g.store.Release(ctx, &r.Release)
	r.sent, r.notAfter = done.Sent, done.NotAfter
	code, left = done.Code, done.Left
	if code != lockstore.Freed || r.Attempt != "" {
		code, left = r.g.holds.noteRelease(r, done, err)
	}
	return code, left, err
}

// noteRelease notes what the answer to a request says of the hold, and returns what it comes to.
func (hs *holds) noteRelease(r *release, done lockstore.Released, err error) (code, left int64) {
	h := r.h
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if r.Attempt != "" && done.Left > 0 && h.attempt == r.Attempt {
		h.attempt = "" // by which attempt others have it is not known here
	}
	code, left = done.Code, done.Left
	switch {
	case r.keeps && h.count > 0:
		if err == nil && code != lockstore.StillHeld {
			code, left = lockstore.StillHeld, h.count
			hs.plan(h, time.Now()) // the nodes no longer have it: the watchdog finds out how it ended
		}
	case done.RunsOut:
		hs.runOut(h) // its owner does not want it any more
		h.unwanted = true
	case r.Attempt != "" && code == lockstore.NotHeld:
		code = lockstore.Freed // a former request has ended it, or somebody else has: nobody is to hear of that
	case code == lockstore.NotHeld && left != lockstore.EndedElsewhere && h.count > 0 && h.unwanted:
		code = lockstore.Freed
	}
	if code != lockstore.Freed && !lockstore.Unknown(err) {
		h.releasing = false // it was not given back, or was not the owner's last hold
	}
	return code, left
}

// compare holds what Redis said of a connection's UNLOCK against how often the connection is in the lock, as this proxy knows. Redis says
// something else when a failover has undone a LOCK or an UNLOCK. again says that the lock is to be given back whole.
func (r *release) compare(code, left int64) (is, holds int64, again bool) {
	switch {
	case r.Named || r.All || r.Count == 0 || r.g.store.Rules().Votes:
	case code == lockstore.Freed && r.Count > 1:
		return lockstore.NotHeld, 0, false // a section around this one counts on a hold that Redis has lost
	case code == lockstore.StillHeld && r.Count == 1:
		r.All = true
		return code, left, true
	case code == lockstore.StillHeld:
		return code, r.Count - 1, false
	}
	return code, left, false
}

// findOutcome finds out how a release ended.
func (r *release) findOutcome() settled {
	s, err := r.g.store.Look(r.ID, r.Named, r.notAfter, r.giveUp(r.g.holds.snapshot(r.h), r.g.opts.Watchdog))
	if s.Count > 0 {
		r.until = lockstore.Later(r.until, s.At.Add(lockstore.Milliseconds(s.TTL)))
	}
	switch {
	case err != nil:
		return settled{err: err}
	case r.Named:
		return r.findNamedOutcome(s)
	case !r.All && s.Count < r.Count-1:
		return settled{Acquired: lockstore.Acquired{Code: lockstore.NotHeld}} // one was given back at most: the others were lost
	case s.Count < r.Count:
		return settled{Acquired: freed(s.Count)}
	}
	return settled{err: errNotDone}
}

// findNamedOutcome is findOutcome for a named owner. What the owner has now is only given back if it is the hold of this release, and no
// other LOCK counts on it: the owner may have taken the lock anew through another proxy, or have said LOCK there since.
func (r *release) findNamedOutcome(s lockstore.Seen) settled {
	had := r.Count > 0 && r.g.holds.snapshot(r.h).deadline.After(r.sent)
	switch {
	case s.Count > 0 && s.Registration.Names(r.Registration) && (r.Alone || s.Registration.NamesAlone(r.Registration)):
		r.Alone = true
		return settled{err: errNotDone}
	case s.Count > 0:
	case had || s.Registered && s.Registration == "": // which is what an UNLOCK leaves
		return settled{Acquired: freed(0)}
	case r.Count > 0 || r.Alone:
		return settled{Acquired: lockstore.Acquired{Code: lockstore.NotHeld}}
	}
	return settled{err: errForgotten}
}

func freed(left int64) lockstore.Acquired {
	if left > 0 {
		return lockstore.Acquired{Code: lockstore.StillHeld, Count: left}
	}
	return lockstore.Acquired{Code: lockstore.Freed}
}

// abandon completes a release whose client got an error: the owner wanted it.
func (r *release) abandon(s settled) {
	defer r.g.readEnded(r.ID) // when it has left the hold
	defer r.g.holds.leave(r.h)
	if errors.Is(s.err, errNotDone) {
		s.Code, s.Count, s.err = r.complete()
	}
	// The owner may have ended the hold through another proxy, or count on it there.
	elsewhere := s.Code == lockstore.NotHeld && s.Count == lockstore.EndedElsewhere
	if s.err != nil || elsewhere {
		r.g.holds.stopRenewing(r.h)
		return
	}
	r.g.holds.released(r.h, r.by, s.Code, s.Count)
	told := false // the client has heard LOCKLOST: nothing is left that the next UNLOCK could free
	if r.by != nil && !r.Named {
		_, told = r.by.lossOf(r.h.id)
	}
	if s.Code == lockstore.Freed && !told {
		r.g.done.add(r.h.id, r.by, time.Now())
	}
}

// giveUp is when there is nothing left to give back, but not before so long from now.
func (r *release) giveUp(s snapshot, least time.Duration) time.Time {
	return lockstore.Later(lockstore.Later(s.deadline, r.until), time.Now().Add(least))
}

// complete releases for sure: through lost replies and a Redis that is away, until the lease is over.
func (r *release) complete() (code, left int64, err error) {
	giveUp := r.giveUp(r.g.holds.snapshot(r.h), time.Second)
	unknown := false // of the request sent last
	for failures := retry.Insist(); ; {
		if !unknown {
			code, left, err = r.ask(context.Background())
			unknown = lockstore.Unknown(err)
		}
		if unknown {
			s := r.findOutcome()
			code, left, err = s.Code, s.Count, s.err
			unknown = !errors.Is(err, errNotDone)
		}
		if err == nil && r.Alone && code == lockstore.NotHeld && left == lockstore.EndedElsewhere {
			r.g.unwatch(r.ID, r.Registration) // it may be the one that another LOCK relies on, and nobody renews
		}
		if err == nil || errors.Is(err, errForgotten) || time.Now().After(giveUp) {
			return code, left, err
		}
		if !r.g.sleep(context.Background(), failures.Next()) {
			return 0, 0, err
		}
	}
}

// unwatch makes this registration of a named owner's hold say that nobody renews the hold. If Redis has another one it leaves that alone.
func (g *giveBacks) unwatch(id lockstore.ID, registration lockstore.Registration) {
	if !registration.Renewed() {
		return
	}
	_, err := g.store.Extend(context.Background(), lockstore.Extension{
		ID: id, Named: true, Lease: 1, Watched: true, // the longer lease stays
		Registration: registration.WithRenewals(false), Known: registration, Again: true, MayEnd: func(time.Time) {},
	})
	if err != nil {
		g.log.Warn("a LOCK failed, and Redis cannot be told that nobody renews that lock any more", "key", id.Key, "owner", id.Owner, "error", err)
	}
}

// force frees a lock whoever holds it, of whatever kind it is when r names no side.
func (c *Client) force(ctx context.Context, r UnlockRequest) (bool, error) {
	if err := c.m.nameable(r.Key); err != nil {
		return false, err
	}
	kinds := []Kind{r.Side}
	if r.Side == Plain {
		kinds = []Kind{Plain, Read} // either side will do for Redis to tell which one it is
	}
	var code int64
	for _, k := range kinds {
		var err error
		code, err = c.m.store.Force(ctx, lockstore.Forcing{DB: r.DB, Key: r.Key, Kind: k, Side: r.Side, Only: r.From})
		line := lockstore.ID{DB: r.DB, Key: r.Key, Kind: k}.Line()
		switch {
		case lockstore.Unknown(err):
			c.m.holds.recheckKey(line, reasonForced) // the holder is told if it was done
			return false, outcomeUnknown("UNLOCK", err)
		case err != nil:
			return false, err
		case code == lockstore.Freed:
			loglimit.Most(c.m.log, lossesLogged).Warn("lock freed by force", "key", r.Key, "kind", k, "db", r.DB, "by", c.info.Addr, "user", c.info.User(), "name", c.info.Name())
			c.m.holds.recheckKey(line, reasonForced)
		}
		if code != lockstore.OtherKind {
			break
		}
	}
	switch code {
	case lockstore.OtherKind:
		return false, otherKind(r.Key)
	case lockstore.NoLock:
		return false, &Error{Code: "WRONGTYPE", Text: "the hash at '" + lockstore.Printable(r.Key) + "' is no lock"}
	}
	return code == lockstore.Freed, nil
}
