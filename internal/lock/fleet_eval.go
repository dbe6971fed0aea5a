package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// notAfterMark stands for the not-after in the arguments of a script for a cluster: which node is to do it, by whose clock it
// is told, is known only when it is sent. It is random because other arguments are the clients' own.
func notAfterMark() string { return "not-after " + rand.Text() }

// maxHops is how many redirects one request follows without a pause. Nodes that disagree send it round in circles.
const maxHops = 5

var (
	errUnserved = errors.New("no node of the cluster serves the slot of this lock")
	errMoving   = errors.New("the slot of this lock is on its way to another node")
)

type boundKey struct{}

// bounded limits for how long a request that was not done is tried again on a cluster, on behalf of ctx.
func bounded(ctx context.Context, d time.Duration) context.Context {
	if bound, ok := ctx.Value(boundKey{}).(time.Duration); ok && bound <= d {
		return ctx
	}
	return context.WithValue(ctx, boundKey{}, d)
}

// patience is for how long a request may be tried again: within BLOCK, and so that most of the lease is left.
func (r Request) patience() time.Duration {
	d := time.Minute
	if r.Blocks && r.Block > 0 {
		d = min(d, milliseconds(r.Block))
	}
	if r.Lease > 0 {
		d = min(d, milliseconds(r.Lease)/2)
	}
	return d
}

// do sends a request to the node that has the key's slot. What was surely not done is sent again: to where a redirect says, if
// the topology names that node, and after a pause where the slot is on its way, nobody has it, or the node is out of reach.
// After that it is a *upstream.NotSentError.
func (f *fleet) do(ctx context.Context, key string, send func(mb *member, ask bool) error) error {
	slot := cluster.Slot([]byte(key))
	bound := f.c.RetryFor()
	if d, ok := ctx.Value(boundKey{}).(time.Duration); ok {
		bound = min(bound, d)
	}
	giveUp := time.Now().Add(bound)
	var to *cluster.Node
	ask, hops := false, 0
	for failures := (retry.Backoff{First: 5 * time.Millisecond, Most: 100 * time.Millisecond}); ; {
		mb := f.use(slot, to)
		err := error(&upstream.NotSentError{Cause: errUnserved})
		if mb != nil {
			err = send(mb, ask)
			mb.account.refused(err)
			f.unuse(mb)
		}
		var again bool
		if to, ask, again, err = f.redirected(ctx, slot, mb, err); !again {
			return err
		}
		if hops++; to != nil && hops < maxHops {
			continue
		}
		if time.Now().After(giveUp) || ctx.Err() != nil || !f.m.sleep(context.Background(), failures.Next()) {
			return err
		}
	}
}

// redirected says what is to become of a request: again, at to (nil: whoever has the slot by then), behind ASKING, or not.
func (f *fleet) redirected(ctx context.Context, slot int, mb *member, err error) (to *cluster.Node, ask, again bool, out error) {
	var reply *upstream.ReplyError
	var notSent *upstream.NotSentError
	switch {
	case errors.As(err, &notSent):
		f.c.Refresh()
		return nil, false, true, err
	case isUnknown(err):
		f.noteLost(allowed(ctx))
		f.c.Refresh()
		return nil, false, false, err
	case !errors.As(err, &reply):
		return nil, false, false, err
	}
	to, ask, again = f.c.Redirect([]byte("-"+reply.Line+"\r\n"), slot, mb.is)
	if again {
		return to, ask, true, &upstream.NotSentError{Cause: errMoving}
	}
	switch code, _, _ := strings.Cut(reply.Line, " "); code {
	case "TRYAGAIN":
		return nil, false, true, &upstream.NotSentError{Cause: errMoving}
	case "CLUSTERDOWN":
		f.c.Refresh()
		return nil, false, true, &upstream.NotSentError{Cause: errors.New(reply.Line)}
	}
	return nil, false, false, err
}

// noteLost remembers that a reply was lost: what it was for may be done for so long.
func (f *fleet) noteLost(allowed time.Duration) {
	now, _ := f.m.one.Clock.Now()
	now += allowed.Microseconds()
	for last := f.lost.Load(); last < now && !f.lost.CompareAndSwap(last, now); last = f.lost.Load() {
	}
}

// final is when, by the proxy's clock, a request that was to be sent with that not-after can no longer be done. On a cluster it
// may have been sent later than it was prepared for.
func (m *Manager) final(at int64) int64 {
	if m.fleet == nil || at == 0 {
		return at
	}
	return max(at, m.fleet.lost.Load())
}

// clockAt turns what the node of a key says of its clock into the proxy's time; 0: what was lost there may still be done.
func (m *Manager) clockAt(key string, now int64) int64 {
	if m.fleet == nil {
		return now
	}
	mb := m.fleet.use(cluster.Slot([]byte(key)), nil)
	if mb == nil {
		return 0
	}
	defer m.fleet.unuse(mb)
	if now <= mb.regress.Load() {
		return 0
	}
	ours, _ := m.one.Clock.Now()
	return ours
}

// guarded are the scripts that touch keys they do not declare, or one that they have deleted. In a slot that is on its way Redis
// would stop them there, in the middle of what they do. A key that never exists has it refuse them before they begin.
func guarded(c node.Call) bool {
	switch c.Script {
	case scripts.Renew, scripts.Extend, scripts.Look:
		return false
	}
	return true
}

// withGuard is the call with the key that guards it, where it needs that.
func withGuard(c node.Call) node.Call {
	if guarded(c) {
		c.Keys = append(slices.Clip(c.Keys), guardKey(c.Keys[0]))
	}
	return c
}

// prepare makes the call what is to be sent to a member.
func (f *fleet) prepare(ctx context.Context, mb *member, c node.Call) (node.Call, error) {
	c = withGuard(c)
	if slices.Contains(c.Args, f.verb) {
		c.Args = slices.Clone(c.Args)
		verb := f.verbOf(mb)
		for i, arg := range c.Args {
			if arg == f.verb {
				c.Args[i] = verb
			}
		}
	}
	if !slices.Contains(c.Args, f.mark) {
		return c, nil
	}
	if _, known := mb.Clock.Now(); !known {
		if err := f.sample(mb); err != nil {
			return c, err
		}
	}
	now, _ := mb.Clock.Now()
	text := strconv.FormatInt(now+allowed(ctx).Microseconds(), 10)
	c.Args = slices.Clone(c.Args)
	for i, arg := range c.Args {
		if arg == f.mark {
			c.Args[i] = text
		}
	}
	return c, nil
}

// eval is Manager.eval.
func (f *fleet) eval(ctx context.Context, c node.Call) (reply rueidis.RedisMessage, err error) {
	err = f.do(ctx, c.Keys[0], func(mb *member, ask bool) error {
		prepared, err := f.prepare(ctx, mb, c)
		if err != nil {
			return err
		}
		if reply, err = mb.Eval(prepared, ask); err == nil && late(reply) {
			_ = f.sample(mb)
		}
		return err
	})
	return reply, err
}

func late(reply rueidis.RedisMessage) bool {
	if code, err := reply.AsInt64(); err == nil {
		return code == scripts.Late
	}
	parts, err := reply.ToArray()
	if err != nil || len(parts) == 0 {
		return false
	}
	code, err := parts[0].AsInt64()
	return err == nil && code == scripts.Late
}

// evalInts is Manager.evalInts.
func (f *fleet) evalInts(ctx context.Context, c node.Call) (out []int64, err error) {
	err = f.do(ctx, c.Keys[0], func(mb *member, ask bool) error {
		prepared, err := f.prepare(ctx, mb, c)
		if err != nil {
			return err
		}
		if out, err = mb.EvalInts(prepared, ask); err == nil && out[0] == scripts.Late {
			_ = f.sample(mb)
		}
		return err
	})
	return out, err
}

// evalReplicated is Manager.evalReplicated. It waits for a slot that is on its way: replicas there say nothing of the keys here.
func (f *fleet) evalReplicated(ctx context.Context, c node.Call, replicas int64, wait time.Duration) (reply rueidis.RedisMessage, acked int64, err error) {
	err = f.do(ctx, c.Keys[0], func(mb *member, ask bool) error {
		if ask {
			return &upstream.NotSentError{Cause: errMoving}
		}
		prepared, err := f.prepare(ctx, mb, c)
		if err != nil {
			return err
		}
		reply, acked, err = mb.EvalReplicated(prepared, replicas, wait)
		if err == nil && late(reply) {
			_ = f.sample(mb)
		}
		return err
	})
	return reply, acked, err
}

// read runs a command that only reads at the node of key.
func (m *Manager) read(ctx context.Context, db int, key string, build func(rueidis.Client) rueidis.Completed) (result rueidis.RedisResult, err error) {
	on := func(ctl *upstream.Control, ask bool) error {
		client, err := ctl.Client(db)
		if err != nil {
			return &upstream.NotSentError{Cause: err}
		}
		result = node.Do(client, build(client), ask)
		if err := result.Error(); err != nil && !rueidis.IsRedisNil(err) {
			return node.Outcome(err)
		}
		return nil
	}
	if m.fleet == nil {
		return result, on(m.one.Control, false)
	}
	return result, m.fleet.do(ctx, key, func(mb *member, ask bool) error { return on(mb.Control, ask) })
}
