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

// Renew sets the lease of a hold anew. With a lease the hold ends then, whatever it had left; without one the watchdog takes
// it, on this connection. Errors are those of Unlock.
func (c *Client) Renew(ctx context.Context, r RenewRequest) error {
	began := time.Now()
	ctx, span := telemetry.Span(ctx, "RENEW")
	defer span.End()
	err := c.renew(ctx, r)
	telemetry.VerbDone(ctx, "renew", outcomeWord(err), time.Since(began))
	return err
}

func (c *Client) renew(ctx context.Context, r RenewRequest) error {
	m := c.m
	if err := m.nameable(r.Key); err != nil {
		return err
	}
	id, explicit := c.id(r.Side, r.DB, r.Key, r.Owner)
	id, err := c.resolveSide(ctx, id, explicit)
	if err != nil {
		return err
	}
	h, err := m.holds.enter(ctx, id, explicit)
	if err != nil {
		return err
	}
	defer m.holds.leave(h)
	if lost, ok := c.lossOf(id); ok && !explicit {
		return lost.error(r.Key) // Redis may have it for a moment longer: what was reported lost stays lost
	}
	if err := m.store.Rules().Limit(r.Lease, 0); err != nil {
		return err
	}
	if r.Lease > 0 && !m.sitOut(ctx, h) {
		return ctx.Err()
	}
	e := c.newExtension(h, r)
	done, err := m.store.Extend(ctx, e.Extension)
	e.note(done)
	switch {
	case lockstore.Unknown(err):
		return outcomeUnknown("RENEW", err)
	case err != nil:
		return err
	case done.Code != 1:
		_, err := c.unlocked(h, r.Key, done.Code, done.Count)
		if err == nil {
			err = notHeld(r.Key, c.named.Load() && !explicit)
		}
		return err
	}
	return e.conclude(done)
}

// extension is one RENEW under way: a step, and what the engine knows of it. Its hold is busy meanwhile.
type extension struct {
	lockstore.Extension
	c *Client
	h *hold
}

func (c *Client) newExtension(h *hold, r RenewRequest) *extension {
	c.m.holds.mu.Lock()
	defer c.m.holds.mu.Unlock()
	e := &extension{c: c, h: h, Extension: lockstore.Extension{
		ID: h.id, Named: h.explicit, Lease: leaseOf(Request{Lease: r.Lease}, c.m.opts), Watched: r.Lease == 0,
		Known: h.registration, Attempt: h.attempt, Count: h.count,
	}}
	if !h.explicit {
		return e
	}
	if h.count > 0 { // see enrol
		e.Registration = e.Known
	}
	if e.Registration == "" {
		e.Registration = c.request()
	}
	e.Registration = lockstore.Marked(e.Registration, e.Watched)
	return e
}

// note notes what has changed, whatever else came of it.
func (e *extension) note(done lockstore.Extended) {
	hs, h := e.c.m.holds, e.h
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if done.Attempt != "" {
		h.attempt = done.Attempt
	}
	if !done.Ends.IsZero() && h.count > 0 && done.Ends.Before(h.deadline) {
		h.deadline = done.Ends
		hs.plan(h, done.Sent)
	}
}

// conclude notes a lease that Redis has set. What was told lost while the request was under way stays lost, and a lease that was over
// before the answer came is none.
func (e *extension) conclude(done lockstore.Extended) error {
	lost, told := e.register(done)
	if told {
		e.c.m.giveBacks.surrenderLater(e.h)
	}
	if lost.reason != "" {
		return lost.error(e.h.id.Key)
	}
	return nil
}

// register is the part of conclude that takes holds.mu. told says that Redis has a lock that was told lost.
func (e *extension) register(done lockstore.Extended) (lost lossRecord, told bool) {
	m, c, h := e.c.m, e.c, e.h
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	if lost, told = c.lossOf(h.id); told && !h.explicit {
		return lost, true
	}
	m.holds.begin(h, c, done.Count)
	h.watched, h.deadline, h.registration = e.Watched, done.Sent.Add(lockstore.Milliseconds(done.TTL)), e.Registration
	h.lease = lockstore.Milliseconds(e.Lease)
	m.holds.planNext(h, done.Sent)
	m.done.remove(h.id)
	if !time.Now().Before(h.deadline) {
		m.holds.lose(h, reasonExpired)
		lost, _ = c.lossOf(h.id)
		return lost, false
	}
	c.forgetLoss(h.id)
	return lossRecord{}, false
}
