package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func texts(t *testing.T, s redisServer, args ...any) []string {
	t.Helper()
	out, err := redis.Strings(s.Do(t, args...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func fairQueue(t *testing.T, s redisServer, key string) []string {
	t.Helper()
	return texts(t, s, "LRANGE", lockstore.QueueKey(key), 0, -1)
}

// order notes who was granted, in order.
type order struct {
	mu  sync.Mutex
	who []string
}

func (o *order) add(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.who = append(o.who, name)
}

func (o *order) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.who, " ")
}

// queueUp has c wait in the fair queue, and returns when it does. When it is granted it says so and gives the lock back.
func queueUp(t *testing.T, s redisServer, group *sync.WaitGroup, c *Client, o *order, name string, r Request) {
	t.Helper()
	before := len(fairQueue(t, s, r.Key))
	r.Fair, r.Blocks = true, true
	group.Go(func() {
		if _, err := c.Lock(context.Background(), r); err != nil {
			o.add(name + ":" + err.Error())
			return
		}
		o.add(name)
		time.Sleep(2 * time.Millisecond)
		if _, err := c.Unlock(context.Background(), UnlockRequest{Key: r.Key, Owner: r.Owner}); err != nil {
			t.Error(name, err)
		}
	})
	eventually(t, 30*time.Second, name+" in the queue", func() bool { return len(fairQueue(t, s, r.Key)) == before+1 })
}

// nothingLeft says that no key of any lock is there.
func nothingLeft(t *testing.T, s redisServer) {
	t.Helper()
	var left []string
	for range 3000 {
		left = texts(t, s, "KEYS", "*")
		if len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, key := range left {
		t.Errorf("left: %s %v", key, s.Do(t, "PTTL", key))
	}
}

// TestFairBytes: what a fair queue is in Redis.
func TestFairBytes(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	fairBytes(t, s, engine(t, s.URL(), ManagerOptions{}), func([]string) {})
}

// TestFairRefresh: the score of who waits is put off again and again.
func TestFairRefresh(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		fairBytes(t, s, bubbleEngine(t, w, s, "one", ManagerOptions{}), func(owners []string) {
			for range 10 {
				before, _ := redis.Int64(s.Do(t, "ZSCORE", "redisson_lock_timeout:{k}", owners[2]), nil)
				eventually(t, 2*queueRefresh, "a refresh", func() bool {
					now, _ := redis.Int64(s.Do(t, "ZSCORE", "redisson_lock_timeout:{k}", owners[2]), nil)
					return now > before
				})
			}
		})
	})
}

// fairBytes has three wait for a lock, looks at the queue, has waiting done to them, and frees the lock.
func fairBytes(t *testing.T, s redisServer, m *Manager, waiting func(owners []string)) {
	holder, _ := client(m)
	mustLock(t, holder, Request{Key: "k", Fair: true})
	if got := texts(t, s, "KEYS", "*"); len(got) != 1 {
		t.Fatal(got)
	}
	var group sync.WaitGroup
	var o order
	var want []string
	for i := range 3 {
		c, _ := client(m)
		queueUp(t, s, &group, c, &o, fmt.Sprint(i), Request{Key: "k"})
		want = append(want, c.Owner())
	}
	if got := texts(t, s, "LRANGE", "redisson_lock_queue:{k}", 0, -1); !slices.Equal(got, want) {
		t.Fatal(got, want)
	}
	for _, owner := range want {
		score, err := redis.Int64(s.Do(t, "ZSCORE", "redisson_lock_timeout:{k}", owner), nil)
		if left := score - redisNow(t, s); err != nil || left > 10000 || left <= 0 {
			t.Errorf("a score %d ms from now, %v", left, err)
		}
	}
	other, _ := client(m)
	for _, r := range []Request{{Key: "k"}, {Key: "k", Fair: true}} {
		if _, err := other.Lock(context.Background(), r); !errors.Is(err, ErrNotAcquired) {
			t.Error(err)
		}
	}
	if got := fairQueue(t, s, "k"); len(got) != 3 {
		t.Error("a try stands in the queue", got)
	}
	waiting(want)
	mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
	group.Wait()
	if o.String() != "0 1 2" {
		t.Error(o.String())
	}
	nothingLeft(t, s)
}

// Waiters of two proxies and of Redisson stand in one order.
func TestFairOrder(t *testing.T) {
	s := testredis.Start(t)
	options := ManagerOptions{Poll: time.Minute}
	engines := []*Manager{engine(t, s.URL(), options), engine(t, s.URL(), options)}
	holder, _ := client(engines[0])
	mustLock(t, holder, Request{Key: "k"})
	var group sync.WaitGroup
	var o order
	want := []string{}
	for i := range 61 { // the last is ours: Redisson tells nobody when the queue is empty
		name := fmt.Sprint(i)
		want = append(want, name)
		switch i % 3 {
		case 0, 1:
			c, _ := client(engines[i%2])
			r := Request{Key: "k"}
			if i%7 == 0 {
				r.Owner, r.Lease = "owner "+name, 30_000
			}
			queueUp(t, s, &group, c, &o, name, r)
		case 2:
			j := &jvm{t: t, s: s, key: "k", owner: "11111111-2222-3333-4444-555555555555:" + name, wait: 300000}
			if j.acquire() {
				t.Fatal("a held lock was given")
			}
			listen := redis.PubSubConn{Conn: s.Dial(t)}
			if err := listen.Subscribe(lockstore.ChannelOf("k") + ":" + j.owner); err != nil {
				t.Fatal(err)
			}
			listen.Receive()
			group.Go(func() {
				for !j.acquire() {
					listen.ReceiveWithTimeout(time.Minute)
				}
				o.add(name)
				j.unlock()
			})
		}
	}
	// A newcomer by LOCK is not let in before them.
	plain, _ := client(engines[1])
	group.Go(func() {
		if _, err := plain.Lock(context.Background(), Request{Key: "k", Blocks: true}); err != nil {
			t.Error(err)
		}
		o.add("plain")
		plain.Close(Gone)
	})
	eventually(t, 30*time.Second, "it waits", func() bool { return engines[1].lines.inFront(Request{Blocks: true}, lockstore.ID{Key: "k"}) })
	began := time.Now()
	mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
	group.Wait()
	if got := o.String(); got != strings.Join(want, " ")+" plain" {
		t.Error(got)
	}
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("it took %v: not by messages", took)
	}
	nothingLeft(t, s)
}

// A waiter that gives up is out of the queue at once, and one whose BLOCK has run out a moment later; when it was its turn, the next one is told.
func TestFairLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Minute}), bubbleEngine(t, w, s, "two", ManagerOptions{Poll: time.Minute})
		holder, _ := client(m)
		mustLock(t, holder, Request{Key: "k"})
		ctx, cancel := context.WithCancel(context.Background())
		quitter, _ := client(m)
		ended := make(chan error, 2)
		go func() {
			_, err := quitter.Lock(ctx, Request{Key: "k", Fair: true, Blocks: true})
			ended <- err
		}()
		eventually(t, 5*time.Second, "one in the queue", func() bool { return len(fairQueue(t, s, "k")) == 1 })
		late, _ := client(n)
		go func() {
			_, err := late.Lock(context.Background(), Request{Key: "k", Fair: true, Blocks: true, Block: 300})
			ended <- err
		}()
		eventually(t, 5*time.Second, "two in the queue", func() bool { return len(fairQueue(t, s, "k")) == 2 })
		if err := <-ended; !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		eventually(t, 2*placeKept, "one is left", func() bool { return slices.Equal(fairQueue(t, s, "k"), []string{quitter.Owner()}) })
		var group sync.WaitGroup
		var o order
		stays, _ := client(n)
		queueUp(t, s, &group, stays, &o, "stays", Request{Key: "k"})
		// The lock goes without a message, as a lease that is over: then the first goes.
		s.Do(t, "DEL", "k")
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		group.Wait()
		if o.String() != "stays" {
			t.Error(o.String())
		}
		nothingLeft(t, s)
	})
}

// The waiters of a proxy that died block the others for some seconds, not for Redisson's minutes, even behind one of its own.
func TestFairGhosts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
		holder, _ := client(m)
		mustLock(t, holder, Request{Key: "k"})
		redisson := &jvm{t: t, s: s, key: "k", owner: "11111111-2222-3333-4444-555555555555:1", wait: 300000}
		if redisson.acquire() {
			t.Fatal("a held lock was given")
		}
		// As refresh leaves it, behind one waiter of Redisson.
		for i := range 20 {
			ghost := fmt.Sprintf("99999999-2222-3333-4444-555555555555:%d", i)
			s.Do(t, "RPUSH", lockstore.QueueKey("k"), ghost)
			s.Do(t, "ZADD", timeoutsKey("k"), redisNow(t, s)+310000, ghost)
			s.Do(t, "HSET", ticketsKey("k"), ghost, fmt.Sprintf("%d:%d", 100+i, redisNow(t, s)))
		}
		var group sync.WaitGroup
		var o order
		c, _ := client(n)
		queueUp(t, s, &group, c, &o, "behind", Request{Key: "k"})
		mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
		began := time.Now()
		if !redisson.acquire() {
			t.Fatal("it was its turn")
		}
		redisson.unlock()
		group.Wait()
		took := time.Since(began)
		t.Logf("20 ghosts blocked for %v", took)
		if o.String() != "behind" || took > 20*time.Second || took < 5*time.Second {
			t.Errorf("%s after %v", o.String(), took)
		}
		nothingLeft(t, s)
	})
}

// A live waiter that was taken out of the queue, by a clock that is ahead or by hand, comes back to its place.
func TestFairComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		holder, _ := client(m)
		mustLock(t, holder, Request{Key: "k"})
		var group sync.WaitGroup
		var o order
		var owners []string
		for i := range 4 {
			c, _ := client(m)
			queueUp(t, s, &group, c, &o, fmt.Sprint(i), Request{Key: "k"})
			owners = append(owners, c.Owner())
		}
		ahead := &jvm{t: t, s: s, key: "k", owner: "11111111-2222-3333-4444-555555555555:1", wait: 300000, skew: 400000}
		if ahead.acquire() {
			t.Fatal("a held lock was given")
		}
		if got := fairQueue(t, s, "k"); len(got) != 1 {
			t.Fatal("its clock did not put them out", got)
		}
		eventually(t, 3*queueRefresh, "all back", func() bool { return slices.Equal(fairQueue(t, s, "k"), append(slices.Clone(owners), ahead.owner)) })
		s.Do(t, "LREM", lockstore.QueueKey("k"), 1, owners[1])
		s.Do(t, "ZREM", timeoutsKey("k"), owners[2])
		eventually(t, 3*queueRefresh, "mended", func() bool {
			scored := texts(t, s, "ZRANGE", timeoutsKey("k"), 0, -1)
			return slices.Equal(fairQueue(t, s, "k"), append(slices.Clone(owners), ahead.owner)) && len(scored) == 5
		})
		mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
		group.Wait()
		if o.String() != "0 1 2 3" {
			t.Error(o.String())
		}
	})
}

// What blocks all others for ever in Redisson is mended: an entry without a score, a score without an entry.
func TestFairMends(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		s.Do(t, "RPUSH", lockstore.QueueKey("k"), "nobody")
		s.Do(t, "ZADD", timeoutsKey("k"), redisNow(t, s)+300000, "no entry")
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Fair: true, Blocks: true})
		s.Do(t, "RPUSH", lockstore.QueueKey("k"), "nobody")
		var group sync.WaitGroup
		var o order
		b, _ := client(m)
		queueUp(t, s, &group, b, &o, "b", Request{Key: "k"})
		s.Do(t, "RPUSH", lockstore.QueueKey("k"), "nobody", b.Owner())
		eventually(t, 3*queueRefresh, "the queue is mended", func() bool {
			return slices.Equal(fairQueue(t, s, "k"), []string{b.Owner()}) && slices.Equal(texts(t, s, "ZRANGE", timeoutsKey("k"), 0, -1), []string{b.Owner()})
		})
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		group.Wait()
		nothingLeft(t, s)
	})
}

// Something else at the queue's keys is told, and keeps nobody from LOCK and UNLOCK.
func TestFairWrongType(t *testing.T) {
	for _, key := range []string{lockstore.QueueKey("k"), timeoutsKey("k"), ticketsKey("k")} {
		s := testredis.Start(t)
		m := engine(t, s.URL(), ManagerOptions{})
		s.Do(t, "SET", key, "somebody's")
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		_, err := b.Lock(context.Background(), Request{Key: "k", Fair: true, Blocks: true, Block: 200})
		if err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: %v", key, err)
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		if got := texts(t, s, "KEYS", "*"); !slices.Equal(got, []string{key}) {
			t.Error(got)
		}
	}
}

// One owner that waits twice is granted twice, and its one place is kept until the last has what it wants.
func TestFairOwnerTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		holder, _ := client(m)
		mustLock(t, holder, Request{Key: "k"})
		results := make(chan error, 2)
		for _, block := range []int64{100, 0} {
			c, _ := client(m)
			go func() {
				_, err := c.Lock(context.Background(), Request{Key: "k", Fair: true, Blocks: true, Block: block, Owner: "job", Lease: 30_000})
				results <- err
			}()
		}
		if err := <-results; !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		if got := fairQueue(t, s, "k"); !slices.Equal(got, []string{"job"}) {
			t.Fatal(got)
		}
		mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	})
}

// A waiter that becomes the head of its line after it has looked whether it is, and before it begins to wait, listens as
// the head all the same.
func TestHeadInTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := passing(passingStore{})
		r := Request{Key: "k", Fair: true, Blocks: true}
		first := newWaiter(t.Context(), m.NewClient(ClientInfo{ID: 1}), r, time.Now())
		between := newWaiter(t.Context(), m.NewClient(ClientInfo{ID: 2}), r, time.Now())
		next := newWaiter(t.Context(), m.NewClient(ClientInfo{ID: 3}), r, time.Now())
		m.lines.join(first, 0)
		m.lines.join(between, 0)
		m.lines.join(next, 0)
		m.lines.tried(first, Grant{}, nil)
		if err := next.listen(t.Context(), nil); err != nil || next.hears != nil {
			t.Fatal(err, next.hears)
		}
		m.lines.leave(between, false)
		m.lines.leave(first, true)
		began := time.Now()
		next.next(t.Context(), nil)
		if waited := time.Since(began); waited > headAfter {
			t.Errorf("it waited for %v", waited)
		}
		m.lines.leave(next, false)
		synctest.Wait()
	})
}
