package lock

import (
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/upstream"
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
	id, err := c.meant(ctx, id, explicit)
	if err != nil {
		return err
	}
	h, err := m.enter(ctx, id, explicit)
	if err != nil {
		return err
	}
	defer m.leave(h)
	if lost, ok := m.losses.Get(id); ok && !explicit {
		return lost.error(r.Key) // Redis may have it for a moment longer: what was reported lost stays lost
	}
	if m.quorum != nil {
		if err := m.quorum.limit(r.Lease, 0); err != nil {
			return err
		}
	}
	if r.Lease > 0 && !m.sitOut(ctx, h) {
		return ctx.Err()
	}
	m.mu.Lock()
	known := h.registration // another one is told that the hold has ended, rather than deleted
	m.mu.Unlock()
	registration := ""
	if explicit && r.Lease == 0 {
		m.mu.Lock()
		if h.count > 0 { // see newAcquire
			registration = h.registration
		}
		m.mu.Unlock()
		if registration == "" {
			registration = c.request()
		}
	}
	var out []int64
	var sent time.Time
	err = m.idempotent(func() (int64, error) {
		if m.quorum != nil {
			out, sent, err = m.quorum.extend(h, r, registration, known)
			return 0, err
		}
		text, at, err := m.notAfter()
		if err != nil {
			return 0, err
		}
		sent = time.Now()
		out, err = ints(m.eval(ctx, extendCall(h, r, m.opts, text, registration, known)))
		return at, err
	})
	switch {
	case isUnknown(err):
		return outcomeUnknown("RENEW", err)
	case err != nil:
		return err
	case out[0] == codeLate:
		return &upstream.NotSentError{Cause: errLate}
	case out[0] != 1:
		_, err := c.unlocked(h, r.Key, out[0], out[1])
		if err == nil {
			err = notHeld(r.Key, c.named.Load() && !explicit)
		}
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin(h, c, out[1])
	h.watched, h.deadline, h.registration = r.Lease == 0, sent.Add(milliseconds(out[2])), registration
	h.lease = milliseconds(leaseOf(Request{Lease: r.Lease}, m.opts))
	m.planNext(h, sent)
	m.losses.Remove(h.id)
	m.done.Remove(h.id)
	return nil
}

func extendCall(h *hold, r RenewRequest, o Options, notAfter, registration, known string) call {
	keys, flags := h.id.keys(), ""
	if h.explicit {
		keys = append(keys, h.id.watchKey())
		flags = "D"
	}
	if r.Lease == 0 {
		flags = "K"
		if h.explicit {
			flags = "KW"
		}
	}
	lease := leaseOf(Request{Lease: r.Lease}, o)
	args := []string{strconv.FormatInt(lease, 10), h.id.field(), notAfter, flags, registration, known}
	return call{h.id.db, h.id.kind.nature().extend, keys, append(args, h.id.rest()...)}
}
