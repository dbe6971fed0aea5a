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
	Lease int64 // ms from now, and no renewal any more; 0 = the watchdog's lease, renewed, of a connection only
}

// Renew sets the lease of a hold anew. With a lease the hold ends then, whatever it had left; without one the watchdog
// renews it. Errors are those of Unlock.
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
	if err := m.rules.Limit(r.Lease, 0); err != nil {
		return err
	}
	if r.Owner != "" {
		if r.Lease == 0 {
			return errLeaseless
		}
		id, _ := c.id(r.Side, r.DB, r.Key, r.Owner)
		return c.onNamedSide(id, func(id lockstore.ID) error { return c.renewNamed(ctx, id, r.Lease) })
	}
	if lost := c.told(r.DB, r.Key, false); lost != nil {
		return lost
	}
	id, err := c.ownSide(r.DB, r.Key, r.Side)
	if err != nil {
		return err
	}
	rec, err := m.holds.enter(ctx, c, id, patience)
	if err != nil {
		return err
	}
	h := m.holds.peek(id)
	if h.runsOut {
		m.holds.leave(rec)
		return &Error{Code: "ERR", Text: "not renewed: an earlier command of this connection may still take effect, so the lock runs out by itself"}
	}
	if !h.has(id.Kind) {
		m.holds.leave(rec)
		return c.lostOrNotHeld(r.DB, r.Key)
	}
	if r.Lease > 0 {
		err = c.extend(ctx, rec, r)
	} else if err = m.watchdog.visitBusy(rec, m.opts.Watchdog); err == nil {
		m.holds.apply(rec, handedOver{})
	}
	if lost := c.told(r.DB, r.Key, false); lost != nil {
		return lost // what was told while the request was under way stays lost
	}
	return err
}

// extend gives a hold a lease of its own. The record is busy, and left.
func (c *Client) extend(ctx context.Context, rec *record, r RenewRequest) error {
	hs := c.m.holds
	defer hs.leave(rec)
	lease := lockstore.Milliseconds(r.Lease)
	hs.apply(rec, extending{lease, time.Now()})
	done, err := c.m.store.Extend(ctx, lockstore.Extension{ID: rec.id, Lease: r.Lease})
	switch {
	case err != nil:
		hs.apply(rec, notExtended{lockstore.Unknown(err) || done.Unsure})
	case done.Code != lockstore.LeaseSet:
		hs.apply(rec, gone{})
	case !hs.peek(rec.id).live(): // it was reported lost meanwhile
		hs.apply(rec, unanswered{time.Now(), lease})
	default:
		hs.apply(rec, extended{lease, lockstore.Milliseconds(done.TTL), done.Sent})
	}
	if lockstore.Unknown(err) {
		err = outcomeUnknown("RENEW", err)
	}
	return err
}

// renewNamed gives one side of a named owner a lease.
func (c *Client) renewNamed(ctx context.Context, id lockstore.ID, lease int64) error {
	done, err := c.m.store.Extend(ctx, lockstore.Extension{ID: id, Named: true, Lease: lease})
	switch {
	case lockstore.Unknown(err):
		return outcomeUnknown("RENEW", err)
	case err != nil:
		return err
	case done.Code == lockstore.OtherKind:
		return otherKind(id.Key)
	case done.Code != lockstore.LeaseSet:
		c.m.leases.forget(id)
		return notHeld(id.Key, false)
	}
	c.m.leases.note(c, id, lockstore.Milliseconds(lease), done.Sent.Add(lockstore.Milliseconds(done.TTL)))
	return nil
}
