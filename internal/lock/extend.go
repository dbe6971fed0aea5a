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
	done, err := m.store.Extend(ctx, e)
	m.holds.noteStep(h, done)
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
	return c.extended(h, r, done, e.Registration)
}

// newExtension is the step of a RENEW. The hold is busy.
func (c *Client) newExtension(h *hold, r RenewRequest) lockstore.Extension {
	c.m.holds.mu.Lock()
	defer c.m.holds.mu.Unlock()
	e := lockstore.Extension{ID: h.id, Named: h.explicit, Lease: leaseOf(Request{Lease: r.Lease}, c.m.opts), Watched: r.Lease == 0,
		Known: h.registration, Attempt: h.attempt, Count: h.count}
	if !h.explicit {
		return e
	}
	if h.count > 0 { // see enrol
		e.Registration = e.Known
	}
	if e.Registration == "" {
		e.Registration = c.request()
	}
	e.Registration = lockstore.Marked(e.Registration, r.Lease == 0)
	return e
}

// noteStep notes what a RENEW has changed, whatever else came of it.
func (hs *holds) noteStep(h *hold, done lockstore.Extended) {
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

// extended notes a lease that Redis has set. What was told lost while the request was under way stays lost, and a lease that was
// over before the answer came is none.
func (c *Client) extended(h *hold, r RenewRequest, done lockstore.Extended, registration string) error {
	lost, told := c.noteExtended(h, r, done, registration)
	if told {
		c.m.giveBacks.surrenderLater(h)
	}
	if lost.reason != "" {
		return lost.error(r.Key)
	}
	return nil
}

// noteExtended is the part of extended that takes mu. told says that Redis has a lock that was told lost.
func (c *Client) noteExtended(h *hold, r RenewRequest, done lockstore.Extended, registration string) (lost lossRecord, told bool) {
	m := c.m
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	if lost, told = c.lossOf(h.id); told && !h.explicit {
		return lost, true
	}
	m.holds.begin(h, c, done.Count)
	h.watched, h.deadline, h.registration = r.Lease == 0, done.Sent.Add(lockstore.Milliseconds(done.TTL)), registration
	h.lease = lockstore.Milliseconds(leaseOf(Request{Lease: r.Lease}, m.opts))
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
