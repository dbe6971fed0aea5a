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

// inTime runs a script that changes something, and again with more time if Redis got to it too late. It returns
// what the script did, when the last one was sent, and its not-after.
func (d *store) inTime(ctx context.Context, again time.Duration, send sending, build func(notAfter string) node.Call) (out []int64, sent time.Time, at int64, err error) {
	for _, allow := range [...]time.Duration{notAfter, lateMost} {
		l := limits{allow, again}
		var text string
		if text, at, err = d.notAfter(l.allow); err != nil {
			return nil, sent, at, err
		}
		sent = time.Now()
		if out, err = d.eval(ctx, l, build(text), send); err != nil || !node.Late(out) {
			return out, sent, at, err
		}
		if err = d.tooLate(time.Since(sent), l.allow); !errors.Is(err, lockstore.ErrLate) {
			break
		}
	}
	return nil, sent, at, err
}

// answer is what Redis has said to a step.
type answer struct {
	out   []int64
	sent  time.Time // the last request
	final time.Time // of an unknown outcome: when the last request can no longer be done
	lost  bool      // the reply to a request was lost, which may have been done
}

// step runs a script that changes something until Redis answers. Of one whose reply was lost see lockstore.Lost: for so
// long it is sent again, each time when the not-after of the request before has passed. moved is for how long each is
// sent again while it was surely not done.
func (d *store) step(ctx context.Context, lost, moved time.Duration, send sending,
	build func(notAfter string, again bool) node.Call) (a answer, err error) {
	giveUp := time.Now().Add(lost)
	var last error // only a reply to a later request ends the doubt
	for failures := retry.Insist(); ; {
		var at int64
		a.out, a.sent, at, err = d.inTime(ctx, moved, send, func(text string) node.Call { return build(text, a.lost) })
		switch {
		case lockstore.Unknown(err):
			last, a.lost = err, true
			a.final = time.Now().Add(time.Duration(d.final(at)-d.now())*time.Microsecond + time.Millisecond)
		case last == nil || !lockstore.NotSent(err):
			a.final = time.Time{}
			return a, err
		}
		pause := max(failures.Next(), min(time.Until(a.final), lateMost))
		if time.Now().Add(pause).After(giveUp) || !d.host.Sleep(ctx, pause) {
			return a, last
		}
	}
}

// Acquire sends the script.
func (d *store) Acquire(ctx context.Context, a *lockstore.Acquire) (got lockstore.Acquired, err error) {
	send := direct
	var acked int64
	if a.Replicas > 0 {
		leave, err := d.turns.enter(ctx, replicaKey{d.Lane(a.ID.Key).Node, a.ID.DB}, min(a.ReplicaWait, replicaTurn))
		if err != nil {
			return got, err
		}
		defer leave()
		send = replicated(a.Replicas, a.ReplicaWait, &acked)
	}
	said, err := d.step(ctx, min(a.Patience, a.IfLost().Again), a.Patience, send,
		func(text string, _ bool) node.Call { return d.steps.Acquire(a, text) })
	if err == nil {
		got = node.Acquired(said.out)
	}
	if got.Acked, got.Sent, got.Final = acked, said.sent, said.final; said.lost {
		got.Expiry = nil // which of the requests has made the hold is not known
	}
	return got, err
}

// Release sends the script. Those that are handed the lock wait for the answer, so that it is not sent for long.
func (d *store) Release(ctx context.Context, r *lockstore.Release) (done lockstore.Released, err error) {
	moved, send := untilGivenUp, direct
	switch {
	case r.Forced():
		send = aside
	case r.Next != nil:
		moved = 0
	}
	said, err := d.step(ctx, r.IfLost().Again, moved, send,
		func(text string, _ bool) node.Call { return d.steps.Release(r, text) })
	if err == nil {
		done = node.Released(said.out, r)
	}
	done.Sent, done.Final, done.Again = said.sent, said.final, said.lost
	for i := range done.Given {
		done.Given[i].Sent = said.sent
	}
	return done, err
}

// Renew sends a batch of renewals.
func (d *store) Renew(ctx context.Context, r lockstore.Renewal) (out []int64, err error) {
	l := limits{r.Allow, time.Second / 4}
	text, _, err := d.notAfter(l.allow)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	out, err = d.eval(ctx, l, node.Renew(r, text), aside)
	if len(r.Holds) > 1 && errors.Is(err, lockstore.ErrMoving) {
		out, err = d.oneByOne(ctx, l, r, text)
	}
	if err == nil && node.Late(out) {
		err = d.tooLate(time.Since(sent), r.Allow)
	}
	return out, err
}

// oneByOne renews each hold of a batch with a script of its own, after Redis has refused the whole because its slot is
// moving. Some of the keys are at the old node still, and some at the new one. Redis refuses a script with keys of
// both, but not one whose keys are together.
func (d *store) oneByOne(ctx context.Context, l limits, r lockstore.Renewal, text string) ([]int64, error) {
	out := make([]int64, len(r.Holds))
	var failed error
	done := false
	for i := range r.Holds {
		one := r
		one.Holds = r.Holds[i : i+1]
		codes, err := d.eval(ctx, l, node.Renew(one, text), aside)
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
	said, err := d.step(ctx, e.IfLost().Again, untilGivenUp, aside,
		func(text string, again bool) node.Call { return node.Extend(e, again, text) })
	if err == nil {
		done = lockstore.Extended{Code: said.out[0], TTL: said.out[1], Expiry: lockstore.ExpiryAt(said.out[2])}
	}
	done.Sent = said.sent
	return done, err
}

// tooLate is the error for a script that Redis got to after its not-after: it did nothing. Redis' clock is read again.
func (d *store) tooLate(took, allowed time.Duration) error {
	if err := d.sample(); err != nil {
		return err
	}
	why := "its clock is ahead of where it was"
	if took >= allowed {
		why = fmt.Sprintf("the answer took %v, %v are allowed", took.Round(time.Millisecond),
			allowed.Round(time.Millisecond))
	}
	return &upstream.NotSentError{Cause: fmt.Errorf("%w, and nothing was done: %s", lockstore.ErrLate, why)}
}
