package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

// A waiter that comes back to its place behind one of Redisson, because its owner gave up on another proxy, passes none of
// its own proxy's: that proxy would ask for the wrong one.
func TestFairComesBackBehindRedisson(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
		holder, _ := client(n)
		mustLock(t, holder, Request{Key: "k"})
		redisson := &jvm{t: t, s: s, key: "k", owner: "11111111-2222-3333-4444-555555555555:1", wait: 300000}
		if redisson.acquire() {
			t.Fatal("a held lock was given")
		}
		var group sync.WaitGroup
		var o order
		a, _ := client(m)
		queueUp(t, s, &group, a, &o, "a", Request{Key: "k"})
		job, _ := client(m)
		queueUp(t, s, &group, job, &o, "job", Request{Key: "k", Owner: "job", Lease: 30_000})
		want := []string{redisson.owner, a.Owner(), "job"}
		twin, _ := client(n)
		if _, err := twin.Lock(context.Background(), Request{Key: "k", Fair: true, Blocks: true, Block: 50, Owner: "job", Lease: 30_000}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		eventually(t, 2*placeKept, "it leaves", func() bool { return len(fairQueue(t, s, "k")) == 2 })
		eventually(t, 3*queueRefresh, "it comes back", func() bool { return len(fairQueue(t, s, "k")) == 3 })
		if got := fairQueue(t, s, "k"); !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
		mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
		if !redisson.acquire() {
			t.Fatal("not the turn of Redisson")
		}
		redisson.unlock()
		group.Wait()
		if o.String() != "a job" {
			t.Error(o.String())
		}
	})
}

// One whose grant came too late to count enters the queue behind those who stand there.
func TestFairAfterALateGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, _ := bubbleSlow(t, w, s, ManagerOptions{Poll: time.Minute})
		n := bubbleEngine(t, w, s, "one", ManagerOptions{})
		late, _ := client(m)
		var group sync.WaitGroup
		var o order
		ctx, cancel := context.WithCancel(context.Background())
		group.Go(func() {
			if _, err := late.Lock(ctx, Request{Key: "k", Fair: true, Blocks: true, Lease: 90}); err == nil {
				t.Error("a lease of 90 ms over a way of 200 ms")
			}
		})
		eventually(t, 5*time.Second, "granted", func() bool { return len(hash(t, s, "k")) == 1 })
		holder, _ := client(n)
		mustLock(t, holder, Request{Key: "k", Blocks: true})
		first, _ := client(m)
		queueUp(t, s, &group, first, &o, "first", Request{Key: "k"})
		eventually(t, 5*time.Second, "both in the queue", func() bool { return len(fairQueue(t, s, "k")) == 2 })
		mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
		eventually(t, 10*time.Second, "the first has its turn", func() bool { return o.String() != "" })
		cancel()
		group.Wait()
	})
}

// Who becomes the first of its proxy asks once its own channel is heard: what came there before was for nobody. The one behind the first listens
// already, and what came before was for the first.
func TestFairNewHeadAsks(t *testing.T) {
	for leaving, scripts := range map[int]int64{1: 1, 2: 3} { // each of them leaves, and the third tries
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			ran := scriptsOf(s)
			m, n := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Minute}), bubbleEngine(t, w, s, "two", ManagerOptions{})
			holder, _ := client(n)
			mustLock(t, holder, Request{Key: "k"})
			var group sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var last *Client
			for i := range leaving + 1 {
				c, _ := client(m)
				its := ctx
				if i == leaving {
					last, its = c, context.Background()
				}
				group.Go(func() {
					if _, err := c.Lock(its, Request{Key: "k", Fair: true, Blocks: true}); (err == nil) != (i == leaving) {
						t.Error(i, err)
					}
				})
				eventually(t, 5*time.Second, "it waits", func() bool {
					m.lines.mu.Lock()
					defer m.lines.mu.Unlock()
					l := m.lines.byKey[lockstore.LineKey{Key: "k", Fair: true}]
					return l != nil && l.waiters.Len() == i+1 && l.waiters.Front().Value.(*waiter).state == parked && time.Until(l.tryAt) > 0
				})
			}
			synctest.Wait()
			before := ran.Load()
			cancel()
			eventually(t, 2*time.Second, "leave, and a try", func() bool { return ran.Load() >= before+scripts })
			time.Sleep(time.Second)
			if more := ran.Load() - before - scripts; more > 0 {
				t.Errorf("%d scripts more, %d are leaving", more, leaving)
			}
			free := time.Now()
			mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
			group.Wait()
			if waited := time.Since(free); waited > 100*time.Millisecond {
				t.Errorf("granted after %v, %d are leaving", waited, leaving)
			}
			mustUnlock(t, last, UnlockRequest{Key: "k"}, true)
		})
	}
}

// Whoever is put out comes back among ours by its ticket, wherever Redisson's waiters stand, and those keep their order.
func TestFairPlaces(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "HSET", "k", "holder", 1)
	conn := s.Dial(t)
	enter := func(owner, ticket string) string {
		keys := lockstore.ID{Key: "k"}.Keys()
		args := []any{scripts.Acquire.Source, len(keys)}
		for _, key := range keys {
			args = append(args, key)
		}
		args = append(args, owner, 1, 30000, int64(1)<<53, "", ticket, node.Publish, "", 0)
		out, err := redis.Int64s(conn.Do("EVAL", args...))
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatInt(out[3], 10)
	}
	for range 40 {
		s.Do(t, "DEL", lockstore.QueueKey("k"), timeoutsKey("k"), ticketsKey("k"))
		tickets := map[string]string{}
		var ours, theirs []string
		for i := range 1 + rand.N(40) {
			if name := fmt.Sprint(i); rand.N(3) == 0 {
				(&jvm{t: t, s: s, key: "k", owner: name, wait: 300000}).acquire()
				theirs = append(theirs, name)
			} else {
				tickets[name] = enter(name, "0")
				ours = append(ours, name)
			}
		}
		out := slices.Clone(ours)
		rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		out = out[:rand.N(len(out)+1)]
		for _, name := range out {
			s.Do(t, "LREM", lockstore.QueueKey("k"), 1, name)
			s.Do(t, "ZREM", timeoutsKey("k"), name)
			s.Do(t, "HDEL", ticketsKey("k"), name)
		}
		for _, name := range out {
			enter(name, tickets[name])
		}
		now := fairQueue(t, s, "k")
		mine := slices.DeleteFunc(slices.Clone(now), func(name string) bool { return tickets[name] == "" })
		others := slices.DeleteFunc(slices.Clone(now), func(name string) bool { return tickets[name] != "" })
		if !slices.Equal(mine, ours) || !slices.Equal(others, theirs) {
			t.Fatalf("%q is not made of %q and %q; back came %q", now, ours, theirs, out)
		}
	}
}

// The tickets outlast every score: who died behind waiters of Redisson is known not to be one of them, however late its turn comes.
func TestFairTicketsLast(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		s.Do(t, "HSET", "k", "holder", 1)
		var group sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		last := func() (ticket, score int64) {
			scores, err := redis.Values(s.Do(t, "ZREVRANGE", timeoutsKey("k"), 0, 0, "WITHSCORES"), nil)
			if err != nil || len(scores) != 2 {
				t.Fatal(scores, err)
			}
			score, err = redis.Int64(scores[1], nil)
			if err != nil {
				t.Fatal(err)
			}
			return pttl(t, s, ticketsKey("k")), score - redisNow(t, s)
		}
		for i := range 3 {
			redisson := &jvm{t: t, s: s, key: "k", owner: fmt.Sprint("11111111-2222-3333-4444-555555555555:", i), wait: 300000}
			redisson.acquire()
			c, _ := client(m)
			group.Go(func() { _, _ = c.Lock(ctx, Request{Key: "k", Fair: true, Blocks: true}) })
			eventually(t, 5*time.Second, "in the queue", func() bool { return len(fairQueue(t, s, "k")) == 2*i+2 })
			if ticket, score := last(); ticket < score {
				t.Errorf("behind %d of Redisson: tickets for %d ms, a score for %d", i+1, ticket, score)
			}
		}
		_, before := last()
		eventually(t, 3*queueRefresh, "a refresh", func() bool {
			ticket, score := last()
			if ticket < score {
				t.Fatalf("tickets for %d ms, a score for %d", ticket, score)
			}
			return score != before && score > 909000
		})
		cancel()
		group.Wait()
	})
}
