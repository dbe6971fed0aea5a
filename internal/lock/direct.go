package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// acquire sends the script, again only when it surely was not done.
func (d *direct) acquire(ctx context.Context, a *acquire) (answer, error) {
	if a.r.Lease > 0 && !d.m.sitOut(ctx, a.h) {
		return answer{}, ctx.Err()
	}
	ctx = bounded(ctx, a.r.patience())
	var tooLate error
	for try := range lateTries {
		ctx := allowing(ctx, notAfter<<try)
		text, at, err := d.notAfter(ctx)
		if err != nil {
			return answer{}, err
		}
		a.notAfter, a.sent = at, time.Now()
		var out []int64
		if a.r.Replicas > 0 {
			reply, acked, err := d.evalReplicated(ctx, a.call(text), a.r.Replicas, a.replicaWait())
			a.acked = acked
			out, err = node.Ints(reply, err)
			if err != nil {
				return answer{}, err
			}
		} else if out, err = d.evalInts(ctx, a.call(text)); err != nil {
			return answer{}, err
		}
		if out[0] != scripts.Late {
			return a.answer(out), nil
		}
		if tooLate = d.tooLate(time.Since(a.sent), notAfter<<try); !isLate(tooLate) {
			return answer{}, tooLate
		}
	}
	return answer{}, tooLate
}

// release sends the script, again only when it surely was not done.
func (d *direct) release(ctx context.Context, r *release) (code, left int64, err error) {
	var tooLate error
	for try := range lateTries {
		ctx := allowing(ctx, notAfter<<try)
		text, at, err := d.notAfter(ctx)
		if err != nil {
			return 0, 0, err
		}
		r.notAfter, r.sent = at, time.Now()
		var next *handoff
		if r.all || r.before <= 1 {
			next = d.m.claim(r.h.id)
		}
		var out []int64
		if next == nil {
			out, err = d.evalInts(ctx, r.call(text))
		} else {
			out, err = next.send(d, r.call(text), text, at)
			if d.again(err) { // those that wait do not wait for this
				out, err = d.evalInts(ctx, r.call(text))
			}
		}
		if err != nil {
			return 0, 0, err
		}
		switch {
		case len(out) == 1 && out[0] != scripts.Late: // the lock is free: see release_last.lua
			return out[0], 0, nil
		case out[0] != scripts.Late:
			return out[0], out[1], nil
		}
		if tooLate = d.tooLate(time.Since(r.sent), notAfter<<try); !isLate(tooLate) {
			return 0, 0, tooLate
		}
	}
	return 0, 0, tooLate
}

// renew sends a batch of renewals.
func (d *direct) renew(ctx context.Context, b *batch) (out []int64, err error) {
	ctx = allowing(ctx, b.allow)
	text, _, err := d.notAfter(ctx)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	if b.replicas > 0 {
		out, err = d.renewReplicated(ctx, b, text)
	} else {
		ctx = bounded(ctx, min(b.lease/12, time.Second/4))
		out, err = node.Ints(d.eval(ctx, b.call(text)))
		if len(b.holds) > 1 && errors.Is(err, errMoving) {
			out, err = d.oneByOne(ctx, b, text)
		}
	}
	if err == nil && out[0] == scripts.Late {
		err = d.tooLate(time.Since(sent), b.allow)
	}
	return out, err
}

func (d *direct) renewReplicated(ctx context.Context, b *batch, text string) ([]int64, error) {
	reply, acked, err := d.evalReplicated(ctx, b.call(text), b.replicas, time.Second)
	out, err := node.Ints(reply, err)
	if err == nil && out[0] != scripts.Late && acked < b.replicas {
		// What replicas do not have is not done; holds that are gone are gone all the same.
		err = &Error{"NOREPLICAS", "the renewal reached too few replicas"}
	}
	return out, err
}

// oneByOne renews the holds of a batch that Redis refused as a whole because its slot is on its way: some are here already, or
// still, and Redis does what is about one of them.
func (d *direct) oneByOne(ctx context.Context, b *batch, text string) ([]int64, error) {
	out := make([]int64, len(b.holds))
	var failed error
	done := false
	for i := range b.holds {
		one := &batch{batchKey: b.batchKey, holds: b.holds[i : i+1], marks: b.marks[i : i+1]}
		codes, err := node.Ints(d.eval(ctx, one.call(text)))
		if err == nil && codes[0] == scripts.Late {
			err = errLate
		}
		if err == nil {
			out[i], done = codes[0], true
			continue
		}
		out[i], failed = tally.Undecided, err
		if isUnknown(err) {
			d.m.mu.Lock()
			b.holds[i].late = time.Now().Add(b.allow)
			d.m.mu.Unlock()
		}
	}
	if done {
		return out, nil
	}
	return out, failed
}

// extend has Redis set the lease. sent is before the request that Redis answered.
func (d *direct) extend(ctx context.Context, h *hold, r RenewRequest, registration, known string) (out []int64, sent time.Time, err error) {
	err = d.idempotent(func() (at int64, err error) {
		for try := range lateTries {
			ctx := allowing(ctx, notAfter<<try)
			var text string
			if text, at, err = d.notAfter(ctx); err != nil {
				return 0, err
			}
			sent = time.Now()
			out, err = node.Ints(d.eval(ctx, extendCall(h, r, d.m.opts, text, registration, known)))
			if err != nil || out[0] != scripts.Late {
				return at, err
			}
			if err = d.tooLate(time.Since(sent), notAfter<<try); !isLate(err) {
				break
			}
		}
		return at, err
	})
	return out, sent, err
}

// force frees a lock.
func (d *direct) force(ctx context.Context, build func(notAfter string) node.Call) (code int64, err error) {
	err = d.idempotent(func() (int64, error) {
		text, at, err := d.notAfter(ctx)
		if err != nil {
			return 0, err
		}
		reply, err := d.eval(ctx, build(text))
		if err == nil {
			code, err = reply.AsInt64()
		}
		return at, err
	})
	return code, err
}

func (d *direct) info(ctx context.Context, c node.Call) (Info, error) {
	return parseInfo(d.eval(ctx, c))
}

// sidesHeld asks Redis on which sides of a read/write lock an owner has a hold.
func (d *direct) sidesHeld(ctx context.Context, id lockstore.ID) (held []Kind, err error) {
	var parts []rueidis.RedisMessage
	err = d.idempotent(func() (int64, error) {
		result, err := d.read(ctx, id.DB, id.Key, func(client rueidis.Client) rueidis.Completed {
			return sidesCommand(client, id)
		})
		if err != nil {
			return 0, err
		}
		parts, err = result.ToArray()
		return 0, node.Outcome(err)
	})
	if isUnknown(err) {
		return nil, &upstream.NotSentError{Cause: err} // it only read
	}
	if err != nil {
		return nil, err
	}
	return sidesIn(parts), nil
}

// watchedElsewhere says whether somebody renews an owner's hold, as far as Redis can be asked.
func (d *direct) watchedElsewhere(id lockstore.ID) bool {
	reply, err := d.read(context.Background(), id.DB, id.Key, func(client rueidis.Client) rueidis.Completed {
		return client.B().Get().Key(id.WatchKey()).Build()
	})
	if err != nil {
		return false
	}
	present, err := reply.ToString()
	return err == nil && watching(present)
}

// idempotent runs a step that may be done twice until Redis answers, each time after the last one's not-after has passed.
func (d *direct) idempotent(step func() (notAfter int64, err error)) error {
	giveUp := time.Now().Add(patience)
	var lost error // once a step's outcome is unknown only an answer says more
	for failures := backoff(); ; {
		last, err := step()
		last = d.final(last)
		var notSent *upstream.NotSentError
		switch {
		case isUnknown(err):
			lost = err
		case lost == nil || !errors.As(err, &notSent):
			return err
		}
		if time.Now().After(giveUp) || !d.m.sleep(context.Background(), failures.Next()) {
			return lost
		}
		if now := d.now(); now <= last {
			d.m.sleep(context.Background(), min(time.Duration(last-now)*time.Microsecond+time.Millisecond, time.Until(giveUp)))
		}
	}
}

// tooLate is what is known when Redis came to a script after its not-after: it did nothing. Its clock is read again.
func (d *direct) tooLate(took, allowed time.Duration) error {
	if err := d.sample(); err != nil {
		return err
	}
	why := "its clock is ahead of where it was"
	if took >= allowed {
		why = fmt.Sprintf("the answer took %v, %v are allowed", took.Round(time.Millisecond), allowed.Round(time.Millisecond))
	}
	return &upstream.NotSentError{Cause: fmt.Errorf("%w, and nothing was done: %s", errLate, why)}
}
