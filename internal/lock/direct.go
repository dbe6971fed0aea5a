package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
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
			reply, acked, err := d.evalReplicated(ctx, brief(a.call(text)), a.r.Replicas, a.replicaWait())
			a.acked = acked
			out, err = node.Ints(reply, err)
			if err != nil {
				return answer{}, err
			}
		} else if out, err = d.evalInts(ctx, brief(a.call(text))); err != nil {
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

// brief leaves out the ARGV that most LOCKs and UNLOCKs of connections do not need: each costs Redis as much time as a quarter of a
// command does. See acquire_short.lua, and the others of that name.
func brief(c node.Call) node.Call {
	a := c.Args
	switch {
	case c.Script == scripts.Acquire && len(a) == 5 && a[3] == "N":
		c.Args = append(a[:3], a[4])
	case c.Script == scripts.Release && len(a) == 4 && a[3] == "":
		c.Args = a[:3]
	case (c.Script == scripts.ReadAcquire || c.Script == scripts.WriteAcquire) && a[3] == "NM":
		c.Args = append(a[:3], a[6:]...)
	case (c.Script == scripts.ReadRelease || c.Script == scripts.WriteRelease) && a[3] == "":
		c.Args = append(a[:3], a[5:]...)
	}
	return c
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
			out, err = d.evalInts(ctx, brief(r.call(text)))
		} else {
			out, err = next.send(d, r.call(text), text, at)
			if d.again(err) { // those that wait do not wait for this
				out, err = d.evalInts(ctx, brief(r.call(text)))
			}
		}
		if err != nil {
			return 0, 0, err
		}
		switch {
		case len(out) == 1 && out[0] != scripts.Late: // see release_short.lua
			if left = out[0] - 1; left == 0 {
				code = 1
			}
			return code, left, nil
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
func (d *direct) renew(ctx context.Context, r lockstore.Renewal) (out []int64, err error) {
	ctx = allowing(ctx, r.Allow)
	text, _, err := d.notAfter(ctx)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	if r.Replicas > 0 {
		out, err = d.renewReplicated(ctx, r, text)
	} else {
		ctx = bounded(ctx, min(r.Lease/12, time.Second/4))
		out, err = node.Ints(d.eval(ctx, renewCall(r, text)))
		if len(r.Holds) > 1 && errors.Is(err, errMoving) {
			out, err = d.oneByOne(ctx, r, text)
		}
	}
	if err == nil && out[0] == scripts.Late {
		err = d.tooLate(time.Since(sent), r.Allow)
	}
	return out, err
}

func (d *direct) renewReplicated(ctx context.Context, r lockstore.Renewal, text string) ([]int64, error) {
	reply, acked, err := d.evalReplicated(ctx, renewCall(r, text), r.Replicas, time.Second)
	out, err := node.Ints(reply, err)
	if err == nil && out[0] != scripts.Late && acked < r.Replicas {
		// What replicas do not have is not done; holds that are gone are gone all the same.
		err = &Error{"NOREPLICAS", "the renewal reached too few replicas"}
	}
	return out, err
}

// oneByOne renews the holds of a batch that Redis refused as a whole because its slot is on its way: some are here already, or
// still, and Redis does what is about one of them.
func (d *direct) oneByOne(ctx context.Context, r lockstore.Renewal, text string) ([]int64, error) {
	out := make([]int64, len(r.Holds))
	var failed error
	done := false
	for i := range r.Holds {
		one := r
		one.Holds = r.Holds[i : i+1]
		codes, err := node.Ints(d.eval(ctx, renewCall(one, text)))
		if err == nil && codes[0] == scripts.Late {
			err = errLate
		}
		if err == nil {
			out[i], done = codes[0], true
			continue
		}
		if out[i], failed = lockstore.Undecided, err; isUnknown(err) {
			out[i] = lockstore.ReplyLost
		}
	}
	if done {
		return out, nil
	}
	return out, failed
}

// extend has Redis set the lease.
func (d *direct) extend(ctx context.Context, e lockstore.Extension) (done lockstore.Extended, err error) {
	err = d.idempotent(func() (at int64, err error) {
		for try := range lateTries {
			ctx := allowing(ctx, notAfter<<try)
			var text string
			if text, at, err = d.notAfter(ctx); err != nil {
				return 0, err
			}
			done.Sent = time.Now()
			var out []int64
			if out, err = node.Ints(d.eval(ctx, extendCall(e, text))); err != nil {
				return at, err
			}
			if out[0] != scripts.Late {
				done.Code, done.Count, done.TTL = out[0], out[1], out[2]
				return at, nil
			}
			if err = d.tooLate(time.Since(done.Sent), notAfter<<try); !isLate(err) {
				break
			}
		}
		return at, err
	})
	return done, err
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

// refreshQueue sends the script that says who lives.
func (d *direct) refreshQueue(q lockstore.Queue) (called []int64, next time.Duration, err error) {
	text, _, err := d.notAfter(context.Background())
	if err != nil {
		return nil, 0, err
	}
	args := append(make([]string, 0, 3+2*len(q.Places)), text, d.publishing(), d.m.fairWait())
	for _, p := range q.Places {
		args = append(args, p.ID.Field(), strconv.FormatInt(p.Ticket, 10))
	}
	out, err := node.Ints(d.eval(context.Background(), node.Call{DB: q.DB, Script: scripts.Refresh, Keys: lockstore.PlainKeys(q.Key), Args: args}))
	switch {
	case err != nil:
		return nil, 0, err
	case out[0] == scripts.Late:
		_ = d.sample()
		return nil, 0, errLate
	}
	return out[1:], milliseconds(out[0]), nil
}

// leaveQueue takes an owner out of a fair queue. What Redis does not hear of is over there after 10 s.
func (d *direct) leaveQueue(id lockstore.ID, lost int64, stays func() bool) {
	if lost == 0 {
		if err := d.sendLeave(id); isNotSent(err) {
			d.m.background(func() { d.leaveLater(id, stays) })
		}
		return
	}
	// A request without an answer may still put it there.
	d.m.background(func() {
		now := d.now()
		if d.m.sleep(context.Background(), time.Duration(lost-now)*time.Microsecond+time.Millisecond) && !stays() {
			_ = d.sendLeave(id)
		}
	})
}

// leaveLater leaves the queue when Redis is in reach again. After 10 s the place counts no more.
func (d *direct) leaveLater(id lockstore.ID, stays func() bool) {
	end := time.Now().Add(10 * time.Second)
	for time.Now().Before(end) && d.m.sleep(context.Background(), retry.Around(node.MaxPause)) && !stays() {
		if !isNotSent(d.sendLeave(id)) {
			return
		}
	}
}

func (d *direct) sendLeave(id lockstore.ID) error {
	err := d.idempotent(func() (int64, error) { return d.tryLeave(id) })
	if err != nil {
		d.m.log.Debug("cannot leave a fair queue, the place runs out", "key", id.Key, "error", err)
	}
	return err
}

// tryLeave asks again when Redis came to it too late, as after a pause of its writes: nobody else will.
func (d *direct) tryLeave(id lockstore.ID) (done int64, err error) {
	var tooLate error
	for try := range lateTries {
		ctx, sent := allowing(context.Background(), notAfter<<try), time.Now()
		text, at, err := d.notAfter(ctx)
		if err != nil {
			return 0, err
		}
		reply, err := d.eval(ctx, node.Call{DB: id.DB, Script: scripts.Leave, Keys: lockstore.PlainKeys(id.Key), Args: []string{text, d.publishing(), id.Field()}})
		if err != nil {
			return at, err
		}
		if code, err := reply.AsInt64(); err != nil || code != scripts.Late {
			return at, err
		}
		if tooLate = d.tooLate(time.Since(sent), notAfter<<try); !isLate(tooLate) {
			return at, tooLate
		}
	}
	return 0, tooLate
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
