package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// noneHeld fails unless Redis and the engine are soon without any lock; registrations of owners with a name may stay for as long.
func noneHeld(t *testing.T, s redisServer, m *Manager) {
	t.Helper()
	eventually(t, 30*time.Second, "everything is given back", func() bool {
		return s.Do(t, "EXISTS", "a", "b", "c", "x", "y", "z").(int64) == 0 && m.Stats().Held == 0
	})
}

func TestMultiLock(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), Options{})
	ctx := context.Background()
	for _, owner := range []string{"", "job"} {
		a, _ := client(m)
		field := a.Owner()
		if owner != "" {
			field = owner
		}
		grants, err := a.MultiLock(ctx, []string{"c", "a", "b", "a"}, Request{Owner: owner, Fence: true})
		if err != nil || len(grants) != 4 || grants[1].Token != grants[3].Token || grants[1].Token == 0 {
			t.Fatal(grants, err)
		}
		// Taken in the order a, b, c, whatever the arguments' is.
		if !(grants[1].Token < grants[2].Token && grants[2].Token < grants[0].Token) {
			t.Fatal("not in canonical order: ", grants)
		}
		for _, key := range []string{"a", "b", "c"} {
			if got := fmt.Sprint(hash(t, s, key)); got != fmt.Sprintf("map[%s:1]", field) || pttl(t, s, key) < 15000 {
				t.Fatal(key, got, pttl(t, s, key))
			}
		}
		mustLock(t, a, Request{Key: "b", Owner: owner, Self: owner == ""})
		r, first := UnlockRequest{Owner: owner}, int64(2)
		if owner != "" {
			first = 3 // it has b or not
		}
		if n, err := a.MultiUnlock(ctx, []string{"a", "b", "c", "nosuch"}, r); n != first || err != nil {
			t.Fatal(n, err)
		}
		if n, err := a.MultiUnlock(ctx, []string{"b", "b"}, r); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		s.Do(t, "DEL", "redisson_lock_token:{a}", "redisson_lock_token:{b}", "redisson_lock_token:{c}")
		if owner == "" { // that of an owner with a name is answered as the first time
			_, err = a.MultiUnlock(ctx, []string{"a", "c"}, r)
			wantCode(t, err, "NOTHELD")
		}
	}
}

// What was taken before one that is refused is given back, with the owner's older holds as they were.
func TestMultiLockAllOrNone(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	m := engine(t, s.URL(), Options{})
	other, _ := client(m)
	reader, _ := client(m)
	mustLock(t, other, Request{Key: "taken"})
	mustLock(t, reader, Request{Key: "rw", Kind: Read})
	s.Do(t, "SET", "string", "x")
	for name, c := range map[string]struct {
		key  string
		r    Request
		want string
	}{
		"held, once":        {"taken", Request{}, "nil"},
		"held, waits":       {"taken", Request{Blocks: true, Block: 60}, "nil"},
		"held, with a name": {"taken", Request{Owner: "o", Blocks: true, Block: 60}, "nil"},
		"held, a lease":     {"taken", Request{Blocks: true, Block: 60, Lease: 20}, "nil"},
		"held, name, lease": {"taken", Request{Owner: "o", Lease: 5000}, "nil"},
		"another kind":      {"rw", Request{}, "LOCKKIND"},
		"no lock":           {"string", Request{Owner: "o"}, "error"},
		"a library":         {"zz", Request{}, "OWNERREQUIRED"}, // at "own"
		"no replicas":       {"z", Request{Replicas: 1, Blocks: true, Block: 2000}, "NOREPLICAS"},
	} {
		for _, before := range []Request{{}, {Lease: 60000}} {
			t.Run(fmt.Sprintf("%s, before %d", name, before.Lease), func(t *testing.T) {
				a, _ := client(m)
				own := Request{Key: "own", Owner: c.r.Owner, Lease: before.Lease}
				mustLock(t, a, own)
				a.SetLibrary(c.want == "OWNERREQUIRED")
				held := fmt.Sprint(hash(t, s, "own"))
				_, err := a.MultiLock(context.Background(), []string{c.key, "free1", "own", "free2"}, c.r)
				if got := outcomeWord(err); got != c.want {
					t.Fatalf("%q: %v, want %s", got, err, c.want)
				}
				if n := s.Do(t, "EXISTS", "free1", "free2"); n.(int64) != 0 {
					t.Fatal("taken, and not given back")
				}
				if got := fmt.Sprint(hash(t, s, "own")); got != held {
					t.Fatalf("the older hold was %s, is %s", held, got)
				}
				if ttl := pttl(t, s, "own"); before.Lease > 0 && (ttl > 60000 || ttl < 30000) {
					t.Fatalf("the older hold's lease has %d ms left", ttl)
				}
				m.holds.mu.Lock()
				for h := range a.holds.All() {
					if h.watched != (before.Lease == 0) || h.count != 1 {
						t.Errorf("%s: watched %v, %d times", h.id.Key, h.watched, h.count)
					}
				}
				m.holds.mu.Unlock()
				mustUnlock(t, a, UnlockRequest{Key: "own", Owner: c.r.Owner}, true)
			})
		}
	}
}

// A lease that is shorter than the wait for the last lock begins when that one is there.
func TestMultiLockLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: time.Second})
		for _, owner := range []string{"", "o"} {
			other, _ := client(m)
			a, lost := client(m)
			mustLock(t, other, Request{Key: "z"})
			mustLock(t, a, Request{Key: "entered", Owner: owner, Lease: 300})
			mustLock(t, a, Request{Key: "watched", Owner: owner})
			done := make(chan error)
			go func() {
				_, err := a.MultiLock(context.Background(), []string{"z", "a", "entered", "watched"},
					Request{Owner: owner, Self: owner == "", Blocks: true, Lease: 1500})
				done <- err
			}()
			time.Sleep(2500 * time.Millisecond)
			mustUnlock(t, other, UnlockRequest{Key: "z"}, true)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			m.holds.mu.Lock()
			for h := range a.holds.All() {
				left := time.Until(h.deadline)
				if h.watched != (h.id.Key == "watched") || left > 1500*time.Millisecond || left <= 0 {
					t.Errorf("%s: watched %v, %v left", h.id.Key, h.watched, left)
				}
			}
			m.holds.mu.Unlock()
			eventually(t, 10*time.Second, "the leases end", func() bool { return s.Do(t, "EXISTS", "a", "z", "entered").(int64) == 0 })
			if owner == "" {
				eventually(t, 10*time.Second, "told", func() bool { return len(lost.reasons()) == len("a:expired z:expired entered:expired ") })
			}
			_, err := a.MultiUnlock(context.Background(), []string{"a", "watched"}, UnlockRequest{Owner: owner})
			wantCode(t, err, "LOCKLOST")
			mustUnlock(t, a, UnlockRequest{Key: "watched", Owner: owner}, true) // entered twice
			if n := s.Do(t, "EXISTS", "watched").(int64); n != 0 {
				t.Fatal("still there")
			}
		}
	})
}

// A lock that is lost while a later one is waited for must not end in OK.
func TestMultiLockLosesOne(t *testing.T) {
	force := func(t *testing.T, m *Manager) {
		c, _ := client(m)
		mustUnlock(t, c, UnlockRequest{Key: "a", Force: true}, true)
	}
	for name, lose := range map[string]func(t *testing.T, s *world.Node, here, elsewhere *Manager){
		"forced here":      func(t *testing.T, _ *world.Node, here, _ *Manager) { force(t, here) },
		"forced elsewhere": func(t *testing.T, _ *world.Node, _, elsewhere *Manager) { force(t, elsewhere) },
		"deleted":          func(t *testing.T, s *world.Node, _, _ *Manager) { s.Do(t, "DEL", "a") },
		"taken by another": func(t *testing.T, s *world.Node, _, _ *Manager) {
			s.Do(t, "DEL", "a")
			s.Do(t, "HSET", "a", "stranger", 1)
		},
	} {
		for _, r := range []Request{{}, {Lease: 5000}, {Owner: "o"}, {Owner: "o", Lease: 5000}} {
			t.Run(fmt.Sprint(name, r.Owner, r.Lease), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m, m2 := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
					other, _ := client(m2)
					a, _ := client(m)
					mustLock(t, other, Request{Key: "b"})
					done := make(chan error)
					r.Blocks = true
					go func() {
						_, err := a.MultiLock(context.Background(), []string{"b", "a"}, r)
						done <- err
					}()
					eventually(t, 5*time.Second, "waits", func() bool { return m.Stats().Waiting == 1 })
					lose(t, s, m, m2)
					mustUnlock(t, other, UnlockRequest{Key: "b"}, true)
					wantCode(t, <-done, "LOCKLOST")
					s.Do(t, "HDEL", "a", "stranger")
					noneHeld(t, s, m)
				})
			})
		}
	}
}

// A client that goes while it waits leaves nothing behind.
func TestMultiLockClientGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		other, _ := client(m)
		for _, r := range []Request{{}, {Lease: 60000}, {Owner: "o"}, {Owner: "o", Lease: 60000}} {
			mustLock(t, other, Request{Key: "z"})
			a, _ := client(m)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error)
			r.Blocks = true
			go func() {
				_, err := a.MultiLock(ctx, []string{"z", "y", "x"}, r)
				done <- err
			}()
			eventually(t, 5*time.Second, "waits", func() bool { return m.Stats().Waiting == 1 })
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if n := s.Do(t, "EXISTS", "x", "y").(int64); n != 0 {
				t.Fatal(n, " locks are left")
			}
			a.Close(Gone)
			mustUnlock(t, other, UnlockRequest{Key: "z"}, true)
			noneHeld(t, s, m)
		}
	})
}

// The same call made again elsewhere stands on the first one's holds: the first gives none of them back, also when the connection that
// made it again has gone by then.
func TestMultiLockMadeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, m2 := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
		for _, second := range []*Manager{m, m2} {
			other, _ := client(m)
			mustLock(t, other, Request{Key: "z"})
			a, _ := client(m)
			b, _ := client(second)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error)
			r := Request{Owner: "o", Blocks: true}
			go func() { _, err := a.MultiLock(ctx, []string{"a", "z"}, r); done <- err }()
			eventually(t, 5*time.Second, "waits", func() bool { return m.Stats().Waiting == 1 })
			mustLock(t, b, Request{Key: "a", Owner: "o"})
			b.Close(Gone)
			b, _ = client(second)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if got := hash(t, s, "a")["o"]; got != "1" {
				t.Fatalf("the second call's lock is %q", got)
			}
			mustUnlock(t, b, UnlockRequest{Key: "a", Owner: "o"}, true)
			mustUnlock(t, other, UnlockRequest{Key: "z"}, true)
			a.Close(Gone)
			if n := s.Do(t, "EXISTS", "a", "z").(int64); n != 0 {
				t.Fatal("not free")
			}
		}
	})
}

// What a MULTILOCK has lengthened itself is given back with the rest.
func TestMultiLockGivesBackWhatItLengthened(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		for _, owner := range []string{"", "o"} {
			c, _ := client(m)
			b := &multiLock{c: c, r: Request{Owner: owner, Lease: 60000}, began: time.Now()}
			for _, key := range []string{"a", "b"} {
				if err := b.take(context.Background(), key, true); err != nil {
					t.Fatal(err)
				}
			}
			for _, taken := range b.taken {
				if err := b.finishTaken(context.Background(), taken); err != nil {
					t.Fatal(err)
				}
			}
			b.giveBack()
			if n := s.Do(t, "EXISTS", "a", "b").(int64); n != 0 {
				t.Errorf("%q: %d locks are left", owner, n)
			}
		}
	})
}

// BLOCK is for all locks together.
func TestMultiLockBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		first, _ := client(m)
		last, _ := client(m)
		a, _ := client(m)
		mustLock(t, first, Request{Key: "a", Lease: 2000})
		mustLock(t, last, Request{Key: "b"})
		began := time.Now()
		_, err := a.MultiLock(context.Background(), []string{"a", "b"}, Request{Blocks: true, Block: 3000})
		if took := time.Since(began); !errors.Is(err, ErrNotAcquired) || took < 2900*time.Millisecond || took > 4700*time.Millisecond {
			t.Fatal(err, took)
		}
	})
}

// None is left locked because of another's error, and a loss is told before anything else.
func TestMultiUnlockGoesOn(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), Options{})
	a, _ := client(m)
	ctx := context.Background()
	for _, c := range []struct {
		spoil func()
		want  string
	}{
		{func() { s.Do(t, "DEL", "b") }, "LOCKLOST"},
		{func() { s.Do(t, "DEL", "b"); s.Do(t, "DEL", "c"); s.Do(t, "SET", "c", "x") }, "LOCKLOST"},
		{func() { s.Do(t, "DEL", "c"); s.Do(t, "SET", "c", "x") }, "error"},
	} {
		if _, err := a.MultiLock(ctx, []string{"a", "b", "c", "d"}, Request{}); err != nil {
			t.Fatal(err)
		}
		c.spoil()
		if _, err := a.MultiUnlock(ctx, []string{"d", "c", "b", "a"}, UnlockRequest{}); outcomeWord(err) != c.want {
			t.Fatalf("%v, want %s", err, c.want)
		}
		if n := s.Do(t, "EXISTS", "a", "d").(int64); n != 0 {
			t.Fatal("left locked")
		}
		s.Do(t, "FLUSHALL")
		a.Reset()
		eventually(t, 30*time.Second, "forgotten", func() bool { return m.Stats().Held == 0 })
	}
}

// Two engines, three keys in every order: nobody is ever stuck, and nobody meets anybody inside.
func TestMultiLockHammer(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	m, m2 := engine(t, s.URL(), Options{}), engine(t, s.URL(), Options{})
	orders := [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c"}, {"c", "a"}, {"b", "a"}, {"c", "a", "b"}}
	inside := map[string]*sync.Mutex{"a": {}, "b": {}, "c": {}}
	var all sync.WaitGroup
	rounds := 40
	for i := range 12 {
		c, _ := client([]*Manager{m, m2}[i%2])
		all.Add(1)
		go func() {
			defer all.Done()
			for n := range rounds {
				keys := orders[(i+n)%len(orders)]
				r := Request{Blocks: true, Block: int64(n % 2 * 240000)}
				if n%3 == 0 {
					r.Lease = 60000
				}
				if _, err := c.MultiLock(context.Background(), keys, r); err != nil {
					t.Error(err)
					return
				}
				for _, key := range keys {
					if !inside[key].TryLock() {
						t.Error("two in ", key)
					}
				}
				for _, key := range slices.Backward(keys) {
					inside[key].Unlock()
				}
				if freed, err := c.MultiUnlock(context.Background(), keys, UnlockRequest{}); err != nil || freed != int64(len(keys)) {
					t.Error(freed, err)
					return
				}
			}
		}()
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(5 * time.Minute):
		t.Fatal("stuck")
	}
	noneHeld(t, s, m)
	noneHeld(t, s, m2)
}

// An owner that has the locks through another proxy, for a time, has them for as long as the longest of both wanted, and nobody
// renews them.
func TestMultiLockAgainElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		for _, leases := range [][]int64{{1000, 1000}, {500, 5000, 500}, {5000, 500}} {
			engines := []*Manager{bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})}
			longest := int64(0)
			for i, lease := range leases {
				c, _ := client(engines[i%2])
				longest = max(longest, lease)
				if _, err := c.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: "o", Lease: lease}); err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"a", "b"} {
					if ttl := pttl(t, s, key); ttl > longest || ttl < longest-400 {
						t.Errorf("%v, after the call %d: %s has %d ms", leases, i+1, key, ttl)
					}
				}
			}
			s.Do(t, "DEL", "a", "b")
		}
	})
}
