package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

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
)

// Request is one LOCK, FAIRLOCK, RLOCK or WLOCK.
type Request struct {
	DB       int
	Key      string
	Kind     Kind
	Fair     bool   // of a plain lock: wait in the fair queue, first come first of all proxies' and Redisson's waiters
	Blocks   bool   // wait; without it the lock is tried for once
	Block    int64  // how long to wait in ms, 0 = for ever
	Lease    int64  // ms; 0 = the watchdog's, renewed
	Owner    string // "": the connection, which counts how often it enters. An owner with a name has the lock or not
	Self     bool   // the connection alone is the owner: it may re-enter
	Fence    bool
	Replicas int64 // so many replicas must have the grant; 0 = none

	lent *taking // of a MULTILOCK, for which alone it is renewed; nil: of none
}

// Grant is a lock taken. Token is the fencing token, 0 without Request.Fence.
type Grant struct {
	Token   int64
	entered bool   // the owner held it before
	again   bool   // and, having a name, got no second count
	nth     int64  // hold.nth of this grant
	first   bool   // this proxy knew of no hold of the owner's before
	attempt string // of a named owner on a quorum: by which the grant can be taken back
}

// Lock takes a lock for the connection, or enters it once more, or for the owner that r names, which may have it already.
//
// It returns ErrNotAcquired when somebody else held it until the time was over, *Error (OWNERREQUIRED, DRAINING, LOCKKIND,
// NOREPLICAS, ERR when a lost reply could not be cleared up), *upstream.ReplyError with Redis' own words,
// *upstream.NotSentError when Redis cannot be reached, and ctx's error when the client has gone.
func (c *Client) Lock(ctx context.Context, r Request) (Grant, error) {
	began := time.Now()
	verb := r.verb()
	ctx, span := telemetry.Span(ctx, verb)
	defer span.End()
	g, err := c.lock(ctx, r)
	took := time.Since(began)
	telemetry.VerbDone(ctx, strings.ToLower(verb), outcomeWord(err), took)
	c.m.answered(ctx, err, r.Kind, 1, took)
	return g, err
}

// answered counts the outcome of a verb that asked for so many locks, and how long it took.
func (m *Manager) answered(ctx context.Context, err error, k Kind, locks int, took time.Duration) {
	switch {
	case err == nil:
		m.grants.Add(int64(locks))
		for range locks {
			telemetry.LockGranted(ctx, k.String(), took)
		}
	case errors.Is(err, ErrNotAcquired):
		m.refusals.Add(1)
	}
}

// verb is the name of the command that asks for this.
func (r Request) verb() string {
	if r.Fair {
		return "FAIRLOCK"
	}
	return r.Kind.Spec().Verb
}

func (c *Client) lock(ctx context.Context, r Request) (Grant, error) {
	began := time.Now()
	if err := c.m.nameable(r.Key); err != nil {
		return Grant{}, err
	}
	r.Fair = r.Fair && !c.m.store.Rules().Votes // each node would have a queue of its own, and no majority could say whose turn it is
	if r.Fair && lockstore.SharesQueue(r.Key) {
		return Grant{}, noQueue(r.Key)
	}
	if err := c.m.admit(ctx, r); err != nil {
		return Grant{}, err
	}
	id, named := c.id(r.Kind, r.DB, r.Key, r.Owner)
	held := c.m.holds.inside(id)
	if held && !named && !r.Self && c.reentryRefused() {
		return Grant{}, &Error{Code: "OWNERREQUIRED", Text: fmt.Sprintf("this connection already holds '%s'; in a pool that may be another thread's lock: "+
			"say OWNER <a fresh id>, or SELF if this connection is yours alone", lockstore.Printable(r.Key))}
	}
	if !held && c.m.draining() {
		return Grant{}, errDraining
	}
	if !held {
		if err := c.share.Ask(); err != nil {
			return Grant{}, err
		}
		defer c.share.Answered()
	}
	if !held && !r.Blocks && c.m.lines.behind(id) && !(named && c.m.holdsElsewhere(id)) {
		return Grant{}, ErrNotAcquired
	}
	if held || !r.Blocks {
		g, _, err := c.try(ctx, r, nil)
		if !held || !r.Blocks || !errors.Is(err, ErrNotAcquired) {
			return g, err
		}
		// What we believed to hold is somebody else's: it is waited for like any other.
	}
	return c.wait(ctx, r, began)
}

// admit says whether the lock may be asked for at all.
func (m *Manager) admit(ctx context.Context, r Request) error {
	if err := m.store.Rules().Limit(r.Lease, r.Replicas); err != nil {
		return err
	}
	wait := time.Duration(0)
	if r.Blocks {
		wait = lockstore.Milliseconds(r.Block)
	}
	return m.store.Admit(ctx, r.Key, wait)
}

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

// refusal is what Redis says of a lock that somebody else has: the time in ms that the holder has left (negative: none
// known), and the place in the fair queue, if the verb waits there. With turn nobody has the lock yet: ttl is for how long
// the waiter whose turn it is counts as alive.
type refusal struct {
	ttl, ticket int64
	turn        bool
	split       bool // of a quorum: several asked at once, and come again after ttl
}

// try asks Redis once, for a verb that waits as w, or (nil) does not wait.
func (c *Client) try(ctx context.Context, r Request, w *waiter) (Grant, refusal, error) {
	id, named := c.id(r.Kind, r.DB, r.Key, r.Owner)
	long := patience
	switch {
	case w != nil:
		long = w.remaining()
	case r.Blocks && r.Block == 0:
		long = math.MaxInt64
	case r.Blocks: // of a lock that the owner has: an ordinary renewal may take longer than a short BLOCK
		long = max(long, lockstore.Milliseconds(r.Block))
	}
	h, err := c.m.holds.enterSoon(ctx, id, named, long)
	if err != nil {
		return Grant{}, refusal{}, err
	}
	a := c.newAcquire(h, r, w)
	ans, err := a.ask(ctx)
	return a.finish(ctx, ans, err)
}

// finish makes a verb's answer from what Redis said, if anything, and leaves the hold.
func (a *acquire) finish(ctx context.Context, ans lockstore.Acquired, err error) (Grant, refusal, error) {
	m, verb := a.c.m, a.r.verb()
	var known settled // of a request that was done, although its reply was lost
	var lost error    // of a request that may have made a hold which had run out when Redis could be asked again
	for {
		if err != nil && !lockstore.Unknown(err) && known.err == nil && known.Code == lockstore.Granted {
			// The lock was granted, and only asking once more for the answer has failed: an error would leave a lock that nobody knows of.
			ans, err = known.Acquired, nil
		}
		if !lockstore.Unknown(err) {
			break
		}
		a.unanswered(ans.NotAfter)
		done, ok := a.awaitOutcome(ctx)
		if !ok {
			return Grant{}, refusal{}, outcomeUnknown(verb, err)
		}
		if done.err != nil && !errors.Is(done.err, errNotDone) {
			m.holds.leave(a.h)
			return Grant{}, refusal{}, outcomeUnknown(verb, err)
		}
		known = done
		if done.err != nil && time.Since(ans.Sent) >= lockstore.Milliseconds(a.Lease) {
			lost = err
		}
		// A request that changes nothing when it is done twice is sent again, for its answer.
		if ans, err = done.Acquired, nil; done.err == nil && !a.repeatable() {
			break
		}
		if ans, err = a.ask(ctx); err == nil && ans.Code == lockstore.Granted {
			ans.Raised = ans.Raised || known.Raised // the request that was done made the hold
		}
	}
	defer func() {
		if !a.handedOn {
			m.holds.leave(a.h)
		}
	}()
	if ans.Unrenewed {
		m.holds.takenOver(a.h)
	}
	if err != nil {
		if known.registered {
			a.uphold(known.Acquired)
		}
		switch {
		case lost == nil || !lockstore.NotSent(err): // which would say that nothing was done
		case a.w != nil: // it may try again
			a.w.unheard = lost
		default:
			err = outcomeUnknown(verb, lost)
		}
		return Grant{}, refusal{}, err
	}
	g, err := a.conclude(ctx, ans)
	var no refusal
	if ans.Code == lockstore.Refused {
		no = refusal{ans.TTL, ans.Token, ans.Count == lockstore.OthersTurn, ans.Split}
	}
	return g, no, err
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

// nameable refuses names that cannot be a lock's: those of keys that belong to other locks, which a client could overwrite without
// a right to them, and on a cluster those whose lock would be spread over several nodes.
func (m *Manager) nameable(names ...string) error {
	for _, name := range names {
		if lockstore.Reserved(name) {
			return &Error{Code: "ERR", Text: "'" + lockstore.Printable(name) + "' cannot be a lock: names that begin with '" + lockstore.ReservedPrefix +
				"' or end in ':rwlock_timeout:<number>' are those of keys that belong to other locks"}
		}
		if err := m.store.Rules().Fits(name); err != nil {
			return err
		}
	}
	return nil
}
