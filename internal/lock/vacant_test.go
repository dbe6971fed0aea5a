package lock

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// queued is a waiter of Redisson in the fair queue of a held lock, which hears nothing but its own channel.
type queued struct {
	*jvm
	channel redis.PubSubConn
}

func queueRedisson(t *testing.T, s redisServer, conn redis.Conn, key string) *queued {
	t.Helper()
	q := &queued{jvm: &jvm{t: t, s: s, key: key, owner: "11111111-2222-3333-4444-555555555555:" + key, wait: 300000}}
	if q.acquire() {
		t.Fatal("a held lock was given")
	}
	q.channel = redis.PubSubConn{Conn: conn}
	if err := q.channel.Subscribe(lockstore.ChannelOf(key) + ":" + q.owner); err != nil {
		t.Fatal(err)
	}
	q.channel.Receive()
	return q
}

// told fails the test unless the waiter is told, and the lock is free for it by then.
func (q *queued) told(within time.Duration) {
	q.t.Helper()
	switch got := q.channel.ReceiveWithTimeout(within).(type) {
	case redis.Message:
		if !q.acquire() {
			q.t.Errorf("%s: told of a lock that is not free", q.key)
		}
	default:
		q.t.Errorf("%s: not told: %v", q.key, got)
	}
}

// However a hold ends without an UNLOCK, the proxy that had it has the first in the fair queue told: Redisson's, too.
func TestVacantTellsTheQueue(t *testing.T) {
	left := func(c *Client, _ *world.Node, _ *world.Link) { c.Close(Left) }
	for name, c := range map[string]struct {
		o   ManagerOptions
		r   Request
		end func(c *Client, s *world.Node, link *world.Link)
	}{
		"lease":           {r: Request{Lease: 300}},
		"lease-of-owner":  {r: Request{Lease: 300, Owner: "me"}},
		"left":            {r: Request{Lease: 300}, end: left},
		"left-with-owner": {r: Request{Lease: 300, Owner: "me"}, end: left},
		"running out":     {r: Request{Lease: 300}, end: func(c *Client, _ *world.Node, _ *world.Link) { c.LeaveToExpire(); c.Close(Gone) }},
		"max-hold":        {o: ManagerOptions{MaxHold: 300 * time.Millisecond}},
		"deleted":         {end: func(_ *Client, s *world.Node, _ *world.Link) { s.Do(t, "DEL", "deleted") }},
		"cut-off": {end: func(c *Client, _ *world.Node, link *world.Link) {
			link.Swallow(world.Both)
			eventually(t, time.Minute, "the loss", func() bool { return c.m.Stats().Lost == 1 })
			link.Heal()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m := bubbleEngine(t, w, s, "one", c.o)
				holder, _ := client(m)
				defer holder.Close(Gone)
				c.r.Key = name
				mustLock(t, holder, c.r)
				waiter := queueRedisson(t, s, dialNode(t, w, s), name)
				if c.end != nil {
					c.end(holder, s, w.Proxy("one").Link(s.Addr()))
				}
				waiter.told(time.Minute)
			})
		})
	}
}

// A named owner's UNLOCK that comes too late tells the first in the queue by itself, as Redisson's does: also one of an owner that the proxy
// does not know. Of what a connection has lost the proxy tells without its UNLOCK.
func TestVacantLateUnlock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		late, _ := client(m)
		for name, r := range map[string]UnlockRequest{"unlock": {Owner: "me"}, "force": {Force: true}} {
			r.Key = name
			heldByRedisson(t, s, name)
			waiter := queueRedisson(t, s, dialNode(t, w, s), name)
			s.Do(t, "DEL", name)
			if free, err := late.Unlock(context.Background(), r); free || !r.Force && !isCode(err, "NOTHELD") {
				t.Errorf("%s: %v %v", name, free, err)
			}
			waiter.told(10 * time.Second)
		}
		listen := redis.PubSubConn{Conn: dialNode(t, w, s)}
		if err := listen.Subscribe(lockstore.LineKey{Key: "rw", Kind: Write}.Channel()); err != nil {
			t.Fatal(err)
		}
		listen.Receive()
		for _, r := range []UnlockRequest{{Side: Read, Owner: "me"}, {Side: Write, Owner: "me"}, {Side: Write, Force: true}} {
			r.Key = "rw"
			if free, err := late.Unlock(context.Background(), r); free || !r.Force && !isCode(err, "NOTHELD") {
				t.Errorf("%+v: %v %v", r, free, err)
			}
			if got, ok := listen.ReceiveWithTimeout(10 * time.Second).(redis.Message); !ok {
				t.Errorf("%+v: nobody was told: %v", r, got)
			}
		}
	})
}

// A lock that was handed on, which sends no message, is had on another proxy as soon as its lease is over: the lease that was
// seen there is the one before.
func TestVacantAfterAHandoff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		options := ManagerOptions{Poll: time.Minute}
		m, n := bubbleEngine(t, w, s, "one", options), bubbleEngine(t, w, s, "two", options)
		for _, r := range []Request{{Key: "plain"}, {Key: "rw", Kind: Write}, {Key: "fair", Fair: true}} {
			holder, _ := client(m)
			next, _ := client(m)
			other, _ := client(n)
			mustLock(t, holder, r)
			r.Blocks, r.Lease = true, 300
			handed := locking(next, r)
			waits := func(m *Manager) func() bool {
				return func() bool {
					m.lines.mu.Lock()
					defer m.lines.mu.Unlock()
					id := holder.id(r.Kind, 0, r.Key, "")
					key := id.Line()
					key.Fair = r.Fair
					l := m.lines.byKey[key]
					return l != nil && l.waiters.Front().Value.(*waiter).state == parked && time.Until(l.tryAt) > 10*time.Second
				}
			}
			eventually(t, 10*time.Second, r.Key+": the next waits", waits(m))
			r.Lease = 0
			elsewhere := locking(other, r)
			eventually(t, 10*time.Second, r.Key+": the other waits", waits(n))
			mustUnlock(t, holder, UnlockRequest{Key: r.Key}, true)
			granted(t, handed, r.Key+" handed on")
			granted(t, elsewhere, r.Key+" when the lease was over")
			other.Close(Gone)
		}
	})
}

// With a cluster the node of the lock's slot tells, by both ways to publish.
func TestVacantOnACluster(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	m := clusterEngine(t, tc, ManagerOptions{}, node.PubSubBoth)
	holder, _ := client(m)
	var waiters []*queued
	for i := range 3 {
		key := nameIn("vacant", i, 3)
		s := owner(t, tc, key)
		mustLock(t, holder, Request{Key: key, Lease: 5000})
		waiters = append(waiters, queueRedisson(t, s, s.Dial(t), key))
	}
	for _, waiter := range waiters {
		waiter.told(30 * time.Second)
		if _, err := holder.Unlock(context.Background(), UnlockRequest{Key: waiter.key}); !isCode(err, "LOCKLOST") {
			t.Error(err)
		}
	}
}
