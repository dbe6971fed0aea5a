package lock

import (
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
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
	h, err := m.enter(ctx, id, explicit)
	if err != nil {
		return err
	}
	defer m.leave(h)
	if lost, ok := c.lossOf(id); ok && !explicit {
		return lost.error(r.Key) // Redis may have it for a moment longer: what was reported lost stays lost
	}
	if err := m.store.limit(r.Lease, 0); err != nil {
		return err
	}
	if r.Lease > 0 && !m.sitOut(ctx, h) {
		return ctx.Err()
	}
	m.mu.Lock()
	known := h.registration // another one is told that the hold has ended, rather than deleted
	registration := ""
	if explicit {
		if h.count > 0 { // see enrol
			registration = known
		}
		if registration == "" {
			registration = c.request()
		}
		registration = marked(registration, r.Lease == 0)
	}
	m.mu.Unlock()
	out, sent, err := m.store.extend(ctx, h, r, registration, known)
	switch {
	case isUnknown(err):
		return outcomeUnknown("RENEW", err)
	case err != nil:
		return err
	case out[0] != 1:
		_, err := c.unlocked(h, r.Key, out[0], out[1])
		if err == nil {
			err = notHeld(r.Key, c.named.Load() && !explicit)
		}
		return err
	}
	return c.extended(h, r, out[1], sent, milliseconds(out[2]), registration)
}

// extended notes a lease that Redis has set. What was told lost while the request was under way stays lost, and a lease that was
// over before the answer came is none.
func (c *Client) extended(h *hold, r RenewRequest, count int64, sent time.Time, ttl time.Duration, registration string) error {
	lost, told := c.noteExtended(h, r, count, sent, ttl, registration)
	if told {
		c.m.surrenderLater(h)
	}
	if lost.reason != "" {
		return lost.error(r.Key)
	}
	return nil
}

// noteExtended is the part of extended that takes mu. told says that Redis has a lock that was told lost.
func (c *Client) noteExtended(h *hold, r RenewRequest, count int64, sent time.Time, ttl time.Duration, registration string) (lost lossRecord, told bool) {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if lost, told = c.lossOf(h.id); told && !h.explicit {
		return lost, true
	}
	m.begin(h, c, count)
	h.watched, h.deadline, h.registration = r.Lease == 0, sent.Add(ttl), registration
	h.lease = milliseconds(leaseOf(Request{Lease: r.Lease}, m.opts))
	m.planNext(h, sent)
	m.done.remove(h.id)
	if !time.Now().Before(h.deadline) {
		m.lose(h, reasonExpired)
		lost, _ = c.lossOf(h.id)
		return lost, false
	}
	c.forgetLoss(h.id)
	return lossRecord{}, false
}

func extendCall(h *hold, r RenewRequest, o Options, notAfter, registration, known string) node.Call {
	keys, flags := h.id.Keys(), ""
	if h.explicit {
		keys, flags = append(keys, h.id.WatchKey()), "W"
	}
	if r.Lease == 0 {
		flags += "K"
	}
	lease := leaseOf(Request{Lease: r.Lease}, o)
	args := []string{strconv.FormatInt(lease, 10), h.id.Field(), notAfter, flags, registration, known}
	return node.Call{DB: h.id.DB, Script: h.id.Kind.Spec().Extend, Keys: keys, Args: append(args, h.id.Rest()...)}
}
