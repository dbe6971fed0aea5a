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

// repeatedFor is for how long a step whose reply was lost is sent again.
const repeatedFor = 5 * time.Second

// repeat runs a step, which may be done twice without harm, until Redis answers, for so long. It is sent again only
// when the not-after of the request before has passed. With an error that says that the outcome is unknown, final is
// when the last request can no longer be done.
func (d *store) repeat(ctx context.Context, long time.Duration, step func() (notAfter int64, err error)) (final time.Time, err error) {
	giveUp := time.Now().Add(long)
	var lost error // of the last request whose reply was lost; only a reply to a later one ends the doubt then
	for failures := retry.Insist(); ; {
		at, err := step()
		switch {
		case lockstore.Unknown(err):
			lost = err
			final = time.Now().Add(time.Duration(d.final(at)-d.now())*time.Microsecond + time.Millisecond)
		case lost == nil || !lockstore.NotSent(err):
			return time.Time{}, err
		}
		pause := max(failures.Next(), min(time.Until(final), lateMost))
		if time.Now().Add(pause).After(giveUp) || !d.host.Sleep(ctx, pause) {
			return final, lost
		}
	}
}

// Acquire sends the script, and again when it was not done, or its reply was lost: for an owner with a name and for a
// connection it may be done twice.
func (d *store) Acquire(ctx context.Context, a *lockstore.Acquire) (got lockstore.Acquired, err error) {
	if a.Replicas > 0 {
		leave, err := d.turns.enter(ctx, replicaKey{d.Lane(a.ID.Key).Node, a.ID.DB}, min(a.ReplicaWait, replicaTurn))
		if err != nil {
			return got, err
		}
		defer leave()
	}
	lost := false
	final, err := d.repeat(ctx, min(a.Patience, repeatedFor), func() (int64, error) {
		var acked int64
		send := direct
		if a.Replicas > 0 {
			send = replicated(a.Replicas, a.ReplicaWait, &acked)
		}
		out, sent, at, err := d.inTime(ctx, a.Patience, send,
			func(text string) node.Call { return d.steps.Acquire(a, text) })
		if err == nil {
			got = node.Acquired(out)
		}
		got.Acked, got.Sent, lost = acked, sent, lost || lockstore.Unknown(err)
		return at, err
	})
	if got.Final = final; lost {
		got.Expiry = nil // which of the requests has made the hold is not known
	}
	return got, err
}

// Release sends the script. That of a connection is sent again when its reply was lost; that of a named owner, and one
// that gives the lock to others, is not.
func (d *store) Release(ctx context.Context, r *lockstore.Release) (done lockstore.Released, err error) {
	long := repeatedFor
	if r.Named || r.Next != nil {
		long = 0
	}
	final, err := d.repeat(ctx, long, func() (int64, error) {
		if r.Next != nil {
			return d.handOff(ctx, r, &done)
		}
		out, sent, at, err := d.inTime(ctx, untilGivenUp, direct,
			func(text string) node.Call { return d.steps.Release(r, text) })
		if done.Sent = sent; err == nil {
			done.Code = out[0]
		}
		done.Again = done.Again || lockstore.Unknown(err)
		return at, err
	})
	done.Final = final
	return done, err
}

// handOff sends the script that gives the lock to others. It is sent once: they wait for it.
func (d *store) handOff(ctx context.Context, r *lockstore.Release, done *lockstore.Released) (notAfter int64, err error) {
	out, sent, at, err := d.inTime(ctx, 0, direct, func(text string) node.Call { return d.steps.Handoff(r, text) })
	if err == nil {
		*done = node.HandedOn(out, len(r.Next.Asks))
	}
	done.Sent = sent
	for i := range done.Given {
		done.Given[i].Sent = sent
	}
	return at, err
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

// Extend sets the lease in Redis. It is sent again when its reply was lost; a named owner's hold then gets no shorter
// than it was.
func (d *store) Extend(ctx context.Context, e lockstore.Extension) (done lockstore.Extended, err error) {
	again := false
	_, err = d.repeat(ctx, repeatedFor, func() (int64, error) {
		out, sent, at, err := d.inTime(ctx, untilGivenUp, aside,
			func(text string) node.Call { return node.Extend(e, again, text) })
		if again = again || lockstore.Unknown(err); err == nil {
			done = lockstore.Extended{Code: out[0], TTL: out[1], Expiry: lockstore.ExpiryAt(out[2])}
		}
		done.Sent = sent
		return at, err
	})
	return done, err
}

// Force frees a lock. It is sent again only when it surely was not done: once more would free the lock of whoever has
// it next.
func (d *store) Force(ctx context.Context, f lockstore.Forcing) (code int64, err error) {
	out, _, _, err := d.inTime(ctx, untilGivenUp, aside, func(text string) node.Call { return d.steps.Force(f, text) })
	if err != nil {
		return 0, err
	}
	return out[0], nil
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
