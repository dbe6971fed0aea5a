package sharded

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// notAfter is how long after it was sent a verb's script may still be done, by Redis' clock. If Redis was slower than that
	// the next try has twice as long, the last one lateMost. Renewals have longer: see lane.
	notAfter  = lockstore.Allowed
	lateTries = 3
	lateMost  = notAfter << (lateTries - 1)
)

// limits bound how long one request may be under way.
type limits struct {
	allow time.Duration // how long after it was sent Redis may still do it
	again time.Duration // on a cluster: for how long it is sent again while it was surely not done
}

// untilGivenUp is limits.again of a request that has none of its own: the cluster gives up by itself.
const untilGivenUp = time.Hour

// usual are the limits of most requests.
var usual = limits{notAfter, untilGivenUp}

// eval runs a script: see node.Node.Eval.
func (d *store) eval(ctx context.Context, l limits, c node.Call) (rueidis.RedisMessage, error) {
	return d.evalBy(ctx, l, c, func(s *shard, prepared node.Call, ask bool) (rueidis.RedisMessage, error) {
		return s.Eval(prepared, ask)
	})
}

// sending sends a script that is prepared to a shard.
type sending func(s *shard, prepared node.Call, ask bool) (rueidis.RedisMessage, error)

// evalBy is eval in which send does the sending.
func (d *store) evalBy(ctx context.Context, l limits, c node.Call, send sending) (reply rueidis.RedisMessage, err error) {
	_, span := telemetry.Span(ctx, c.Script.Span)
	defer span.End()
	err = d.do(ctx, l, c.Keys[0], func(s *shard, ask bool) error {
		prepared, err := d.prepare(s, l, c)
		if err != nil {
			return err
		}
		if reply, err = send(s, prepared, ask); err == nil && late(reply) {
			d.wasLate(s)
		}
		return err
	})
	return reply, err
}

func late(reply rueidis.RedisMessage) bool { return codeOf(reply) == scripts.Late }

// codeOf is what a script said first; 0 when that is no number.
func codeOf(reply rueidis.RedisMessage) int64 {
	if code, err := reply.AsInt64(); err == nil {
		return code
	}
	parts, err := reply.ToArray()
	if err != nil || len(parts) == 0 {
		return 0
	}
	code, _ := parts[0].AsInt64()
	return code
}

// evalInts is node.Node.EvalInts.
func (d *store) evalInts(ctx context.Context, l limits, c node.Call) ([]int64, error) {
	_, span := telemetry.Span(ctx, c.Script.Span)
	defer span.End()
	return d.ints(ctx, l, c)
}

// evalReplicated is node.Node.EvalReplicated. It waits while the slot is moving: the new node's replicas say nothing of the keys
// that are still here.
func (d *store) evalReplicated(ctx context.Context, l limits, c node.Call, replicas int64, wait time.Duration) (reply rueidis.RedisMessage, acked int64, err error) {
	_, span := telemetry.Span(ctx, c.Script.Span)
	defer span.End()
	err = d.do(ctx, l, c.Keys[0], func(s *shard, ask bool) error {
		if ask {
			return &upstream.NotSentError{Cause: lockstore.ErrMoving}
		}
		prepared, err := d.prepare(s, l, c)
		if err != nil {
			return err
		}
		if reply, acked, err = s.EvalReplicated(prepared, replicas, wait); err == nil && late(reply) {
			d.wasLate(s)
		}
		return err
	})
	return reply, acked, err
}
