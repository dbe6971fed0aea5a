package lock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/scripts"
)

// UnlockRequest is one UNLOCK.
type UnlockRequest struct {
	DB    int
	Key   string
	Side  Kind // Read or Write; Plain = what this owner holds
	Owner string
	All   bool // every hold of this owner, on that side
	Force bool // everybody's
}

// Unlock gives back one hold, or all. free says that the lock is now free of this owner (with Force: that something was held).
//
// Errors: *Error with NOTHELD, LOCKLOST (it was held through this proxy and lost), LOCKKIND or ERR,
// *upstream.ReplyError with Redis' words, *upstream.NotSentError when Redis cannot be reached (nothing changed).
func (c *Client) Unlock(ctx context.Context, r UnlockRequest) (free bool, err error) {
	began := time.Now()
	ctx, span := telemetry.Span(ctx, "UNLOCK")
	defer span.End()
	if r.Force {
		free, err = c.force(ctx, r)
	} else {
		free, err = c.unlock(ctx, r)
	}
	telemetry.VerbDone(ctx, "unlock", outcomeWord(err), time.Since(began))
	return free, err
}

func (c *Client) unlock(ctx context.Context, r UnlockRequest) (bool, error) {
	m := c.m
	if err := m.nameable(r.Key); err != nil {
		return false, err
	}
	id, explicit := c.id(r.Side, r.DB, r.Key, r.Owner)
	id, err := c.resolveSide(ctx, id, explicit)
	if err != nil {
		return false, err
	}
	h, err := m.enter(ctx, id, explicit)
	if err != nil {
		return false, err
	}
	rel := c.newRelease(h, r.All)
	if err := m.doubted(h); err != nil {
		m.leave(h)
		return false, err
	}
	var code, left int64
	for again := true; again; {
		code, left, err = m.store.release(ctx, rel)
		again = false
		if isUnknown(err) {
			lost := err
			done, ok := patiently(ctx, m, rel.settle, rel.abandon)
			if !ok {
				return false, c.orLost(h, outcomeUnknown("UNLOCK", lost))
			}
			if again = errors.Is(done.err, errNotDone); done.err != nil && !again {
				rel.abandon(done)
				return false, c.orLost(h, outcomeUnknown("UNLOCK", lost))
			}
			code, left, err = done.code, done.count, nil
		}
	}
	defer m.leave(h)
	if isNotSent(err) {
		return false, c.orLost(h, err)
	}
	if err != nil {
		return false, err
	}
	return c.unlocked(h, r.Key, code, left)
}

// unlocked turns the release script's answer into the verb's.
func (c *Client) unlocked(h *hold, key string, code, left int64) (bool, error) {
	m := c.m
	if code == scripts.OtherKind && h.id.Kind == Plain {
		code = -1 // no side was named: of a read/write lock this owner holds neither
	}
	switch code {
	case scripts.OtherKind:
		return false, otherKind(key)
	case -1:
		m.mu.Lock()
		switch {
		case h.count == 0:
		case left == 1: // it ended through another proxy
			m.end(h)
			m.done.add(h.id, c, time.Now())
		default:
			m.lose(h, h.whyGone())
		}
		m.mu.Unlock()
		if _, finished := m.done.get(h.id); finished {
			return true, nil
		}
		if lost, ok := c.lossOf(h.id); ok {
			return false, lost.error(key)
		}
		return false, notHeld(key, c.named.Load() && !h.explicit)
	}
	m.released(h, c, code, left)
	if lost, ok := c.lossOf(h.id); ok && !h.explicit {
		// Its lease was over by our clock and it was reported lost, Redis had it for a moment longer.
		return false, lost.error(key)
	}
	return code == 1, nil
}

// doubted refuses to release a lock whose holder has an effect of unknown outcome behind it: it is left to run out, and
// stays in doubt until then, so that asking again does not help.
func (m *Manager) doubted(h *hold) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.count == 0 || !h.doubt {
		return nil
	}
	left := time.Until(h.deadline).Milliseconds()
	m.runOut(h)
	return &Error{"ERR", "not released: an earlier command of this connection may still take effect; the lock runs out by itself within " +
		strconv.FormatInt(max(left, 0), 10) + " ms"}
}

// released notes what Redis said of a release that the connection by has asked for; nil: nobody has.
func (m *Manager) released(h *hold, by *Client, code, left int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case code == 0 && h.count > 0:
		h.count = left
	case code == 1:
		if h.count > 0 {
			m.stats.released.Add(1)
			telemetry.LockReleased(context.Background(), h.id.Kind.String(), time.Since(h.grantedAt))
			m.end(h)
		}
		if h.explicit {
			m.done.add(h.id, by, time.Now())
		}
	}
}

// release is one hold, or all of an owner, being given back; the hold is busy meanwhile.
type release struct {
	m        *Manager
	h        *hold
	by       *Client // the connection that has asked for it; nil: none has
	all      bool
	onlyOurs bool // nothing is done when a named owner is back through another connection
	alone    bool // nor when another LOCK counts on its hold
	before   int64
	sent     time.Time // the last time
	notAfter int64
	until    time.Time // Redis may have what is given back until then, beside what is known of the hold
	// registration is the one known here; another one in Redis is told that the hold has ended.
	registration string
	attempt      string // of a quorum: only what counts on the hold under this name
	known        string // of a quorum: the attempt that this proxy had the hold by
}

func (c *Client) newRelease(h *hold, all bool) *release {
	r := &release{m: c.m, h: h, by: c, all: all || h.explicit}
	c.m.mu.Lock()
	r.before, r.registration = h.count, h.registration
	c.m.mu.Unlock()
	return r
}

func (r *release) call(notAfter string) node.Call {
	id := r.h.id
	keys, flags := id.ReleaseKeys(), ""
	if r.all {
		flags += "A"
	}
	if r.onlyOurs {
		flags += "R"
	}
	if r.h.explicit {
		keys, flags = append(keys, id.WatchKey()), flags+"W"
	}
	if r.alone {
		flags += "X"
	}
	args := append(make([]string, 0, 7), id.Field(), r.m.store.publishing(), notAfter, flags)
	if id.Kind == Plain && !r.h.explicit { // each ARGV costs Redis time, and no other is looked at
		return node.Call{DB: id.DB, Script: scripts.Release, Keys: keys, Args: args}
	}
	args = append(args, r.registration)
	return node.Call{DB: id.DB, Script: id.Kind.Spec().Release, Keys: keys, Args: append(args, id.Rest()...)}
}

// settle finds out what became of a release.
func (r *release) settle() settled {
	s, err := r.m.store.look(r.h.id, r.h.explicit, r.notAfter, r.giveUp(r.m.opts.Watchdog))
	if s.count > 0 {
		r.until = later(r.until, s.at.Add(milliseconds(s.ttl)))
	}
	switch {
	case err != nil:
		return settled{err: err}
	case r.h.explicit:
		return r.settleNamed(s)
	case !r.all && s.count < r.before-1:
		return settled{answer: answer{code: -1}} // one was given back at most: the others were lost
	case s.count < r.before:
		return settled{answer: freed(s.count)}
	}
	return settled{err: errNotDone}
}

// settleNamed is settle for a named owner. What it has now is only given back if it is the hold that was meant: it may have been
// given back, and been taken anew through another proxy.
func (r *release) settleNamed(s seen) settled {
	r.m.mu.Lock()
	had := r.before > 0 && r.h.deadline.After(r.sent)
	r.m.mu.Unlock()
	same := r.registration != "" && (s.registration == r.registration || s.registration == r.registration+"+")
	switch {
	case s.count > 0 && same:
		r.onlyOurs = true
		return settled{err: errNotDone}
	case s.count > 0:
	case had || s.registered && s.registration == "": // which is what an UNLOCK leaves
		return settled{answer: freed(0)}
	case r.before > 0 || r.onlyOurs || r.alone:
		return settled{answer: answer{code: -1}}
	}
	return settled{err: errForgotten}
}

func freed(left int64) answer {
	if left > 0 {
		return answer{code: 0, count: left}
	}
	return answer{code: 1}
}

// abandon completes a release whose client got an error: the owner wanted it.
func (r *release) abandon(s settled) {
	defer r.m.leave(r.h)
	if errors.Is(s.err, errNotDone) {
		s.code, s.count, s.err = r.complete()
	}
	if s.err != nil {
		r.m.mu.Lock()
		r.m.runOut(r.h) // its owner does not want it any more
		r.m.mu.Unlock()
		return
	}
	r.m.released(r.h, r.by, s.code, s.count)
	told := false // the client has heard LOCKLOST: nothing is left that the next UNLOCK could free
	if r.by != nil && !r.h.explicit {
		_, told = r.by.lossOf(r.h.id)
	}
	if s.code == 1 && !told {
		r.m.done.add(r.h.id, r.by, time.Now())
	}
}

// giveUp is when there is nothing left to give back, but not before so long from now.
func (r *release) giveUp(least time.Duration) time.Time {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	return later(later(r.h.deadline, r.until), time.Now().Add(least))
}

// complete releases for sure: through lost replies and a Redis that is away, until the lease is over.
func (r *release) complete() (code, left int64, err error) {
	giveUp := r.giveUp(time.Second)
	unknown := false // of the request sent last
	for failures := backoff(); ; {
		if !unknown {
			code, left, err = r.m.store.release(context.Background(), r)
			unknown = isUnknown(err)
		}
		if unknown {
			s := r.settle()
			code, left, err = s.code, s.count, s.err
			unknown = !errors.Is(err, errNotDone)
		}
		if err == nil || errors.Is(err, errForgotten) || time.Now().After(giveUp) {
			return code, left, err
		}
		if !r.m.sleep(context.Background(), failures.Next()) {
			return 0, 0, err
		}
	}
}
