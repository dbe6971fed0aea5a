package sharded

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// notAfter is how long after it was sent a verb's script may still be done, by Redis' clock. If Redis was slower
	// than that the next try has lateMost. Renewals have longer: see lane.
	notAfter = lockstore.Allowed
	lateMost = 4 * notAfter
)

// limits bound how long one request may be under way.
type limits struct {
	allow time.Duration // how long after it was sent Redis may still do it
	again time.Duration // on a cluster: for how long it is sent again while it was surely not done
}

// untilGivenUp is limits.again of a request that has none of its own: the cluster gives up by itself.
const untilGivenUp = time.Hour

// sending sends a script that is prepared to a shard. ask: ASKING comes first.
type sending func(s *shard, prepared node.Call, ask bool) ([]int64, error)

// direct is for the scripts that every LOCK and UNLOCK needs.
func direct(s *shard, prepared node.Call, ask bool) ([]int64, error) {
	return s.EvalInts(prepared, ask)
}

// aside is for the others: those that every LOCK needs do not wait for them.
func aside(s *shard, prepared node.Call, ask bool) ([]int64, error) {
	return prepared.Ints(s.Eval(prepared, ask))
}

// replicated is for a script of which so many replicas are told; acked is how many have it then. It waits while the
// slot is moving: the new node's replicas say nothing of the keys that are still here.
func replicated(replicas int64, wait time.Duration, acked *int64) sending {
	return func(s *shard, prepared node.Call, ask bool) (out []int64, err error) {
		if ask {
			return nil, &upstream.NotSentError{Cause: lockstore.ErrMoving}
		}
		out, *acked, err = s.EvalReplicated(prepared, replicas, wait)
		return out, err
	}
}

// eval runs a script on the Redis that has its first key.
func (d *store) eval(ctx context.Context, l limits, c node.Call, send sending) (out []int64, err error) {
	_, span := telemetry.Span(ctx, c.Script.Span)
	defer span.End()
	return d.do(ctx, l, c, send)
}
