package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// acquire is the request for one grant: a step, and what the engine knows of it. Its hold is busy meanwhile.
type acquire struct {
	lockstore.Acquire
	c         *Client
	h         *hold
	r         Request
	w         *waiter       // the waiter that it is for; nil: the verb does not wait
	fresh     bool          // no hold had that registration before
	unrenewed bool          // it is of a hold that is not renewed here
	notAfter  int64         // of the request whose reply was lost
	streak    handoffStreak // the streak that it continues if it is handed the lock
	handedOn  bool          // an undo goes on alone and leaves the hold when it is done
}

func (c *Client) newAcquire(h *hold, r Request, w *waiter) *acquire {
	a := &acquire{c: c, h: h, r: r, w: w, Acquire: lockstore.Acquire{
		ID: h.id, Named: h.named, Lease: leaseOf(r, c.m.opts), Watched: r.Lease == 0, Fence: r.Fence,
		Replicas: r.Replicas, ReplicaWait: r.replicaWait(), Patience: r.patience(), Blocks: r.Blocks, Queues: w != nil && r.Fair,
	}}
	if w != nil && w.line != nil {
		a.Patience, a.Splits = 0, w.splits // the waiter asks again soon
	}
	a.update()
	if h.named {
		a.enrol()
	}
	return a
}

// update brings the step up to date with what is known now.
func (a *acquire) update() {
	if a.Queues {
		a.Ticket = a.c.m.lines.ticket(a.w)
	}
	s := a.c.m.holds.snapshot(a.h)
	a.Count, a.Beside = s.count, s.beside
}

// ask sends the request. If Redis does not have the hold that was to be entered again, that is lost, and a first one is asked for.
func (a *acquire) ask(ctx context.Context) (lockstore.Acquired, error) {
	ans, err := a.send(ctx)
	if err != nil || ans.Code != lockstore.NoHold {
		return ans, err
	}
	if lost, yes := a.c.m.holds.foundGone(a); yes {
		return lockstore.Acquired{}, lost.error(a.r.Key)
	}
	return a.send(ctx)
}

// foundGone ends a hold that Redis does not have. One that was reported lost while the request was under way stays lost, as with grant.
func (hs *holds) foundGone(a *acquire) (lost lossRecord, yes bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if a.h.count > 0 {
		hs.lose(a.h, a.h.whyGone())
		return lossRecord{}, false
	}
	return a.c.lossOf(a.h.id)
}

// send sends the request once.
func (a *acquire) send(ctx context.Context) (lockstore.Acquired, error) {
	if a.r.Lease > 0 && !a.c.m.sitOut(ctx, a.h) {
		return lockstore.Acquired{}, ctx.Err()
	}
	had := a.Count
	if a.update(); a.Named && had > 0 && a.Count == 0 && a.notAfter == 0 {
		a.enrol() // the hold was reported lost meanwhile: this LOCK makes a new one
	}
	return a.c.m.store.Acquire(ctx, &a.Acquire)
}

// enrol chooses the registration that a named owner's LOCK asks for. A hold that is known here keeps its name: with a new one, if the reply
// were lost, this proxy would not know which of the two Redis has.
//
// A LOCK with a lease asks for the name with the mark of a hold that nobody renews. If the hold was renewed here, also for a connection that
// has gone since, Redis sets the mark only if that hold has gone meanwhile and this LOCK makes a new one. So findOutcome can tell the new hold
// by its mark, unless something else may have set that before.
func (a *acquire) enrol() {
	switch s := a.c.m.holds.snapshot(a.h); {
	case a.Count > 0 && s.registration != "":
		a.unrenewed = !s.watched
		switch a.Registration = s.registration; {
		case a.Watched:
			a.Registration = s.registration.WithRenewals(true)
		case !a.c.m.store.Rules().Votes: // on a quorum a hold that nobody renews gets no registration, as below
			a.Registration, a.fresh = s.registration.WithRenewals(false), s.watched && !s.maybeUnrenewed
		}
	case !a.Watched && a.c.m.store.Rules().Votes:
		// On a quorum the attempt says whose hold it is. A node that had lost the hold would get this registration while the others have
		// another one, and they could not agree on who renews the hold.
	default:
		a.Registration, a.fresh = a.c.newRegistration().WithRenewals(a.Watched), true
	}
}

// enrolled notes the registration that a grant has got. On a quorum a new hold that nobody renews gets none (see enrol in registration.lua),
// although this LOCK has asked for that of an earlier hold, which this proxy thought to be there still.
func (a *acquire) enrolled(ans lockstore.Acquired) {
	if ans.Raised && !a.Watched && a.c.m.store.Rules().Votes {
		a.Registration = ""
	}
}

// repeatable says that doing the request once more changes nothing: it is a named owner's, or asks for a connection's first hold.
func (a *acquire) repeatable() bool { return a.h.named || a.Count == 0 }

// unanswered notes until when a request without an answer may still be done.
func (a *acquire) unanswered(notAfter int64) {
	if a.notAfter = notAfter; a.Queues {
		a.w.lost = notAfter
	}
}

// sitOut waits until a renewal whose reply was lost can no longer lengthen a lease that is asked for now; false: ctx ended first.
func (m *Manager) sitOut(ctx context.Context, h *hold) bool {
	late := time.Until(m.holds.snapshot(h).late)
	return late <= 0 || m.sleep(ctx, late)
}

// replicaWait is how long replicas may take: at most a second, the time of BLOCK, and half of the lease, so that the rest
// of the lease is of use.
func (r Request) replicaWait() time.Duration {
	wait := time.Second
	if r.Blocks && r.Block > 0 {
		wait = min(wait, lockstore.Milliseconds(r.Block))
	}
	if r.Lease > 0 {
		wait = min(wait, lockstore.Milliseconds(r.Lease)/2)
	}
	return wait
}

// patience is for how long a request may be tried again: within BLOCK, and so that most of the lease is left.
func (r Request) patience() time.Duration {
	d := time.Minute
	if r.Blocks && r.Block > 0 {
		d = min(d, lockstore.Milliseconds(r.Block))
	}
	if r.Lease > 0 {
		d = min(d, lockstore.Milliseconds(r.Lease)/2)
	}
	return d
}

// conclude turns the script's answer into the verb's.
func (a *acquire) conclude(ctx context.Context, ans lockstore.Acquired) (Grant, error) {
	m := a.c.m
	switch ans.Code {
	case lockstore.Refused:
		m.holds.recheckNow(a.h)
		return Grant{}, ErrNotAcquired
	case lockstore.OtherKind:
		m.holds.recheckNow(a.h)
		return Grant{}, otherKind(a.r.Key)
	case lockstore.Upgrade:
		m.holds.recheckNow(a.h)
		return Grant{}, wouldWaitForItself(a.r.Key)
	}
	a.enrolled(ans)
	if a.r.Replicas > 0 && ans.Acked < a.r.Replicas {
		if err := m.giveBacks.undo(ctx, a, ans); err != nil {
			return Grant{}, err
		}
		if !ans.Raised && ans.Attempt == "" {
			a.uphold(ans)
		}
		return Grant{}, &Error{Code: "NOREPLICAS", Text: fmt.Sprintf("%d of %d replicas had the lock in time, it was given back", ans.Acked, a.r.Replicas)}
	}
	if a.c.unheard(ctx, a.r) && (ans.Raised || a.r.lent == nil) {
		// Nobody hears of it: what it added is given back, and what its owner had before stays as it was. For that a MULTILOCK, which will see
		// that it has ended, has to know of the grant.
		_ = m.giveBacks.undo(ctx, a, ans)
		if !ans.Raised && ans.Attempt == "" {
			a.uphold(ans)
		}
		return Grant{}, context.Canceled
	}
	if !time.Now().Before(until(ans)) {
		// The answer took longer than the lease: nobody may rely on it.
		if err := m.giveBacks.undo(ctx, a, ans); err != nil {
			return Grant{}, err
		}
		return Grant{}, ErrNotAcquired
	}
	g, lost, yes := m.holds.grant(a, ans)
	if yes {
		m.giveBacks.surrenderLater(a.h)
		return Grant{}, lost.error(a.r.Key)
	}
	return g, nil
}

// unheard says whether the client of a verb that waits has gone, so that it cannot be told of a grant any more.
func (c *Client) unheard(ctx context.Context, r Request) bool {
	return ctx.Err() != nil || r.Blocks && c.info.Gone()
}

// recheckNow has the watchdog come at once to a hold of which Redis says something else than was known.
func (hs *holds) recheckNow(h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.count > 0 {
		hs.plan(h, time.Now())
	}
}

// grant notes a grant. A hold that was to be entered again, and was reported lost while the request was under way, stays lost.
func (hs *holds) grant(a *acquire, ans lockstore.Acquired) (g Grant, lost lossRecord, yes bool) {
	h := a.h
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if lost, yes = a.c.lossOf(h.id); yes && a.Count > 0 && !h.named {
		h.lease = max(h.lease, lockstore.Milliseconds(ans.TTL)) // Redis may have it for so long now
		return Grant{}, lost, true
	}
	switch again := ans.Raised && h.count > 0; { // if the hold that was to be entered again had gone this is a first one
	case again && h.named:
		hs.end(h) // it may have been given back through another proxy
	case again && ans.Count <= h.count:
		hs.lose(h, h.whyGone())
	}
	hs.suspectOtherKind(a)
	if h.count == 0 {
		h.streak, h.registration = hs.streakOf(a), ""
	}
	if h.count == 0 || h.attempt == "" {
		h.attempt = ans.Attempt
	}
	g = Grant{Token: ans.Token, entered: ans.Count > 1 || !ans.Raised, again: !ans.Raised, first: a.Count == 0 || ans.Raised}
	if h.named {
		g.attempt = ans.Attempt
	}
	if a.r.lent != nil && g.entered {
		a.r.lent.comeUpon(h, ans)
	}
	h.passTo(a.r.lent)
	hs.begin(h, a.c, ans.Count)
	g.nth = h.nth
	h.promise(until(ans), ans.Sent)
	h.replicas = max(h.replicas, a.r.Replicas)
	if a.r.Lease == 0 {
		h.lend(a.r.lent)
		h.watched, h.lease, h.registration = true, hs.opts.Watchdog, a.Registration
	} else if !h.watched {
		h.lease = lockstore.Milliseconds(a.r.Lease)
		h.ownEnd = lockstore.Later(h.ownEnd, ans.Sent.Add(h.lease))
		if ans.Raised { // else the registration is another LOCK's
			h.registration = a.Registration
		}
	}
	hs.planNext(h, ans.Sent)
	hs.recheckLate(h, ans.Sent)
	a.c.forgetLoss(h.id)
	hs.done.remove(h.id)
	return g, lost, false
}

// uphold takes care of a hold that a named owner had before a LOCK that has failed although Redis has done it. Redis has this LOCK's
// registration now, so the proxy that renewed the hold stops doing so, if there is one: this proxy renews the hold from then on, and the
// owner is not told of that. If nobody renewed the hold, the registration is made to say so again, and the hold ends with its lease.
func (a *acquire) uphold(ans lockstore.Acquired) {
	switch here := a.c.m.holds.find(a.ID); {
	case !a.Named || !a.Watched || here.live && here.watched:
	case ans.Unrenewed || a.r.lent != nil && !a.r.lent.until.IsZero() || a.unrenewed && a.alone():
		a.c.m.giveBacks.unwatch(a.ID, a.Registration)
	default:
		a.r.Replicas, a.r.lent = 0, nil // the replicas may not be there, and the MULTILOCK has failed
		a.c.m.holds.grant(a, ans)
		a.c.m.holds.recheckNow(a.h) // little may be left of its lease
	}
}

// alone says whether this LOCK has surely not replaced another one's registration of the hold, which would have left a mark.
func (a *acquire) alone() bool {
	s, err := a.c.m.store.Look(a.ID, a.Named, 0, time.Now())
	return err == nil && s.Registration.NamesAlone(a.Registration)
}

// takenOver ends a hold that was believed to be renewed here, when Redis says that nobody renews it: its owner has given it an end through
// another proxy. A RENEW of this proxy whose reply was lost may have done that, too.
func (hs *holds) takenOver(h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.watched && !h.maybeUnrenewed {
		hs.end(h)
	}
}

// until is when a grant ends that nobody renews.
func until(ans lockstore.Acquired) time.Time { return ans.Sent.Add(lockstore.Milliseconds(ans.TTL)) }

// planNext puts the hold before the watchdog at a third of its lease when it is renewed, else when it is looked at next. A visit that is planned
// already is not put off: a verb may have left the lease in Redis as it was. Nor is max-hold. mu is held.
func (hs *holds) planNext(h *hold, from time.Time) {
	next := hs.nextLook(h, from)
	if h.watched {
		next = from.Add(h.lease / 3)
		if last := h.grantedAt.Add(hs.opts.MaxHold); hs.opts.MaxHold > 0 && last.Before(next) {
			next = last
		}
	}
	if h.inSchedule != 0 && h.next.Before(next) {
		next = h.next
	}
	hs.plan(h, next)
}

// nextLook is when Redis is asked about a hold that nobody renews: at its end, and once in a while where its registration tells that a named
// owner has given it back through another proxy, or where Redis may have less of its lease than was promised. mu is held.
func (hs *holds) nextLook(h *hold, from time.Time) time.Time {
	next := h.deadline
	switch {
	case h.registration != "":
		next = from.Add(hs.opts.Watchdog)
	case hs.restores(h) && time.Until(h.deadline) > hs.opts.Watchdog: // what others cut a lease to is no less
		next = from.Add(hs.opts.Watchdog / 3)
	}
	if next.Before(h.deadline) {
		return next
	}
	return h.deadline
}
