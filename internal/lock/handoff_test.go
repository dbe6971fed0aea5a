package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// crowd has n clients of m take and give back a lock by turns until stop says so; pick chooses what each takes. It returns
// how many grants there were, and waits for its clients.
func crowd(t *testing.T, m *Manager, n int, pick func() Request, section time.Duration, stop func() bool) *atomic.Int64 {
	t.Helper()
	var grants atomic.Int64
	var group sync.WaitGroup
	for range n {
		c, _ := client(m)
		group.Go(func() {
			defer c.Close(Gone)
			for !stop() {
				r := pick()
				_, err := c.Lock(context.Background(), r)
				if err == nil {
					grants.Add(1)
					time.Sleep(section)
					_, err = c.Unlock(context.Background(), UnlockRequest{Key: r.Key})
				}
				if err != nil && !errors.Is(err, ErrNotAcquired) {
					t.Error(err)
					return
				}
			}
		})
	}
	t.Cleanup(group.Wait)
	return &grants
}

// One script moves a lock from one client of a proxy to the next, however many wait. Nearly always, that is: who has just become the
// head of a line cannot be handed the lock until its goroutine has run once more, and of scripts sent in one instant the simulated
// Redis does first whichever comes first in the alphabet, a hand-off before the end of another's read. Such a lock is freed with a
// message. How often depends on the order in which goroutines run; without hand-off it is two scripts a grant and more.
func TestHandoffScripts(t *testing.T) {
	for name, pick := range map[string]func() Request{
		"plain": func() Request { return Request{Key: "k", Blocks: true} },
		"write": func() Request { return Request{Key: "k", Kind: Write, Blocks: true} },
		"mixed": func() Request { return Request{Key: "k", Kind: []Kind{Read, Write}[rand.N(2)], Blocks: true} },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				ran := scriptsOf(s)
				m := bubbleEngine(t, w, s, "one", ManagerOptions{})
				var done atomic.Bool
				grants := crowd(t, m, 128, pick, 0, done.Load)
				eventually(t, 30*time.Second, "a start", func() bool { return grants.Load() > 256 })
				from, before := grants.Load(), ran.Load()
				eventually(t, time.Minute, "600 grants", func() bool { return grants.Load() > from+600 })
				count, scripts := grants.Load()-from, ran.Load()-before
				done.Store(true)
				if per := float64(scripts) / float64(count); per > 1.6 {
					t.Errorf("%.3f scripts a grant (%d for %d)", per, scripts, count)
				} else {
					t.Logf("%.3f scripts a grant", per)
				}
			})
		})
	}
}

// Ninety clients of one proxy leave turns to ten of another.
func TestHandoffLeavesTurns(t *testing.T) {
	for _, kind := range []Kind{Plain, Write} {
		t.Run(kind.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m, n := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Minute}), bubbleEngine(t, w, s, "two", ManagerOptions{Poll: time.Minute})
				var done atomic.Bool
				pick := func() Request { return Request{Key: "k", Kind: kind, Blocks: true} }
				many := crowd(t, m, 90, pick, 0, done.Load)
				few := crowd(t, n, 10, pick, 0, done.Load)
				eventually(t, 2*time.Minute, "1,000 grants", func() bool { return many.Load()+few.Load() >= 1000 })
				a, b := many.Load(), few.Load()
				done.Store(true)
				t.Logf("the ninety %d, the ten %d", a, b)
				if float64(b) < 0.05*float64(a+b) {
					t.Errorf("the ten had %d of %d", b, a+b)
				}
			})
		})
	}
}

// Whoever is gone, or late, when the lock comes to it does not keep it.
func TestHandoffToTheDead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Minute})
		for round := range 200 {
			key := fmt.Sprint("k", round)
			holder, _ := client(m)
			mustLock(t, holder, Request{Key: key})
			var group sync.WaitGroup
			var granted atomic.Int64
			ctx, cancel := context.WithCancel(context.Background())
			for i := range 6 {
				c, _ := client(m)
				group.Go(func() {
					its, r := context.Background(), Request{Key: key, Blocks: true}
					switch i {
					case 0, 1, 3:
						its = ctx // hangs up
					case 2:
						r.Block = 1 + int64(round%5) // gives up
					}
					if _, err := c.Lock(its, r); err == nil {
						granted.Add(1)
					}
					c.Close(Gone)
				})
			}
			eventually(t, 10*time.Second, "a line", func() bool { return m.Stats().Waiting > 3 })
			go cancel()
			mustUnlock(t, holder, UnlockRequest{Key: key}, true)
			group.Wait()
			if granted.Load() < 2 {
				t.Fatalf("round %d: the two that stay were not both granted", round)
			}
			eventually(t, 5*time.Second, key+" free", func() bool { return s.Do(t, "EXISTS", key).(int64) == 0 })
			cancel()
		}
		eventually(t, 5*time.Second, "no lock is thought to be held", func() bool { return m.Stats().Held == 0 })
	})
}

// settledDown says that somebody waits for a key, heard, and with nothing under way.
func settledDown(m *Manager, key string) bool {
	m.lines.mu.Lock()
	defer m.lines.mu.Unlock()
	l := m.lines.byKey[lockstore.LineKey{Key: key}]
	return l != nil && l.waiters.Front().Value.(*waiter).state == parked && time.Until(l.tryAt) > 0
}

// What the next waiter asked for is what it gets: lease, token, registration, count.
func TestHandoffGivesWhatWasAskedFor(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{Poll: time.Minute})
	a, _ := client(m)
	for i, c := range []struct {
		r       Request
		ttl     int64
		watched int64
	}{
		{Request{Blocks: true}, 30000, 0}, // Redis learns the script
		{Request{Blocks: true, Fence: true}, 30000, 0},
		{Request{Blocks: true, Lease: 5000}, 5000, 0},
		{Request{Blocks: true, Owner: "job", Lease: 30_000}, 30000, 1},
		{Request{Blocks: true, Owner: "job", Lease: 7000, Fence: true}, 7000, 1},
	} {
		// Each has a lock of its own: the message of the UNLOCK before may come late, and would wake who waits here.
		key := fmt.Sprint("k", i)
		c.r.Key = key
		first := mustLock(t, a, Request{Key: key, Fence: true})
		b, _ := client(m)
		got := make(chan Grant, 1)
		go func() {
			g, err := b.Lock(context.Background(), c.r)
			if err != nil {
				t.Error(err)
			}
			got <- g
		}()
		eventually(t, 30*time.Second, "it waits", func() bool { return settledDown(m, key) })
		before, began := scriptsRun(t, s), time.Now()
		mustUnlock(t, a, UnlockRequest{Key: key}, true)
		g := <-got
		if ran := scriptsRun(t, s) - before; ran != 1 && i > 0 && time.Since(began) < lockstore.Allowed { // Redis refuses one that comes later, which is sent again
			t.Errorf("%+v: %d scripts", c.r, ran)
		}
		owner := c.r.Owner
		if owner == "" {
			owner = b.Owner()
		}
		if have := fmt.Sprint(hash(t, s, key)); have != fmt.Sprintf("map[%s:1]", owner) {
			t.Errorf("%+v: %s", c.r, have)
		}
		if ttl := pttl(t, s, key); ttl > c.ttl+2 || ttl < c.ttl-time.Since(began).Milliseconds()-1 {
			t.Errorf("%+v: TTL %d", c.r, ttl)
		}
		if c.r.Fence && g.Token <= first.Token {
			t.Errorf("token %d after %d", g.Token, first.Token)
		}
		mustUnlock(t, b, UnlockRequest{Key: key, Owner: c.r.Owner}, true)
	}
}

// A grant that fails within the hand-off leaves the lock free, and everybody told.
func TestHandoffGrantFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Minute})
		a, _ := client(m)
		b, _ := client(m)
		c, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		failed, got := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := b.Lock(context.Background(), Request{Key: "k", Blocks: true, Fence: true})
			failed <- err
		}()
		eventually(t, 5*time.Second, "it waits", func() bool { return m.Stats().Waiting == 1 })
		go func() {
			_, err := c.Lock(context.Background(), Request{Key: "k", Blocks: true})
			got <- err
		}()
		eventually(t, 5*time.Second, "both wait", func() bool { return m.Stats().Waiting == 2 })
		s.Do(t, "SET", lockstore.TokenKey("k"), "no number")
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		if err := <-failed; err == nil {
			t.Error("a token was given that cannot be")
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		mustUnlock(t, c, UnlockRequest{Key: "k"}, true)
		if keys, _ := redis.Strings(s.Do(t, "KEYS", "*"), nil); len(keys) != 1 {
			t.Error(keys)
		}
	})
}

// A head that is woken while it is somebody else's turn, as by the message that says so, holds back all the same.
func TestHandoffHoldsBackThoughWoken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Minute})
		holder, _ := client(m)
		mustLock(t, holder, Request{Key: "k"})
		got := make(chan time.Time, 1)
		c, _ := client(m)
		go func() {
			if _, err := c.Lock(context.Background(), Request{Key: "k", Blocks: true}); err != nil {
				t.Error(err)
			}
			got <- time.Now()
		}()
		eventually(t, 5*time.Second, "it waits", func() bool { return settledDown(m, "k") })
		s.Do(t, "DEL", "k")
		m.lines.mu.Lock()
		l := m.lines.byKey[lockstore.LineKey{Key: "k"}]
		l.holdBack = time.Now().Add(300 * time.Millisecond)
		until := l.holdBack
		m.lines.mu.Unlock()
		l.Wake()
		select {
		case at := <-got:
			if at.Before(until) {
				t.Errorf("it came %v too soon", until.Sub(at))
			}
		case <-time.After(10 * time.Second):
			t.Error("it was not woken after that")
		}
	})
}

// takeAsRedisson takes a free plain lock, and leaveAsRedisson gives it back: KEYS lock, channel.
var (
	takeAsRedisson = redis.NewScript(2, `
if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('hset', KEYS[1], 'somebody else', 1)
return redis.call('pexpire', KEYS[1], 30000)`)
	leaveAsRedisson = redis.NewScript(2, `redis.call('del', KEYS[1]) return redis.call('publish', KEYS[2], '0')`)
)

// Who needs longer than our first pause from the message to its try, as over a slow network or in a busy JVM, has its turns, too.
func TestHandoffWaitsForTheSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		const rounds, slowness = 30, 8 * time.Millisecond
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Minute})
		var done atomic.Bool
		grants := crowd(t, m, 20, func() Request { return Request{Key: "k", Blocks: true} }, 2*time.Millisecond, done.Load)
		defer done.Store(true)
		eventually(t, 10*time.Second, "a crowd", func() bool { return grants.Load() > 100 })
		c, listen := dialNode(t, w, s), redis.PubSubConn{Conn: dialNode(t, w, s)}
		if err := listen.Subscribe(lockstore.ChannelOf("k")); err != nil {
			t.Fatal(err)
		}
		told, heard := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(heard)
			for {
				if _, over := listen.ReceiveWithTimeout(time.Minute).(error); over {
					return
				}
				retry.Wake(told)
			}
		}()
		defer func() { _ = listen.Close(); <-heard }()
		var took []time.Duration
		began := time.Now()
		for end := began.Add(time.Minute); len(took) < rounds && time.Now().Before(end); {
			<-told
			time.Sleep(slowness)
			if won, err := redis.Int(takeAsRedisson.Do(c, "k", lockstore.ChannelOf("k"))); err != nil {
				t.Fatal(err)
			} else if won == 1 {
				took = append(took, time.Since(began))
				if _, err := leaveAsRedisson.Do(c, "k", lockstore.ChannelOf("k")); err != nil {
					t.Fatal(err)
				}
				began = time.Now()
			}
		}
		slices.Sort(took)
		if len(took) < rounds {
			t.Fatalf("%d turns in a minute", len(took))
		}
		t.Logf("median %v, most %v", took[rounds/2], took[rounds-1])
		if took[rounds/2] > time.Second {
			t.Errorf("half of the turns took longer than %v", took[rounds/2])
		}
	})
}
