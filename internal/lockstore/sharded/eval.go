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

// request is a script for the Redis that has a key. It is made when it is known which Redis that is: by whose clock the
// not-after is, and with which command it publishes there.
type request struct {
	key   string
	build func(at *shard, notAfter string) node.Call
	send  sending
	allow time.Duration // how long after it was sent Redis may still do it; 0: it has no not-after
	again time.Duration // on a cluster: for how long it is sent again while it was surely not done

	sent  time.Time // when it was sent last
	lost  bool      // a reply to it was lost, and the script may have been done
	final time.Time // of an unknown outcome: when the script can no longer be done
}

// untilGivenUp is request.again of one that has none of its own: the cluster gives up by itself.
const untilGivenUp = time.Hour

// reads is a request that changes nothing.
func reads(key string, send sending, build func() node.Call) *request {
	return &request{key: key, send: send, again: untilGivenUp, build: func(*shard, string) node.Call { return build() }}
}

// sendTo sends the request to one Redis. If it got there too late, that one's clock is read again.
func (r *request) sendTo(ctx context.Context, to *shard, ask bool) (out []int64, err error) {
	now, known := to.Clock.Now()
	if r.allow > 0 && !known {
		if err := to.sample(); err != nil {
			return nil, err
		}
		now, _ = to.Clock.Now()
	}
	until := now + r.allow.Microseconds()
	c := r.build(to, node.NotAfter(until))
	_, span := telemetry.Span(ctx, c.Script.Span)
	defer span.End()
	if to.is != nil {
		c = c.Guarded()
	}
	out, err = r.send(to, c, ask)
	switch {
	case r.allow > 0 && lockstore.Unknown(err):
		now, _ = to.Clock.Now() // which may have been set meanwhile
		r.lost, r.final = true, time.Now().Add(time.Duration(until-now)*time.Microsecond+time.Millisecond)
	case r.allow > 0 && err == nil && node.Late(out):
		_ = to.sample()
	}
	to.Account.Refused(err)
	return out, err
}

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
