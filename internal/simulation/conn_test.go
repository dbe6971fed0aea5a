package simulation

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// conn is one user's connection to a proxy, as far as locks go: what commands and session do between bytes and the engine.
type conn struct {
	b      *environment
	e      *engine
	n      int
	client *lock.Client
	ctx    context.Context
	cancel context.CancelFunc
	busy   sync.WaitGroup
	gone   atomic.Bool

	mu   sync.Mutex
	told map[string]int64 // when it was told last that it has lost a lock
}

// reach connects to a proxy; nil: it does not run.
func (b *environment) reach(n, number int) history.Conn {
	c := b.connect(n, number)
	if c == nil {
		return nil
	}
	return c
}

func (b *environment) connect(n, number int) *conn {
	e := b.proxies[n].engine()
	if e == nil {
		return nil
	}
	c := &conn{b: b, e: e, n: number, told: map[string]int64{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.client = e.locks.NewClient(lock.ClientInfo{ID: int64(number), Addr: "user", Gone: c.gone.Load, Push: func(l lock.Loss) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.told[l.Key] = b.Now()
	}})
	return c
}

var errBroken = errors.New("the connection is broken")

// Do implements history.Conn.
func (c *conn) Do(o *history.Op, patience time.Duration) (reply any, err error) {
	time.Sleep(c.turn()) // replies may have come to two users at one instant
	type answer struct {
		reply any
		err   error
	}
	got := make(chan answer, 1)
	c.busy.Add(1)
	c.b.running.Go(func() {
		defer c.busy.Done()
		reply, err := c.verb(o)
		got <- answer{reply, err}
	})
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case a := <-got:
		return a.reply, refusal(a.err)
	case <-late.C:
		return nil, history.ErrLate
	case <-c.e.dead:
		c.cancel()
		return nil, errBroken
	}
}

// turn is some ns, and another one for each connection.
func (c *conn) turn() time.Duration { return time.Duration(1 + c.n/10000 + c.n%10000*64) }

// Close implements history.Conn.
func (c *conn) Close(bool) {
	c.b.running.Go(func() {
		time.Sleep(c.turn() + time.Duration(c.b.w.Chance(int64(3*ms), "hang up"))) // that is on its way, too
		c.gone.Store(true)
		c.cancel()
		c.busy.Wait()
		c.client.Close(lock.Gone)
	})
}

// refusal is what an error is called on the wire.
func refusal(err error) error {
	var own *lock.Error
	var redis *upstream.ReplyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return history.Refused(own.Error())
	case errors.As(err, &redis):
		return history.Refused(redis.Line)
	default:
		return history.Refused("ERR " + err.Error())
	}
}

var kinds = map[history.Side]lock.Kind{history.Plain: lock.Plain, history.Read: lock.Read, history.Write: lock.Write}

// owner is the one that is named; "": the connection.
func owner(o *history.Op) string {
	if o.Named {
		return o.Owner
	}
	return ""
}

// verb has the engine do it.
func (c *conn) verb(o *history.Op) (reply any, err error) {
	ctx := context.Background()
	if o.Acquires() && o.Block >= 0 {
		ctx = c.ctx
	}
	unlock := lock.UnlockRequest{Key: o.Keys[0], Side: kinds[o.Side], Owner: owner(o), All: o.All, Force: o.Force}
	switch o.Verb {
	case "LOCK", "FAIRLOCK", "RLOCK", "WLOCK", "MULTILOCK":
		return c.acquire(ctx, o)
	case "UNLOCK":
		free, err := c.client.Unlock(ctx, unlock)
		return number(free), err
	case "MULTIUNLOCK":
		n, err := c.client.MultiUnlock(ctx, o.Keys, unlock)
		return n, err
	case "RENEW":
		return int64(1), c.client.Renew(ctx, lock.RenewRequest{Key: o.Keys[0], Side: kinds[o.Side], Owner: owner(o), Lease: o.Lease})
	case "FENCED":
		return c.fenced(ctx, o)
	case "BARE":
		return c.command(o.Words), nil
	}
	panic("no such verb: " + o.Verb)
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

func (c *conn) acquire(ctx context.Context, o *history.Op) (reply any, err error) {
	r := lock.Request{
		Key: o.Keys[0], Kind: kinds[o.Side], Fair: o.Verb == "FAIRLOCK", Blocks: o.Block >= 0, Block: max(o.Block, 0), Lease: o.Lease,
		Owner: owner(o), Self: o.Self, Fence: o.Fence,
	}
	if o.Limit > 0 {
		r.Kind, r.Limit = lock.Limit, o.Limit
	}
	var grants []lock.Grant
	if o.Verb == "MULTILOCK" {
		grants, err = c.client.MultiLock(ctx, o.Keys, r)
	} else {
		var g lock.Grant
		g, err = c.client.Lock(ctx, r)
		grants = []lock.Grant{g}
	}
	switch {
	case errors.Is(err, lock.ErrNotAcquired):
		return nil, nil
	case err != nil:
		return nil, err
	case !o.Fence:
		return "OK", nil
	case o.Verb != "MULTILOCK":
		return grants[0].Token, nil
	}
	var tokens []any
	for _, g := range grants {
		tokens = append(tokens, g.Token)
	}
	return tokens, nil
}

// fenced runs a command if the owner holds the lock by what Redis says in that moment, as session does with WATCH and MULTI.
func (c *conn) fenced(ctx context.Context, o *history.Op) (reply any, err error) {
	r := lock.HoldRequest{Key: o.Keys[0], Owner: owner(o), Side: kinds[o.Side]}
	for range 5 {
		if err := c.client.Lost(r); err != nil {
			return nil, err
		}
		time.Sleep(100*time.Microsecond + time.Duration(o.ID)) // on its way
		if c.gone.Load() {
			return nil, errBroken
		}
		node := c.b.owner(o.Keys[0])
		args := []any{"HMGET", o.Keys[0]}
		fields := c.client.HoldFields(r)
		for _, field := range fields {
			args = append(args, field)
		}
		values := make([][]byte, len(fields))
		for i, v := range node.Ask(args...).([]any) {
			values[i], _ = v.([]byte)
		}
		holds, err := r.Holds(values)
		if err != nil {
			return nil, err
		}
		if reads := c.client.ReadHolds(r, values); holds && len(reads) > 0 {
			args := []any{"EXISTS"}
			for _, key := range reads {
				args = append(args, key)
			}
			holds = node.Ask(args...).(int64) > 0
		}
		if holds {
			return c.command(o.Words), nil
		}
		if err := c.client.NotHeld(ctx, r); err != nil {
			return nil, err
		}
	}
	return nil, &lock.Error{Code: "ERR", Text: "nothing was run"} // as session says: the engine may be cut off from Redis
}

// command is a user's own, on the node that has the lock of the counter's name.
func (c *conn) command(words []string) any {
	var args []any
	for _, w := range words {
		args = append(args, w)
	}
	return c.b.owner(words[1]).Ask(args...)
}

// owner is the node that has a key. Counters, "n:<lock>", are with their locks.
func (b *environment) owner(key string) *world.Node {
	if b.cluster == nil {
		return b.nodes[0]
	}
	return b.cluster.Owner(strings.Trim(strings.TrimPrefix(key, "n:"), "{}"))
}
