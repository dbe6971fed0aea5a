package sharded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// inTime sends a request that changes something, and again with more time if Redis got to it too late. It returns
// what the script did.
func (d *store) inTime(ctx context.Context, r *request) (out []int64, err error) {
	for _, r.allow = range [...]time.Duration{notAfter, lateMost} {
		r.sent = time.Now()
		if out, err = d.do(ctx, r); err != nil || !node.Late(out) {
			return out, err
		}
		err = tooLate(time.Since(r.sent), r.allow)
	}
	return nil, err
}

// step sends a request that changes something until Redis answers. Of one whose reply was lost see lockstore.Lost: for so
// long it is sent again, each time when the not-after of the one before has passed, and also when Redis refuses it
// (LOADING, MISCONF): that tells nothing of the one before.
func (d *store) step(ctx context.Context, lost time.Duration, r *request) (out []int64, err error) {
	giveUp := time.Now().Add(lost)
	var last error // only a later script ends the doubt, also one that ran and found another type at the key
	for failures := retry.Insist(); ; {
		out, err = d.inTime(ctx, r)
		switch {
		case lockstore.Unknown(err):
			last = err
		case last == nil || err == nil || lockstore.WrongType(err):
			r.final = time.Time{}
			return out, err
		}
		pause := max(failures.Next(), min(time.Until(r.final), lateMost))
		if time.Now().Add(pause).After(giveUp) || !d.host.Sleep(ctx, pause) {
			return nil, last
		}
	}
}

// Acquire sends the script.
func (d *store) Acquire(ctx context.Context, a *lockstore.Acquire) (got lockstore.Acquired, err error) {
	send := direct
	var acked int64
	if a.Replicas > 0 {
		leave, err := d.turns.enter(ctx, replicaKey{d.Location(a.ID.Key).Node, a.ID.DB}, min(a.ReplicaWait, replicaTurn))
		if err != nil {
			return got, err
		}
		defer leave()
		send = replicated(a.Replicas, a.ReplicaWait, &acked)
	}
	r := &request{key: a.ID.Key, send: send, again: a.Patience}
	r.build = func(at *shard, notAfter string) node.Call { return at.steps().Acquire(a, notAfter) }
	out, err := d.step(ctx, min(a.Patience, a.IfLost().Again), r)
	if err == nil {
		got = node.Acquired(a, out)
	}
	if got.Acked, got.Sent, got.Final = acked, r.sent, r.final; r.lost {
		got.Expiry = nil // which of the requests has made the hold is not known
	}
	return got, err
}

// Release sends the script. Those that are handed the lock wait for the answer, so that it is not sent for long.
func (d *store) Release(ctx context.Context, b *lockstore.Release) (done lockstore.Released, err error) {
	r := &request{key: b.ID.Key, send: direct, again: untilGivenUp}
	r.build = func(at *shard, notAfter string) node.Call { return at.steps().Release(b, notAfter) }
	switch {
	case b.Forced():
		r.send = aside
	case b.Next != nil:
		r.again = 0
	}
	out, err := d.step(ctx, b.IfLost().Again, r)
	if err == nil {
		done = node.Released(out, b)
	}
	done.Sent, done.Final, done.Again = r.sent, r.final, r.lost
	for i := range done.Given {
		done.Given[i].Sent = r.sent
	}
	return done, err
}

// Renew sends a batch of renewals.
func (d *store) Renew(ctx context.Context, r lockstore.Renewal) (out []int64, err error) {
	sent := time.Now()
	out, err = d.do(ctx, renewal(r))
	if len(r.Holds) > 1 && errors.Is(err, lockstore.ErrMoving) {
		out, err = d.oneByOne(ctx, r)
	}
	if err == nil && node.Late(out) {
		err = tooLate(time.Since(sent), r.Allow)
	}
	return out, err
}

func renewal(r lockstore.Renewal) *request {
	return &request{key: r.Holds[0].ID.Key, send: aside, allow: r.Allow, again: time.Second / 4,
		build: func(_ *shard, notAfter string) node.Call { return node.Renew(r, notAfter) }}
}

// oneByOne renews each hold of a batch with a script of its own, after Redis has refused the whole because its slot is
// moving. Some of the keys are at the old node still, and some at the new one. Redis refuses a script with keys of
// both, but not one whose keys are together.
func (d *store) oneByOne(ctx context.Context, r lockstore.Renewal) ([]int64, error) {
	out := make([]int64, len(r.Holds))
	var failed error
	done := false
	for i := range r.Holds {
		one := r
		one.Holds = r.Holds[i : i+1]
		codes, err := d.do(ctx, renewal(one))
		if err == nil && node.Late(codes) {
			err = lockstore.ErrLate
		}
		if err != nil {
			out[i], failed = lockstore.Undecided, err
			continue
		}
		out[i], done = codes[0], true
	}
	if done {
		return out, nil
	}
	return out, failed
}

// Extend sets the lease in Redis.
func (d *store) Extend(ctx context.Context, e lockstore.Extension) (done lockstore.Extended, err error) {
	r := &request{key: e.ID.Key, send: aside, again: untilGivenUp}
	r.build = func(_ *shard, notAfter string) node.Call { return node.Extend(e, r.lost, notAfter) }
	out, err := d.step(ctx, e.IfLost().Again, r)
	if err == nil {
		done = lockstore.Extended{Code: out[0], TTL: out[1], Expiry: lockstore.ExpiryAt(out[2])}
	}
	done.Sent = r.sent
	return done, err
}

// tooLate is the error for a script that Redis got to after its not-after: it did nothing.
func tooLate(took, allowed time.Duration) error {
	why := "its clock is ahead of where it was"
	if took >= allowed {
		why = fmt.Sprintf("the answer took %v, %v are allowed", took.Round(time.Millisecond),
			allowed.Round(time.Millisecond))
	}
	return &upstream.NotSentError{Cause: fmt.Errorf("%w, and nothing was done: %s", lockstore.ErrLate, why)}
}
