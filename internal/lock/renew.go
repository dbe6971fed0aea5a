package lock

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/lockstore"
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
	ctx, verb := beginVerb(ctx, "RENEW", r.Key)
	err := c.renew(ctx, r)
	c.ended(ctx, verb, err, c.id(r.Side, r.DB, "", r.Owner), r.Key)
	return err
}

func (c *Client) renew(ctx context.Context, r RenewRequest) error {
	if err := c.m.nameable(r.Key); err != nil {
		return err
	}
	if err := c.m.rules.Limit(r.Lease, 0); err != nil {
		return err
	}
	if r.Owner != "" {
		id := c.id(r.Side, r.DB, r.Key, r.Owner)
		return c.onNamedSide(id, func(id lockstore.ID) error { return c.renewNamed(ctx, id, r.Lease) })
	}
	return c.onOwnSide(ctx, c.id(r.Side, r.DB, r.Key, ""), func(rec *record, _ lockstore.ID, h hold) error {
		switch {
		case h.runsOut:
			c.m.holds.leave(rec)
			return &Error{Code: "ERR",
				Text: "not renewed: an earlier command of this connection may still take effect, " +
					"so the lock runs out by itself"}
		case h.givenUp:
			c.m.holds.leave(rec)
			return c.lostOrNotHeld(r.DB, r.Key)
		case r.Lease > 0:
			return c.extend(ctx, rec, r.Lease)
		}
		err := c.m.watchdog.visitBusy(rec, c.m.opts.Watchdog)
		if err == nil {
			c.m.holds.apply(rec, handedOver{})
		}
		return err
	})
}

// extend gives a hold a lease of its own. The record is busy, and left.
func (c *Client) extend(ctx context.Context, rec *record, ms int64) error {
	hs := c.m.holds
	defer hs.leave(rec)
	lease := lockstore.Milliseconds(ms)
	hs.apply(rec, extending{lease, hs.now()})
	done, err := c.m.store.Extend(ctx, lockstore.Extension{ID: rec.id, Counts: hs.see(rec).counts, Lease: ms})
	switch {
	case err != nil:
		hs.apply(rec, notExtended{lockstore.Unknown(err)})
	case done.Code != lockstore.LeaseSet:
		hs.apply(rec, gone{})
	case !hs.see(rec).live(): // it was reported lost meanwhile
		hs.apply(rec, unanswered{hs.now(), lease})
	default:
		hs.apply(rec, extended{lease, lockstore.Milliseconds(done.TTL), hs.moment(done.Sent)})
	}
	return explained("RENEW", err)
}

// renewNamed gives one side of a named owner a lease.
func (c *Client) renewNamed(ctx context.Context, id lockstore.ID, lease int64) error {
	done, err := c.m.store.Extend(ctx, lockstore.Extension{ID: id, Lease: lease})
	switch {
	case err != nil:
		return explained("RENEW", err)
	case done.Code == lockstore.OtherKind:
		return otherKind(id.Key)
	case done.Code != lockstore.LeaseSet:
		c.m.leases.forget(id)
		return notHeld(id.Key, false)
	}
	c.m.leases.note(c, id, lockstore.Milliseconds(lease), done.Sent.Add(lockstore.Milliseconds(done.TTL)))
	return nil
}
