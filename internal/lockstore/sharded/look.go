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

// Look reads what Redis has of one owner's holds.
func (d *store) Look(id lockstore.ID, final, giveUp time.Time) (lockstore.Seen, error) {
	background := context.Background()
	if final.After(giveUp) { // Redis' clock has gone back by hours
		d.host.Sleep(background, time.Until(giveUp))
		return lockstore.Seen{}, &upstream.NotSentError{Cause: lockstore.ErrBehind}
	}
	if wait := time.Until(final); wait > 0 {
		d.host.Sleep(background, wait)
	}
	for failures := retry.Insist(); ; {
		out, err := d.do(background, reads(id.Key, aside, func() node.Call { return node.Look(id) }))
		if err == nil {
			return node.Seen(out), nil
		}
		if lockstore.Unknown(err) {
			err = &upstream.NotSentError{Cause: err} // it only read
		}
		if time.Now().After(giveUp) || !d.host.Sleep(background, failures.Next()) {
			return lockstore.Seen{}, err
		}
	}
}

// Info reads a lock. Its reply has more than numbers.
func (d *store) Info(ctx context.Context, db int, key string, most int) (lockstore.Info, error) {
	var reply rueidis.RedisMessage
	_, err := d.do(ctx, reads(key, func(s *shard, prepared node.Call, ask bool) (_ []int64, err error) {
		reply, err = s.Eval(prepared, ask)
		return nil, err
	}, func() node.Call { return node.Info(db, key, most) }))
	return node.ParseInfo(reply, err)
}
