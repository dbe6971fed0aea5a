package sharded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// inTime calls send to run a script that changes something, and again with twice the time if Redis got to it too late. It returns
// what the script did, when the last one was sent, and its not-after.
func (d *store) inTime(again time.Duration, send func(l limits, text string, notAfter int64) ([]int64, error)) (out []int64, sent time.Time, at int64, err error) {
	for try := range lateTries {
		l := limits{notAfter << try, again}
		var text string
		if text, at, err = d.notAfter(l.allow); err != nil {
			return nil, sent, at, err
		}
		sent = time.Now()
		if out, err = send(l, text, at); err != nil || !node.Late(out) {
			return out, sent, at, err
		}
		if err = d.tooLate(time.Since(sent), l.allow); !errors.Is(err, lockstore.ErrLate) {
			break
		}
	}
	return nil, sent, at, err
}

// Acquire sends the script, again only when it surely was not done.
func (d *store) Acquire(ctx context.Context, a *lockstore.Acquire) (got lockstore.Acquired, err error) {
	if a.Replicas > 0 {
		leave, err := d.turns.enter(ctx, replicaKey{d.Lane(a.ID.Key).Node, a.ID.DB}, min(a.ReplicaWait, replicaTurn))
		if err != nil {
			return got, err
		}
		defer leave()
	}
	var acked int64
	out, sent, at, err := d.inTime(a.Patience, func(l limits, text string, _ int64) (out []int64, err error) {
		out, acked, err = d.evalAcquire(ctx, l, a, text)
		return out, err
	})
	if err == nil {
		got = node.Acquired(a, out)
	}
	got.Acked, got.Sent, got.NotAfter = acked, sent, at
	return got, err
}

// evalAcquire sends the script once. acked is how many replicas have it then, if it asks for some.
func (d *store) evalAcquire(ctx context.Context, l limits, a *lockstore.Acquire, notAfter string) (out []int64, acked int64, err error) {
	c := d.steps.Acquire(a, notAfter).Brief()
	if a.Replicas == 0 {
		out, err = d.evalInts(ctx, l, c)
		return out, 0, err
	}
	reply, acked, err := d.evalReplicated(ctx, l, c, a.Replicas, a.ReplicaWait)
	out, err = c.Ints(reply, err)
	return out, acked, err
}

// Release sends the script, again only when it surely was not done.
func (d *store) Release(ctx context.Context, r *lockstore.Release) (done lockstore.Released, err error) {
	out, sent, at, err := d.inTime(untilGivenUp, func(l limits, text string, notAfter int64) ([]int64, error) {
		return d.evalRelease(ctx, l, r, text, notAfter)
	})
	if done.Sent, done.NotAfter = sent, at; err == nil {
		done.Code, done.Left = node.Released(out)
	}
	return done, err
}

// evalRelease sends the script once, with a hand-off to those that wait.
func (d *store) evalRelease(ctx context.Context, l limits, r *lockstore.Release, text string, notAfter int64) ([]int64, error) {
	if r.Waiters != nil && r.Frees() {
		if next := r.Waiters.Claim(); next != nil {
			out, err := d.handOff(ctx, limits{allow: l.allow}, r, next, text, notAfter)
			if !d.again(err) {
				return out, err
			}
			// The release alone is sent again: handOff has told the waiters that they were not given the lock.
		}
	}
	return d.evalInts(ctx, l, d.steps.Release(r, text).Brief())
}

// handOff runs the release with what follows from it, and tells those who wait. It returns what the release returned.
func (d *store) handOff(ctx context.Context, l limits, r *lockstore.Release, next *lockstore.Handoff, text string, notAfter int64) ([]int64, error) {
	sent := time.Now()
	out, err := d.evalHandOff(ctx, l, r, next, text)
	all := make([]lockstore.Acquired, len(next.Asks))
	for i := range all {
		if err == nil {
			all[i] = node.Acquired(next.Asks[i], out[3+5*i:8+5*i])
		}
		all[i].Sent, all[i].NotAfter = sent, notAfter
	}
	r.Waiters.Given(all, err == nil && out[2] == turnGiven, err)
	return out, err
}

const (
	turnGiven = 1 // handoff.lua says so after what its release returned: others were given a turn, and nobody here got the lock
	notPassed = 0 // pass.lua has done nothing: handoff.lua is to be run
)

// evalHandOff sends handoff.lua. In the common cases pass.lua, which is shorter, is sent first; it may find that it does not fit, and has done
// nothing then. What it returns is that of handoff.lua in either case.
func (d *store) evalHandOff(ctx context.Context, l limits, r *lockstore.Release, next *lockstore.Handoff, text string) ([]int64, error) {
	if c, short := d.steps.Pass(r, next, text); short {
		out, err := d.evalInts(ctx, l, c)
		switch {
		case err != nil:
			return nil, err
		case out[0] == scripts.Done:
			return []int64{lockstore.Freed, 0, 0, lockstore.Granted, 1, next.Asks[0].Lease, 0, 1}, nil
		case out[0] != notPassed:
			return []int64{out[0], 0, 0, 0, 0, 0, 0, 0}, nil
		}
	}
	return d.evalInts(ctx, l, d.steps.Handoff(r, next, text))
}

// Renew sends a batch of renewals.
func (d *store) Renew(ctx context.Context, r lockstore.Renewal) (out []int64, err error) {
	l := limits{r.Allow, untilGivenUp}
	text, _, err := d.notAfter(l.allow)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	if r.Replicas > 0 {
		out, err = d.renewReplicated(ctx, l, r, text)
	} else {
		l.again = min(r.Lease/12, time.Second/4)
		c := node.Renew(r, text).Brief()
		out, err = c.Ints(d.eval(ctx, l, c))
		if len(r.Holds) > 1 && errors.Is(err, lockstore.ErrMoving) {
			out, err = d.oneByOne(ctx, l, r, text)
		}
	}
	if err == nil && node.Late(out) {
		err = d.tooLate(time.Since(sent), r.Allow)
	}
	return out, err
}

func (d *store) renewReplicated(ctx context.Context, l limits, r lockstore.Renewal, text string) ([]int64, error) {
	c := node.Renew(r, text).Brief()
	reply, acked, err := d.evalReplicated(ctx, l, c, r.Replicas, time.Second)
	out, err := c.Ints(reply, err)
	if err == nil && !node.Late(out) && acked < r.Replicas {
		// A renewal that too few replicas have does not count. What out says of holds that have gone is true nevertheless.
		err = &lockstore.Error{Code: "NOREPLICAS", Text: "the renewal reached too few replicas"}
	}
	return out, err
}

// oneByOne renews each hold of a batch with a script of its own, after Redis has refused the whole because its slot is moving. Some of the
// keys are at the old node still, and some at the new one. Redis refuses a script with keys of both, but not one whose keys are together.
func (d *store) oneByOne(ctx context.Context, l limits, r lockstore.Renewal, text string) ([]int64, error) {
	out := make([]int64, len(r.Holds))
	var failed error
	done := false
	for i := range r.Holds {
		one := r
		one.Holds = r.Holds[i : i+1]
		c := node.Renew(one, text).Brief()
		codes, err := c.Ints(d.eval(ctx, l, c))
		if err == nil && node.Late(codes) {
			err = lockstore.ErrLate
		}
		if err == nil {
			out[i], done = codes[0], true
			continue
		}
		if out[i], failed = lockstore.Undecided, err; lockstore.Unknown(err) {
			out[i] = lockstore.ReplyLost
		}
	}
	if done {
		return out, nil
	}
	return out, failed
}

// Extend sets the lease in Redis.
func (d *store) Extend(ctx context.Context, e lockstore.Extension) (done lockstore.Extended, err error) {
	var ends time.Time // of the hold, if the first request whose reply was lost was done
	var lost error     // of the last request whose reply was lost
	send := func(s *shard, c node.Call, ask bool) (rueidis.RedisMessage, error) {
		may := ends
		if may.IsZero() {
			may = time.Now().Add(lockstore.Milliseconds(e.Lease))
		}
		e.MayEnd(may)
		reply, err := s.Eval(c, ask)
		if lockstore.Unknown(err) {
			ends, lost, e.Again = may, err, true
		}
		if err != nil || codeOf(reply) != lockstore.LeaseSet {
			e.MayEnd(ends)
		}
		return reply, err
	}
	err = d.idempotent(func() (int64, error) {
		out, sent, at, err := d.inTime(untilGivenUp, func(l limits, text string, _ int64) ([]int64, error) {
			c := node.Extend(e, text)
			return c.Ints(d.evalBy(ctx, l, c, send))
		})
		if done.Sent = sent; err == nil {
			done.Code, done.Count, done.TTL = out[0], out[1], out[2]
		}
		return at, err
	})
	if err == nil && done.Code == lockstore.Overruled { // by a LOCK or RENEW that came between two tries: whether the first of them was done is not known
		err = lost
	}
	return done, err
}

// Force frees a lock. It is sent again only when it surely was not done: once more would free the lock of who has it next.
func (d *store) Force(ctx context.Context, f lockstore.Forcing) (code int64, err error) {
	out, _, _, err := d.inTime(untilGivenUp, func(l limits, text string, _ int64) ([]int64, error) {
		c := d.steps.Force(f, text)
		if f.Only != nil {
			c = d.steps.ForceOwners(f, f.Fields(), text)
		}
		return c.Ints(d.eval(ctx, l, c))
	})
	if err != nil {
		return 0, err
	}
	return out[0], nil
}

// idempotentFor is for how long a step that may be done twice is asked again: as long as a verb waits for an unknown outcome.
const idempotentFor = 5 * time.Second

// idempotent runs a step, which may be done twice without harm, until Redis answers. It is sent again only when the not-after of the last
// request has passed. That has also passed when the error returned says that the outcome is unknown.
func (d *store) idempotent(step func() (notAfter int64, err error)) error {
	giveUp := time.Now().Add(idempotentFor)
	var lost error // of the last request whose reply was lost; only a reply to a later one ends the doubt then
	for failures := retry.Insist(); ; {
		last, err := step()
		last = d.final(last)
		var notSent *upstream.NotSentError
		switch {
		case lockstore.Unknown(err):
			lost = err
		case lost == nil || !errors.As(err, &notSent):
			return err
		}
		final := time.Duration(last-d.now())*time.Microsecond + time.Millisecond
		if !d.host.Sleep(context.Background(), max(failures.Next(), min(final, lateMost))) || time.Now().After(giveUp) {
			return lost
		}
	}
}

// tooLate is the error for a script that Redis got to after its not-after: it did nothing. Redis' clock is read again.
func (d *store) tooLate(took, allowed time.Duration) error {
	if err := d.sample(); err != nil {
		return err
	}
	why := "its clock is ahead of where it was"
	if took >= allowed {
		why = fmt.Sprintf("the answer took %v, %v are allowed", took.Round(time.Millisecond), allowed.Round(time.Millisecond))
	}
	return &upstream.NotSentError{Cause: fmt.Errorf("%w, and nothing was done: %s", lockstore.ErrLate, why)}
}
