package lock

import (
	"context"
	"time"

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
	e := extend{c: c, lease: lockstore.Milliseconds(r.Lease), asks: true}
	rec, err := c.m.holds.enter(ctx, patience, func() (*record, error) {
		rec, _, err := c.m.holds.own(c, c.id(r.Side, r.DB, r.Key, ""))
		switch {
		case err != nil:
		case rec.is == runsOut:
			err = &Error{Code: "ERR",
				Text: "not renewed: an earlier command of this connection may still take effect, " +
					"so the lock runs out by itself"}
		case rec.is == givenUp:
			err = notHeld(r.Key, c.library.Load())
		}
		return rec, err
	}, e.goBy)
	switch {
	case err != nil:
		return err
	case r.Lease > 0:
		return e.run(ctx)
	}
	if err = c.m.watchdog.visitBusy(rec, c.m.opts.Watchdog); err == nil {
		c.m.holds.apply(rec, handedOver{})
	}
	if lost := c.told(r.DB, r.Key); lost != nil {
		return lost
	}
	return err
}

// extend is a lease that a connection's hold is given. Its record is busy meanwhile.
type extend struct {
	c     *Client
	rec   *record
	lease time.Duration // 0: none, the watchdog is to come to the hold instead
	asks  bool          // the connection is told of a loss instead
	step  lockstore.Extension
}

// goBy takes the step's values from the hold. holds.mu is held.
func (e *extend) goBy(rec *record) {
	e.rec = rec
	e.step = lockstore.Extension{ID: rec.id, Counts: rec.counts, Lease: e.lease.Milliseconds()}
	if hs := e.c.m.holds; e.lease > 0 {
		hs.happen(rec, extending{e.lease, hs.now()})
	}
}

// run gives the hold its lease, and leaves the record.
func (e *extend) run(ctx context.Context) error {
	done, err := e.c.m.store.Extend(ctx, e.step)
	return e.c.m.holds.extend(e, done, err)
}

// extend notes what became of that.
func (hs *holds) extend(e *extend, done lockstore.Extended, err error) error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	defer hs.free(e.rec)
	if lockstore.WrongType(err) {
		done.Code, err = lockstore.OtherKind, nil
	}
	switch {
	case err != nil:
		hs.happen(e.rec, notExtended{lockstore.Unknown(err)})
	case done.Code != lockstore.LeaseSet:
		hs.happen(e.rec, gone{})
	case !e.rec.live(): // it was reported lost meanwhile
		hs.happen(e.rec, unanswered{hs.now(), e.lease})
	default:
		hs.happen(e.rec, extended{e.lease, lockstore.Milliseconds(done.TTL), hs.moment(done.Sent)})
	}
	if e.asks {
		if lost := e.c.losses.tell(e.rec.id.DB, e.rec.id.Key, false); lost != nil {
			return lost
		}
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
