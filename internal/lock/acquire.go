package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/scripts"
)

// acquire is one grant being asked for; its hold is busy meanwhile.
type acquire struct {
	c            *Client
	h            *hold
	r            Request
	w            *waiter // that it is for, if one waits
	before       int64   // what we know this owner to hold
	flags        string
	registration string
	fresh        bool      // no hold had that registration before
	sent         time.Time // the lease counts from before it was sent
	notAfter     int64
	acked        int64
	attempt      string        // of a quorum: the name under which the last try counts on the nodes
	streak       handoffStreak // that it goes on with, if it is handed the lock
	handedOn     bool          // an undo goes on alone and leaves the hold when it is done
}

// answer is what the acquire script returns.
type answer struct{ code, count, ttl, token, raised int64 }

var (
	errNotDone   = errors.New("lock: the request whose reply was lost was not done")
	errLate      = errors.New("the request came to Redis too late")
	errForgotten = errors.New("lock: Redis has forgotten what became of the request")
)

func (c *Client) newAcquire(h *hold, r Request, w *waiter) *acquire {
	a := &acquire{c: c, h: h, r: r, w: w}
	c.m.mu.Lock()
	a.before = h.count
	a.registration = h.registration
	c.m.mu.Unlock()
	if r.Fence {
		a.flags += "F"
	}
	if h.explicit {
		a.enrol()
	}
	return a
}

// enrol chooses the registration of a named owner's request. A hold known here keeps its own: were this reply lost, nobody would
// know which one Redis has.
func (a *acquire) enrol() {
	watched := a.r.Lease == 0
	if watched {
		a.flags += "OW"
	} else {
		a.flags += "OD"
	}
	switch {
	case a.before > 0 && a.registration != "" && watched:
		a.registration = marked(a.registration, true)
	case a.before > 0 && a.registration != "":
	case !watched && a.c.m.store.votes():
		a.registration = "" // its attempt says whose a hold is there, and a node without one may get another's
	default:
		a.registration, a.fresh = marked(a.c.request(), watched), true
	}
}

// unwatched is before the registration of a hold that nobody renews.
const unwatched = "-"

// marked is a registration of a hold that is renewed, or not.
func marked(registration string, watched bool) string {
	registration = strings.TrimPrefix(registration, unwatched)
	if !watched {
		registration = unwatched + registration
	}
	return registration
}

// watching says whether a registration is of a hold that somebody renews.
func watching(registration string) bool {
	return registration != "" && registration != "+" && !strings.HasPrefix(registration, unwatched)
}

// repeatable says that the request, done once more, changes nothing: a named owner's, or the first hold of a connection.
func (a *acquire) repeatable() bool { return a.h.explicit || a.before == 0 }

func (a *acquire) call(notAfter string) node.Call {
	a.c.m.mu.Lock()
	a.before = a.h.count
	a.c.m.mu.Unlock()
	id, flags := a.h.id, a.flags
	if !a.h.explicit { // nobody else knows this owner: what Redis may have of it besides was lost or never heard of
		if a.before == 0 {
			flags += "N"
		}
		if n := id.Kind.Spec(); n.RW && !a.c.m.held(id.As(n.Other)) {
			flags += "M"
		}
	}
	keys := id.AcquireKeys()
	if strings.Contains(flags, "F") {
		keys = append(keys, lockstore.TokenKey(id.Key))
	}
	if a.h.explicit {
		keys = append(keys, id.WatchKey())
	}
	fenceTTL := strconv.FormatInt(a.c.m.opts.FenceTTL.Milliseconds(), 10)
	args := append(make([]string, 0, 9), strconv.FormatInt(a.lease(), 10), id.Field(), notAfter, flags)
	if id.Kind != Plain {
		args = append(args, a.registration, fenceTTL)
		return node.Call{DB: id.DB, Script: id.Kind.Spec().Acquire, Keys: keys, Args: append(args, id.Rest()...)}
	}
	args = append(args, a.c.m.store.publishing())
	if a.waits() {
		args[3] += "E"
	}
	if args[3] == "" || args[3] == "N" { // each ARGV costs Redis time, and no other is looked at
		return node.Call{DB: id.DB, Script: scripts.Acquire, Keys: keys, Args: args}
	}
	args = append(args, a.registration, fenceTTL)
	if a.waits() {
		args = append(args, a.c.m.fairWait(), strconv.FormatInt(a.ticket(), 10))
	}
	return node.Call{DB: id.DB, Script: scripts.Acquire, Keys: keys, Args: args}
}

// waits says whether a refusal puts the owner into the fair queue.
func (a *acquire) waits() bool { return a.w != nil && a.r.Fair }

func (a *acquire) ticket() int64 {
	a.c.m.mu.Lock()
	defer a.c.m.mu.Unlock()
	return a.w.ticket
}

// unanswered notes until when a request without an answer may be done.
func (a *acquire) unanswered() {
	if a.waits() {
		a.w.lost = a.c.m.store.final(a.notAfter)
	}
}

// answer reads what the script has returned. One number alone is the answer of a common case: see acquire_short.lua.
func (a *acquire) answer(out []int64) answer {
	if len(out) == 1 {
		switch n := out[0]; {
		case n == 0:
			return answer{code: 1, count: 1, ttl: a.lease()}
		case n > 0:
			return answer{code: 1, count: n, ttl: a.lease(), raised: 1}
		default:
			return answer{ttl: -16 - n}
		}
	}
	ans := answer{code: out[0], count: out[1], ttl: out[2], token: out[3]}
	if ans.code == 1 {
		ans.raised = out[4]
	}
	return ans
}

// lease is the hold's, in ms.
func (a *acquire) lease() int64 {
	if a.r.Lease > 0 {
		return a.r.Lease
	}
	return a.c.m.opts.Watchdog.Milliseconds()
}

// sitOut waits until a renewal whose reply was lost can no longer lengthen a lease that is asked for now.
func (m *Manager) sitOut(ctx context.Context, h *hold) bool {
	m.mu.Lock()
	late := time.Until(h.late)
	m.mu.Unlock()
	return late <= 0 || m.sleep(ctx, late)
}

// replicaWait is how long replicas may take: at most a second, within what the caller waits, and half of the lease, so that
// the rest of it is of use.
func (a *acquire) replicaWait() time.Duration {
	wait := time.Second
	if a.r.Blocks && a.r.Block > 0 {
		wait = min(wait, milliseconds(a.r.Block))
	}
	if a.r.Lease > 0 {
		wait = min(wait, milliseconds(a.r.Lease)/2)
	}
	return wait
}

// conclude turns the script's answer into the verb's.
func (a *acquire) conclude(ctx context.Context, ans answer) (Grant, error) {
	m := a.c.m
	switch ans.code {
	case 0:
		m.disbelieve(a.h)
		return Grant{}, ErrNotAcquired
	case scripts.OtherKind:
		m.disbelieve(a.h)
		return Grant{}, otherKind(a.r.Key)
	case scripts.Upgrade:
		m.disbelieve(a.h)
		return Grant{}, wouldWaitForItself(a.r.Key)
	}
	if a.r.Replicas > 0 && a.acked < a.r.Replicas {
		if err := m.undo(ctx, a, ans); err != nil {
			return Grant{}, err
		}
		return Grant{}, &Error{"NOREPLICAS", fmt.Sprintf("%d of %d replicas had the lock in time, it was given back", a.acked, a.r.Replicas)}
	}
	if a.c.unheard(ctx, a.r) {
		// Nobody hears of it: what it added is given back, and what its owner had before stays as it was.
		_ = m.undo(ctx, a, ans)
		if ans.raised == 1 || a.before > 0 || a.attempt != "" {
			return Grant{}, context.Canceled
		}
	}
	if !time.Now().Before(a.sent.Add(milliseconds(ans.ttl))) {
		// The answer took longer than the lease: nobody may work on the strength of it.
		if err := m.undo(ctx, a, ans); err != nil {
			return Grant{}, err
		}
		return Grant{}, ErrNotAcquired
	}
	if lost, yes := m.register(a, ans); yes {
		m.surrenderLater(a.h)
		return Grant{}, lost.error(a.r.Key)
	}
	g := Grant{Token: ans.token, entered: ans.count > 1 || ans.raised == 0, again: ans.raised == 0, nth: a.h.adopted}
	if a.h.explicit {
		g.attempt = a.attempt
	}
	return g, nil
}

// unheard says whether the client of a verb that waits has gone, so that it cannot be told of a grant any more.
func (c *Client) unheard(ctx context.Context, r Request) bool {
	return ctx.Err() != nil || r.Blocks && c.info.Gone()
}

// disbelieve has the watchdog look at once at a hold that Redis says is somebody else's.
func (m *Manager) disbelieve(h *hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.count > 0 {
		m.plan(h, time.Now())
	}
}

// register notes a grant. What was to be entered again, and was told lost while the request was under way, stays lost.
func (m *Manager) register(a *acquire, ans answer) (lost lossRecord, yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := a.h
	if lost, yes = a.c.lossOf(h.id); yes && a.before > 0 && !h.explicit {
		h.lease = max(h.lease, milliseconds(ans.ttl)) // so long may Redis have it now
		return lost, true
	}
	if !h.explicit && ans.raised == 1 && h.count > 0 && ans.count <= h.count {
		m.lose(h, h.whyGone()) // what was to be entered again had gone: this is a first hold
	}
	a.c.contradict(h.id)
	if h.count == 0 {
		h.streak, h.registration = m.streakOf(a), ""
	}
	if h.count == 0 || h.attempt == "" {
		h.attempt = a.attempt
	}
	m.begin(h, a.c, ans.count)
	h.deadline = later(h.deadline, a.until(ans))
	h.replicas = max(h.replicas, a.r.Replicas)
	if a.r.Lease == 0 {
		h.watched, h.lease, h.registration = true, m.opts.Watchdog, a.registration
	} else if !h.watched {
		h.lease = milliseconds(a.r.Lease)
		if ans.raised == 1 { // else it is another LOCK's
			h.registration = a.registration
		}
	}
	m.planNext(h, a.sent)
	a.c.forgetLoss(h.id)
	m.done.remove(h.id)
	return lost, false
}

// until is when a grant ends that nobody renews.
func (a *acquire) until(ans answer) time.Time { return a.sent.Add(milliseconds(ans.ttl)) }

// planNext puts the hold before the watchdog at a third of its lease when it is renewed, at its end when it is not. mu is held.
func (m *Manager) planNext(h *hold, from time.Time) {
	if h.watched {
		m.plan(h, from.Add(h.lease/3))
	} else {
		m.plan(h, h.deadline)
	}
}
