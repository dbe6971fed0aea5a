package sharded

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// Look waits until Redis' clock is past notAfter and reads what Redis holds.
func (d *store) Look(id lockstore.ID, named bool, notAfter int64, giveUp time.Time) (lockstore.Seen, error) {
	background := context.Background()
	until := d.final(notAfter)
	for failures := retry.Insist(); ; {
		if now := d.now(); now <= until {
			d.host.Sleep(background, min(time.Duration(until-now)*time.Microsecond+time.Millisecond, time.Until(giveUp)))
		}
		at := time.Now()
		reply, err := d.eval(background, usual, node.Look(id, named))
		if err == nil {
			s, clock := node.Seen(reply)
			if d.clockAt(id.Key, clock) > until {
				s.At = at
				return s, nil
			}
			err = &upstream.NotSentError{Cause: lockstore.ErrLate}
		}
		if lockstore.Unknown(err) {
			err = &upstream.NotSentError{Cause: err} // it only read
		}
		if time.Now().After(giveUp) || !d.host.Sleep(background, failures.Next()) {
			return lockstore.Seen{At: at}, err
		}
	}
}

// Info reads a lock.
func (d *store) Info(ctx context.Context, db int, key string) (lockstore.Info, error) {
	return node.ParseInfo(d.eval(ctx, usual, node.Info(db, key)))
}

// SidesHeld asks Redis on which sides of a read/write lock an owner has a hold, or whether it has a plain one.
func (d *store) SidesHeld(ctx context.Context, id lockstore.ID) (held []lockstore.Kind, err error) {
	var parts []rueidis.RedisMessage
	err = d.idempotent(func() (int64, error) {
		result, err := d.read(ctx, id.DB, id.Key, func(client rueidis.Client) rueidis.Completed {
			return node.Sides(client, id)
		})
		if err != nil {
			return 0, err
		}
		parts, err = result.ToArray()
		return 0, node.Outcome(err)
	})
	if lockstore.Unknown(err) {
		return nil, &upstream.NotSentError{Cause: err} // it only read
	}
	if err != nil {
		return nil, err
	}
	return node.SidesIn(parts), nil
}
