package lock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Kind is what sort of hold an owner has of a key: see lockstore.
type Kind = lockstore.Kind

// The kinds.
const (
	Plain = lockstore.Plain
	Read  = lockstore.Read
	Write = lockstore.Write
	Limit = lockstore.Limit
)

// Request is one LOCK, FAIRLOCK, RLOCK or WLOCK.
type Request struct {
	DB     int
	Key    string
	Kind   Kind
	Fair   bool  // of a plain lock: wait in the fair queue, first come first of all proxies' and Redisson's waiters
	Blocks bool  // wait; without it the lock is tried for once
	Block  int64 // how long to wait in ms, 0 = for ever
	Lease  int64 // ms; 0 = the watchdog's, renewed, of a connection only
	// "": the connection, which counts how often it takes the lock. An owner with a name has the lock or not, for the
	// lease
	Owner    string
	Self     bool  // the connection alone is the owner: it may re-enter
	Limit    int64 // of a lock of that kind: so many may have it, one at least
	Fence    bool
	Replicas int64 // so many replicas must have the grant; 0 = none

	joins bool // of a MULTILOCK, which may yet fail: what a named owner has of the lock is not lengthened
}

// Grant is a lock taken. Its Token is the fencing token, 0 without Request.Fence.
type Grant = lockstore.Acquired

// Lock takes a lock for the connection, once more if it has it, or for the owner that r names, which may have it
// already.
//
// It returns ErrNotAcquired when somebody else held it until the time was over, *Error (LOCKLOST once, for a lock that
// the connection has lost; OWNERREQUIRED, DRAINING, LOCKKIND, DEADLOCK, NOREPLICAS, ERR when a lost reply could not be
// cleared up), *upstream.ReplyError with Redis' own words, *upstream.NotSentError when Redis cannot be reached, and
// ctx's error when the client has gone.
func (c *Client) Lock(ctx context.Context, r Request) (Grant, error) {
	ctx, verb := beginVerb(ctx, r.verb(), r.Key)
	g, err := c.lock(ctx, r, verb.began)
	c.answered(ctx, verb, err, r, r.Key)
	return g, err
}

// verb is one verb under way, as telemetry is told of it.
type verb struct {
	name  string
	began time.Time
	span  trace.Span
}

func beginVerb[T string | []string](ctx context.Context, name string, locks T) (context.Context, verb) {
	v := verb{name: name, began: time.Now()}
	ctx, v.span = telemetry.SpanAbout(ctx, name, locks)
	return ctx, v
}

// end tells how the verb has ended, and returns how long it took.
func (v verb) end(ctx context.Context, err error) (took time.Duration) {
	took = time.Since(v.began)
	telemetry.VerbDone(ctx, verbLabels[v.name], outcomeWord(err), took)
	v.span.End()
	return took
}

// verbLabels are the verbs' names as metrics have them.
var verbLabels = map[string]string{"LOCK": "lock", "FAIRLOCK": "fairlock", "RLOCK": "rlock", "WLOCK": "wlock",
	"MULTILOCK": "multilock", "UNLOCK": "unlock", "MULTIUNLOCK": "multiunlock", "RENEW": "renew"}

// ended is end of a verb about locks that the client, or that owner, should have: if it fails, that is an event.
func (c *Client) ended(ctx context.Context, v verb, err error, id lockstore.ID, keys ...string) {
	took := v.end(ctx, err)
	if err != nil {
		c.happened(ctx, v, err, took, id, keys)
	}
}

// happened tells of a verb's outcome for each of the locks that it is about.
func (c *Client) happened(ctx context.Context, v verb, err error, took time.Duration, id lockstore.ID, keys []string) {
	if c.m.opts.Events == nil {
		return
	}
	e := eventOf(events.Refusal, v.began.Add(took), id)
	e.Verb, e.Waited, e.Client = v.name, took, c.who()
	switch {
	case err == nil:
		e.Kind = events.Grant
	case errors.Is(err, ErrNotAcquired):
		e.Kind = events.Busy
	case errors.Is(err, context.Canceled):
		e.Kind, e.Reason = events.Wait, "its client has gone"
		if why := context.Cause(ctx); why != nil && why != context.Canceled { // CLIENT UNBLOCK, or the proxy closes it
			e.Reason = why.Error()
		}
	default:
		e.Reason = err.Error()
	}
	for _, e.Key = range keys {
		c.m.opts.Events.Add(e)
	}
}

// eventOf is what has happened to a lock.
func eventOf(k events.Kind, at time.Time, id lockstore.ID) events.Event {
	return events.Event{At: at, Kind: k, Lock: true, Key: id.Key, DB: id.DB, Side: id.Kind.String(), Owner: id.Owner}
}

// who is the client, as events tell.
func (c *Client) who() events.Client {
	return events.Client{Addr: c.info.Addr, User: c.info.User(), Name: c.info.Name()}
}

// lease is for how long the lock is asked for, in ms.
func (r Request) lease(o ManagerOptions) int64 { return cmp.Or(r.Lease, o.Watchdog.Milliseconds()) }

// answered ends a verb that has asked for locks, counts its outcome, and tells of it.
func (c *Client) answered(ctx context.Context, v verb, err error, r Request, keys ...string) {
	took := v.end(ctx, err)
	switch {
	case err == nil:
		c.m.granted.Add(int64(len(keys)), r.Kind.String(), "")
		for range keys {
			telemetry.LockGranted(r.Kind.String(), took)
		}
	case errors.Is(err, ErrNotAcquired):
		c.m.refused.Add(1)
	}
	c.happened(ctx, v, err, took, c.id(r.Kind, r.DB, "", r.Owner), keys)
}

// verb is the name of the command that asks for this.
func (r Request) verb() string {
	if r.Fair {
		return "FAIRLOCK"
	}
	return r.Kind.Spec().Verb
}

func (c *Client) lock(ctx context.Context, r Request, began time.Time) (g Grant, err error) {
	if err := c.m.nameable(r.Key); err != nil {
		return Grant{}, err
	}
	// Each node would have a queue of its own, and no majority could say whose turn it is.
	r.Fair = r.Fair && !c.m.rules.Votes
	if r.Fair && lockstore.SharesQueue(r.Key) {
		return Grant{}, noQueue(r.Key)
	}
	if err := c.m.rules.Limit(r.Lease, r.Replicas); err != nil {
		return Grant{}, err
	}
	if r.Kind == Limit {
		if err := c.m.severalMayHold(r.Key); err != nil {
			return Grant{}, err
		}
	}
	if err := c.m.store.Admit(ctx, r.Key, r.left(nil)); err != nil {
		return Grant{}, err
	}
	defer func() { err = explained(r.verb(), err) }()
	var w *waiter
	if r.Blocks {
		w = newWaiter(ctx, c, r, began)
	}
	if r.Fair && r.Blocks {
		c.m.lines.enterQueue(w.id)
		defer func() { c.m.lines.leaveQueue(w, err) }()
	}
	defer c.share.answered()
	id := c.id(r.Kind, r.DB, r.Key, r.Owner)
	stands := c.m.lines.inFront(r, id) && !(r.Owner != "" && c.m.has(id))
	g, err = c.try(ctx, r, w, func(inside bool) error { return c.mayAsk(r, id, inside, stands) })
	switch {
	case !r.Blocks, err == nil:
		return g, err
	case lockstore.Unknown(err), lockstore.EndsByItself(err):
		w.trouble = err
	case !errors.Is(err, ErrNotAcquired):
		return g, err
	}
	if r.Fair {
		w.ticket = g.Place
	}
	return w.wait(ctx, g.Place)
}

// mayAsk says why a verb is not to ask for a lock. stands says that others wait for the lock before it.
func (c *Client) mayAsk(r Request, id lockstore.ID, inside, stands bool) error {
	switch {
	case inside && !r.Self && c.reentryRefused():
		return about(r.Key, "OWNERREQUIRED", "this connection already holds '%s'; in a pool that may be "+
			"another thread's lock: say SELF if this connection is yours alone, else OWNER <a fresh id>")
	case inside:
		return nil
	case c.m.draining():
		return errDraining
	}
	if counted := r.Owner != "" && c.m.leases.counts(c, id); !counted {
		if err := c.share.ask(); err != nil {
			return err
		}
	}
	if stands {
		return ErrNotAcquired
	}
	return nil
}

// always lets a verb ask.
func always(bool) error { return nil }

func (c *Client) reentryRefused() bool {
	switch c.m.opts.Reentry {
	case reentryAlways:
		return false
	case reentryNever:
		return true
	default:
		return c.library.Load()
	}
}

// inside says whether the connection has the lock, on either side, and wants it: its LOCK does not stand in line behind
// those who wait for its own release.
func (rec *record) inside() bool { return rec != nil && rec.wanted().live() }

// has asks Redis whether a named owner has the lock already, on either side: its LOCK does not stand in line behind
// those that wait for its own release. It does not pass them when the lock is free.
func (m *Manager) has(id lockstore.ID) bool {
	seen, err := m.store.Look(id, time.Time{}, time.Now())
	return err == nil && (seen.Any() || seen.Unsure)
}

// severalMayHold refuses a lock that cannot be one with LIMIT.
func (m *Manager) severalMayHold(key string) error {
	if lockstore.SharesQueue(key) {
		return about(key, "ERR", "'%s' cannot be a lock with LIMIT: its places would be those of the lock without the braces")
	}
	return m.rules.SeveralHold()
}

func outcomeWord(err error) string {
	if err == nil { // spares the allocation that errors.As needs
		return "ok"
	}
	var e *Error
	switch {
	case errors.Is(err, ErrNotAcquired):
		return "nil"
	case errors.As(err, &e):
		return e.Code
	default:
		return "error"
	}
}

// nameable refuses names that cannot be a lock's: those of keys that belong to other locks, which a client could
// overwrite without a right to them, and on a cluster those whose lock would be spread over several nodes.
func (m *Manager) nameable(names ...string) error {
	for _, name := range names {
		if lockstore.Reserved(name) {
			return about(name, "ERR", "'%s' cannot be a lock: names that begin with '"+lockstore.ReservedPrefix+
				"' or 'redisson_lock_<queue, timeout or token>:', or end in '{<name>}:timeout' or ':rwlock_timeout:<number>', are those of keys that belong to other locks")
		}
		if err := m.rules.Fits(name); err != nil {
			return err
		}
	}
	return nil
}
