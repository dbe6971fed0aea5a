package lock

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

// A mutating script whose reply was lost is never sent again blindly. Its not-after makes its fate final once Redis' clock
// has passed it; only then what Redis holds says whether it was done. For an implicit owner the count tells, since nobody
// else changes it. A named owner has the lock or not, and may be at work through other connections and proxies: LOCK may be said
// again, and UNLOCK while the registration says that it is the same hold.

// seen is what look.lua returns.
type seen struct {
	at                time.Time // before it was asked
	count, ttl, token int64
	registration      string // of a named owner's hold
	registered        bool   // there is one, be it empty
}

// look waits until Redis' clock is past notAfter and reads what Redis holds, of a named owner with the registration. It goes on
// through failures until giveUp.
func (d *direct) look(id lockstore.ID, named bool, notAfter int64, giveUp time.Time) (seen, error) {
	keys := append(id.Keys(), lockstore.TokenKey(id.Key))
	if named {
		keys = append(keys, id.WatchKey())
	}
	background := context.Background()
	until := d.final(notAfter)
	for failures := backoff(); ; {
		if now := d.now(); now <= until {
			d.m.sleep(background, min(time.Duration(until-now)*time.Microsecond+time.Millisecond, time.Until(giveUp)))
		}
		s := seen{at: time.Now()}
		reply, err := d.eval(background, node.Call{DB: id.DB, Script: id.Kind.Spec().Look, Keys: keys, Args: []string{id.Field()}})
		if err == nil {
			parts, _ := reply.ToArray()
			now := int64(0)
			if len(parts) == 5 {
				now = d.clockAt(id.Key, clockOf(parts[0].ToString()))
			}
			if now > until {
				s.count, _ = parts[1].AsInt64()
				s.ttl, _ = parts[2].AsInt64()
				s.token, _ = parts[3].AsInt64()
				text, err := parts[4].ToString()
				s.registration, s.registered = text, err == nil
				return s, nil
			}
			err = &upstream.NotSentError{Cause: errLate}
		}
		if time.Now().After(giveUp) || !d.m.sleep(background, failures.Next()) {
			return s, err
		}
	}
}

func clockOf(text string, err error) int64 {
	if err != nil {
		return 0
	}
	micro, _ := strconv.ParseInt(text, 10, 64)
	return micro
}

// settled is what became of a request.
type settled struct {
	answer
	sent time.Time // the lease counts from then
	err  error     // errNotDone: it was not and never will be
}

// settle finds out what became of an acquire.
func (a *acquire) settle() settled {
	lease := milliseconds(a.r.Lease)
	if lease == 0 {
		lease = a.c.m.opts.Watchdog
	}
	s, err := a.c.m.store.look(a.h.id, a.h.explicit, a.notAfter, time.Now().Add(lease+5*time.Second))
	if err != nil {
		return settled{err: err}
	}
	var done bool
	switch {
	case a.h.explicit:
		done = s.count > 0
	case a.before == 0:
		done = s.count == 1 // more: a hold that was lost before, and this request was not done
	default:
		done = s.count > a.before
	}
	if !done || a.r.Fence && s.token == 0 {
		return settled{err: errNotDone}
	}
	a.sent = s.at
	ans := answer{code: 1, count: s.count, ttl: s.ttl}
	if !a.h.explicit || a.fresh && s.registration == a.registration { // else its owner may have had it before, or count on it elsewhere
		ans.raised = 1
	}
	if a.r.Fence {
		ans.token = s.token
	}
	return settled{answer: ans, sent: s.at}
}

// abandon ends an acquire whose client got an error or has gone: a grant nobody heard of is given back. What a named owner had
// before, or counts on elsewhere, stays as it is.
func (a *acquire) abandon(s settled) {
	defer a.c.m.leave(a.h)
	if s.err != nil || s.code != 1 || s.raised == 0 {
		return
	}
	rel := &release{m: a.c.m, h: a.h, before: s.count, all: a.h.explicit || a.before == 0, alone: a.h.explicit,
		registration: a.registration, until: a.until(s.answer)}
	if code, left, err := rel.complete(); err == nil {
		a.c.m.released(a.h, a.c, code, left)
	}
}

// patiently runs work, which finds out what became of a request, and waits for it. When the client goes or patience ends
// first, ok is false and abandon is given the result later.
func patiently[T any](ctx context.Context, m *Manager, work func() T, abandon func(T)) (result T, ok bool) {
	return outlast(ctx, m, patience, nil, work, abandon)
}

// outlast is patiently, for so long, or until end is closed.
func outlast[T any](ctx context.Context, m *Manager, long time.Duration, end <-chan struct{}, work func() T, abandon func(T)) (result T, ok bool) {
	done, quit := make(chan T), make(chan struct{})
	m.background(func() {
		v := work()
		select {
		case done <- v:
		case <-quit:
			abandon(v)
		}
	})
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case result = <-done:
		return result, true
	case <-timer.C:
	case <-end:
	case <-ctx.Done():
	}
	close(quit)
	return result, false
}

// left is for how long whoever asked for the lock waits for it in any case; 0: it does not wait, or not any more.
func (a *acquire) left() time.Duration {
	switch {
	case a.w == nil:
		return 0
	case a.r.Block == 0:
		return math.MaxInt64
	}
	return max(0, milliseconds(a.r.Block)-time.Since(a.w.since))
}

// found is what became of an acquire whose reply was lost. Who waits for the lock waits for that, too, however long Redis is
// away; others get an error after a while.
func (a *acquire) found(ctx context.Context) (settled, bool) {
	m := a.c.m
	for {
		left := a.left()
		if left <= patience {
			return patiently(ctx, m, a.settle, a.abandon)
		}
		done, ok := outlast(ctx, m, left, m.drained, a.settle, a.abandon)
		if !ok || done.err == nil || errors.Is(done.err, errNotDone) {
			return done, ok
		}
	}
}
