package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/upstream"
)

// Request is one LOCK, RLOCK or WLOCK.
type Request struct {
	DB       int
	Key      string
	Kind     Kind
	Blocks   bool  // wait; without it the lock is tried for once
	Block    int64 // how long to wait in ms, 0 = for ever
	Lease    int64 // ms; 0 = the watchdog's, renewed
	Owner    string
	Self     bool // the connection alone is the owner: it may re-enter
	Once     bool // an owner that holds already gets the same answer and no second count
	Fence    bool
	Replicas int64 // so many replicas must have the grant; 0 = none
}

// Grant is a lock taken. Token is the fencing token, 0 without Request.Fence.
type Grant struct{ Token int64 }

// Lock takes a lock for the connection, or for the owner that r names, or enters it once more.
//
// It returns ErrNotAcquired when somebody else held it until the time was over, *Error (OWNERREQUIRED, DRAINING, LOCKKIND,
// NOREPLICAS, ERR when a lost reply could not be cleared up), *upstream.ReplyError with Redis' own words,
// *upstream.NotSentError when Redis cannot be reached, and ctx's error when the client has gone.
func (c *Client) Lock(ctx context.Context, r Request) (Grant, error) {
	began := time.Now()
	verb := r.Kind.nature().verb
	ctx, span := telemetry.Span(ctx, verb)
	defer span.End()
	g, err := c.lock(ctx, r)
	took := time.Since(began)
	telemetry.VerbDone(ctx, strings.ToLower(verb), outcomeWord(err), took)
	if err == nil {
		c.m.stats.granted.Add(1)
		telemetry.LockGranted(ctx, r.Kind.String(), took)
	}
	return g, err
}

func (c *Client) lock(ctx context.Context, r Request) (Grant, error) {
	id, explicit := c.id(r.Kind, r.DB, r.Key, r.Owner)
	held := c.m.inside(id)
	if held && !explicit && !r.Self && c.reentryRefused() {
		return Grant{}, &Error{"OWNERREQUIRED", fmt.Sprintf("this connection already holds '%s'; in a pool that may be another thread's lock: "+
			"say OWNER <a fresh id>, or SELF if this connection is yours alone", printable(r.Key))}
	}
	if !held && c.m.draining() {
		return Grant{}, errDraining
	}
	if held || !r.Blocks {
		g, _, err := c.try(ctx, r)
		if !held || !r.Blocks || !errors.Is(err, ErrNotAcquired) {
			return g, err
		}
		// What we believed to hold is somebody else's: it is waited for like any other.
	}
	return c.wait(ctx, r)
}

func (c *Client) reentryRefused() bool {
	switch c.m.opts.Reentry {
	case ReentryAlways:
		return false
	case ReentryNever:
		return true
	default:
		return c.named.Load()
	}
}

// try asks Redis once. ttl is the time in ms the present holder has left (or negative: none known) when the lock is refused.
func (c *Client) try(ctx context.Context, r Request) (g Grant, ttl int64, err error) {
	id, explicit := c.id(r.Kind, r.DB, r.Key, r.Owner)
	h, err := c.m.enter(ctx, id, explicit)
	if err != nil {
		return Grant{}, 0, err
	}
	a := c.newAcquire(h, r)
	var ans answer
	var known settled // of a request that was done, although its reply was lost
	for again := true; again; {
		ans, err = a.run(ctx)
		again = false
		if err != nil && !isUnknown(err) && known.code == 1 {
			// Only to ask once more for its own answer failed: to call it not sent would leave a lock that nobody knows of.
			ans, err, a.sent = known.answer, nil, known.sent
		}
		if isUnknown(err) {
			lost := err
			done, ok := patiently(ctx, c.m, a.settle, a.abandon)
			if !ok {
				return Grant{}, 0, outcomeUnknown(r.Kind.nature().verb, lost)
			}
			if done.err != nil && !errors.Is(done.err, errNotDone) {
				c.m.leave(h)
				return Grant{}, 0, outcomeUnknown(r.Kind.nature().verb, lost)
			}
			known = done
			// One that changes nothing when it is done twice is done again for its own answer.
			ans, err, again = done.answer, nil, done.err != nil || a.repeatable()
		}
	}
	defer func() {
		if !a.handedOn {
			c.m.leave(h)
		}
	}()
	if err != nil {
		return Grant{}, 0, err
	}
	return a.conclude(ctx, ans)
}

// acquire is one grant being asked for; its hold is busy meanwhile.
type acquire struct {
	c            *Client
	h            *hold
	r            Request
	before       int64 // what we know this owner to hold
	flags        string
	registration string
	latch        string
	sent         time.Time // the lease counts from before it was sent
	notAfter     int64
	acked        int64
	handedOn     bool // an undo goes on alone and leaves the hold when it is done
}

// answer is what the acquire script returns.
type answer struct{ code, count, ttl, token, raised int64 }

const (
	codeLate    = -2
	codeKind    = -3
	codeUpgrade = -5
)

var (
	errNotDone   = errors.New("lock: the request whose reply was lost was not done")
	errLate      = errors.New("the clock of Redis keeps jumping")
	errForgotten = errors.New("lock: Redis has forgotten what became of the request")
)

// latchTTL is how long the outcome of an explicit owner's request can be looked up, in ms; after that it stays unknown.
const latchTTL = 10000

func (c *Client) newAcquire(h *hold, r Request) *acquire {
	a := &acquire{c: c, h: h, r: r}
	c.m.mu.Lock()
	a.before = h.count
	a.registration = h.registration
	c.m.mu.Unlock()
	if r.Fence {
		a.flags += "F"
	}
	if r.Once {
		a.flags += "O"
	}
	if h.explicit {
		if r.Lease == 0 {
			a.flags += "W"
			// A hold watched here keeps its registration: were this reply lost, nobody would know which one Redis has.
			if a.before == 0 || a.registration == "" {
				a.registration = c.request()
			}
		} else {
			a.flags += "D"
		}
		if !r.Once {
			a.flags += "L"
			a.latch = c.request()
		}
	}
	return a
}

// repeatable says that the request, done once more, changes nothing: ONCE, or the first hold of a connection.
func (a *acquire) repeatable() bool { return a.r.Once || !a.h.explicit && a.before == 0 }

func (a *acquire) call(notAfter string) call {
	a.c.m.mu.Lock()
	a.before = a.h.count
	a.c.m.mu.Unlock()
	id, flags := a.h.id, a.flags
	if !a.h.explicit { // nobody else knows this owner: what Redis may have of it besides was lost or never heard of
		if a.before == 0 {
			flags += "N"
		}
		if n := id.kind.nature(); n.rw && !a.c.m.held(id.as(n.other)) {
			flags += "M"
		}
	}
	keys := id.keys()
	if a.r.Fence {
		keys = append(keys, tokenKey(id.key))
	}
	if a.h.explicit {
		keys = append(keys, id.watchKey())
	}
	if a.latch != "" {
		keys = append(keys, latchKey(id.key, a.latch))
	}
	lease := a.r.Lease
	if lease == 0 {
		lease = a.c.m.opts.Watchdog.Milliseconds()
	}
	args := []string{
		strconv.FormatInt(lease, 10), id.field(), notAfter, flags, a.registration,
		strconv.Itoa(latchTTL), strconv.FormatInt(a.c.m.opts.FenceTTL.Milliseconds(), 10),
	}
	return call{id.db, id.kind.nature().acquire, keys, append(args, id.rest()...)}
}

// run sends the script, again only when it surely was not done.
func (a *acquire) run(ctx context.Context) (answer, error) {
	m := a.c.m
	if a.r.Lease > 0 && !m.sitOut(ctx, a.h) {
		return answer{}, ctx.Err()
	}
	for range 3 {
		text, at, err := m.notAfter()
		if err != nil {
			return answer{}, err
		}
		a.notAfter, a.sent = at, time.Now()
		var out []int64
		if a.r.Replicas > 0 {
			reply, acked, err := m.evalReplicated(ctx, a.call(text), a.r.Replicas, a.replicaWait())
			a.acked = acked
			out, err = ints(reply, err)
			if err != nil {
				return answer{}, err
			}
		} else if out, err = m.evalInts(ctx, a.call(text)); err != nil {
			return answer{}, err
		}
		if out[0] != codeLate {
			ans := answer{code: out[0], count: out[1], ttl: out[2], token: out[3]}
			if ans.code == 1 {
				ans.raised = out[4]
			}
			return ans, nil
		}
		if err := m.sample(); err != nil {
			return answer{}, err
		}
	}
	return answer{}, &upstream.NotSentError{Cause: errLate}
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
func (a *acquire) conclude(ctx context.Context, ans answer) (Grant, int64, error) {
	m := a.c.m
	switch ans.code {
	case 0:
		m.disbelieve(a.h)
		return Grant{}, ans.ttl, ErrNotAcquired
	case codeKind:
		m.disbelieve(a.h)
		return Grant{}, 0, otherKind(a.r.Key)
	case codeUpgrade:
		m.disbelieve(a.h)
		return Grant{}, 0, wouldWaitForItself(a.r.Key)
	}
	if a.r.Replicas > 0 && a.acked < a.r.Replicas {
		if err := m.undo(ctx, a, ans); err != nil {
			return Grant{}, 0, err
		}
		return Grant{}, 0, &Error{"NOREPLICAS", fmt.Sprintf("%d of %d replicas had the lock in time, it was given back", a.acked, a.r.Replicas)}
	}
	if ctx.Err() != nil && !a.h.explicit {
		// Nobody hears of it, and if we cut the client off nothing else would give it back.
		_ = m.undo(ctx, a, ans)
		return Grant{}, 0, ctx.Err()
	}
	if !time.Now().Before(a.sent.Add(milliseconds(ans.ttl))) {
		// The answer took longer than the lease: nobody may work on the strength of it.
		if err := m.undo(ctx, a, ans); err != nil {
			return Grant{}, 0, err
		}
		return Grant{}, 0, ErrNotAcquired
	}
	m.register(a, ans)
	return Grant{Token: ans.token}, 0, nil
}

// disbelieve has the watchdog look at once at a hold that Redis says is somebody else's.
func (m *Manager) disbelieve(h *hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.count > 0 {
		m.plan(h, time.Now())
	}
}

// register notes a grant.
func (m *Manager) register(a *acquire, ans answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := a.h
	if !h.explicit && ans.raised == 1 && h.count > 0 && ans.count <= h.count {
		m.lose(h, h.whyGone()) // what was to be entered again had gone: this is a first hold
	}
	m.contradict(h.id)
	m.begin(h, a.c, ans.count)
	a.extendDeadline(ans)
	h.replicas = max(h.replicas, a.r.Replicas)
	if a.r.Lease == 0 {
		h.watched, h.lease, h.registration = true, m.opts.Watchdog, a.registration
	} else if !h.watched {
		h.lease = milliseconds(a.r.Lease)
	}
	m.planNext(h, a.sent)
	m.losses.Remove(h.id)
	m.done.Remove(h.id)
}

// extendDeadline notes until when a grant lasts. Manager.mu is held.
func (a *acquire) extendDeadline(ans answer) {
	if until := a.sent.Add(milliseconds(ans.ttl)); until.After(a.h.deadline) {
		a.h.deadline = until
	}
}

// planNext puts the hold before the watchdog at a third of its lease when it is renewed, at its end when it is not. mu is held.
func (m *Manager) planNext(h *hold, from time.Time) {
	if h.watched {
		m.plan(h, from.Add(h.lease/3))
	} else {
		m.plan(h, h.deadline)
	}
}

func outcomeWord(err error) string {
	var e *Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrNotAcquired):
		return "nil"
	case errors.As(err, &e):
		return e.Code
	default:
		return "error"
	}
}
