package lock

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// RenewRequest is one RENEW.
type RenewRequest struct {
	DB    int
	Key   string
	Side  Kind // Read or Write; Plain = what this owner holds
	Owner string
	Lease int64 // ms from now, and no renewal any more; 0 = the watchdog's lease, renewed
}

// Renew sets the lease of a hold anew. With a lease the hold ends then, whatever it had left; without one the watchdog
// renews it, for this connection. Errors are those of Unlock.
func (c *Client) Renew(ctx context.Context, r RenewRequest) error {
	began := time.Now()
	ctx, span := telemetry.Span(ctx, "RENEW")
	defer span.End()
	_, err := c.renew(ctx, r, nil)
	if id, named := c.id(r.Side, r.DB, r.Key, r.Owner); err == nil && r.Lease > 0 && !named && c.m.holds.writerBeside(id) == c {
		c.m.background(func() { c.readGivenBack(context.Background(), id) }) // it may end earlier now; the answer would come late
	}
	telemetry.VerbDone(ctx, "renew", outcomeWord(err), time.Since(began))
	return err
}

// renew is Renew. choose, unless nil, says the lease once nobody else works on the hold; 0 leaves the hold alone. nth is hold.nth of this
// RENEW; 0: the hold was left alone.
func (c *Client) renew(ctx context.Context, r RenewRequest, choose func(*hold) int64) (nth int64, err error) {
	m := c.m
	if err := m.nameable(r.Key); err != nil {
		return 0, err
	}
	id, named := c.id(r.Side, r.DB, r.Key, r.Owner)
	id, err = c.resolveSide(ctx, id, named)
	if err != nil {
		return 0, err
	}
	h, err := m.holds.enterSoon(ctx, id, named, patience)
	if err != nil {
		return 0, err
	}
	defer m.holds.leave(h)
	if lost, ok := c.lossOf(id); ok && !named {
		return 0, lost.error(r.Key) // Redis may have it for a moment longer: what was reported lost stays lost
	}
	if choose != nil {
		if r.Lease = choose(h); r.Lease == 0 {
			return 0, nil
		}
	}
	if err := m.store.Rules().Limit(r.Lease, 0); err != nil {
		return 0, err
	}
	if r.Lease > 0 && !m.sitOut(ctx, h) {
		return 0, ctx.Err()
	}
	e := c.newExtension(h, r)
	e.leaves = choose != nil
	done, err := m.store.Extend(ctx, e.Extension)
	ends := m.holds.noteExtension(e, done, err)
	switch {
	case err != nil:
		return 0, e.failed(err, ends)
	case done.Code != lockstore.LeaseSet:
		_, err := c.unlocked(h, r.Key, done.Code, done.Count)
		if err == nil {
			err = notHeld(r.Key, c.library.Load() && !named)
		}
		return 0, err
	}
	err = e.conclude(done)
	return e.nth, err
}

// extension is one RENEW under way: a step, and what the engine knows of it. Its hold is busy meanwhile.
type extension struct {
	lockstore.Extension
	c      *Client
	h      *hold
	leaves bool  // the connection that keeps the hold goes on with that, if it is there: nobody has named the owner
	nth    int64 // hold.nth of this RENEW
}

func (c *Client) newExtension(h *hold, r RenewRequest) *extension {
	s := c.m.holds.snapshot(h)
	e := &extension{c: c, h: h, Extension: lockstore.Extension{
		ID: h.id, Named: h.named, Lease: leaseOf(Request{Lease: r.Lease}, c.m.opts), Watched: r.Lease == 0,
		Known: s.registration, Attempt: s.attempt, Count: s.count,
	}}
	e.MayEnd = func(at time.Time) { c.m.holds.mayEnd(e, at) }
	if !h.named {
		return e
	}
	if s.count > 0 { // see enrol
		e.Registration = e.Known
	}
	if e.Registration == "" {
		e.Registration = c.newRegistration()
	}
	e.Registration = e.Registration.WithRenewals(e.Watched)
	return e
}

// mayEnd makes sure that the hold is reported lost by at, when it ends if the request under way is done: before anybody else can have
// it, even if no answer comes.
func (hs *holds) mayEnd(e *extension, at time.Time) {
	if e.Watched {
		return // Redis keeps the longer lease
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	e.h.mayEnd = at
	hs.noteDeadline(e.h)
}

// noteExtension notes what has changed even if the RENEW failed. A hold that may have been shortened counts no longer than that:
// ends is when it is reported lost, if no renewal comes before.
func (hs *holds) noteExtension(e *extension, done lockstore.Extended, err error) (ends time.Time) {
	h := e.h
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if done.Attempt != "" {
		h.attempt = done.Attempt
	}
	switch {
	case !e.Watched && lockstore.Unknown(err):
		h.maybeUnrenewed = true
	case e.Watched && err == nil:
		h.maybeUnrenewed = false
	}
	if sure := h.certainUntil(); sure.Before(h.deadline) && (err != nil || h.count == 0) {
		if h.deadline = sure; sure.Before(h.ownEnd) {
			h.ownEnd = sure
		}
		if h.count > 0 {
			hs.plan(h, time.Now())
			if !h.watched && !h.named {
				ends = sure
			}
		}
	}
	h.mayEnd = time.Time{}
	return ends
}

// failed is the answer to a RENEW that failed. A hold that was reported lost meanwhile, or will be because the RENEW may have shortened it,
// is given back then: Redis may have it for longer.
func (e *extension) failed(err error, ends time.Time) error {
	if e.Named && e.Watched && !lockstore.NotSent(err) && !e.c.m.store.Rules().Votes {
		e.c.m.background(e.uphold)
	}
	if lockstore.Unknown(err) {
		err = outcomeUnknown("RENEW", err)
	}
	switch g := e.c.m.giveBacks; {
	case e.Count == 0:
	case !e.c.m.holds.held(e.h.id):
		g.surrenderLater(e.h)
	case !ends.IsZero():
		g.releaseLater([]*hold{e.h}, time.Until(ends)+time.Second, g.enterAndSurrender)
	}
	return e.c.orLost(e.h, err)
}

// uphold has a named owner's hold renewed here whose RENEW has failed, but turns out to have been done: see acquire.uphold.
func (e *extension) uphold() {
	hs := e.c.m.holds
	h, err := hs.enter(context.Background(), e.ID, true)
	if err != nil {
		return
	}
	defer hs.leave(h)
	if here := hs.snapshot(h); here.live && here.watched {
		return
	}
	s, err := e.c.m.store.Look(e.ID, true, 0, time.Now().Add(lockstore.Milliseconds(e.Lease)))
	if e.h = h; err == nil && s.Count > 0 && s.Registration.Names(e.Registration) {
		hs.extended(e, lockstore.Extended{Count: s.Count, TTL: s.TTL, Sent: s.At})
		hs.recheckNow(h)
	}
}

// conclude notes a lease that Redis has set. What was told lost while the request was under way stays lost, and a lease that was over
// before the answer came is none.
func (e *extension) conclude(done lockstore.Extended) error {
	lost, told := e.c.m.holds.extended(e, done)
	if told {
		e.c.m.giveBacks.surrenderLater(e.h)
	}
	if lost.reason != "" {
		return lost.error(e.h.id.Key)
	}
	return nil
}

// extended is the part of conclude under mu. told says that Redis has a lock that was reported lost.
func (hs *holds) extended(e *extension, done lockstore.Extended) (lost lossRecord, told bool) {
	c, h := e.c, e.h
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if lost, told = c.lossOf(h.id); told && !h.named {
		return lost, true
	}
	switch {
	case e.leaves && h.count == 0 && c.over: // its connection has closed meanwhile: it runs out
		return lossRecord{}, false
	case !e.leaves || h.count == 0:
		h.passTo(nil)
	case h.client != nil:
		c = h.client
	}
	hs.begin(h, c, done.Count)
	e.nth, h.lent = h.nth, nil
	h.watched, h.deadline, h.asked, h.registration = e.Watched, done.Sent.Add(lockstore.Milliseconds(done.TTL)), done.Sent, e.Registration
	h.lease = lockstore.Milliseconds(e.Lease)
	h.ownEnd = done.Sent.Add(h.lease)
	hs.planNext(h, done.Sent)
	hs.recheckLate(h, done.Sent)
	hs.done.remove(h.id)
	if !time.Now().Before(h.deadline) {
		hs.lose(h, reasonExpired)
		lost, _ = c.lossOf(h.id)
		return lost, false
	}
	c.forgetLoss(h.id)
	return lossRecord{}, false
}
