package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMultiLock(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	ctx := context.Background()
	for _, owner := range []string{"", "job"} {
		a, _ := client(m)
		field := a.Owner()
		if owner != "" {
			field = owner
		}
		r := Request{Owner: owner, Fence: true}
		if owner != "" {
			r.Lease = 60_000
		}
		grants, err := a.MultiLock(ctx, []string{"c", "a", "b", "a"}, r)
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
		mustLock(t, a, Request{Key: "b", Owner: owner, Lease: r.Lease, Self: owner == ""})
		u, first := UnlockRequest{Owner: owner}, int64(2)
		if owner != "" {
			first = 3 // it has b or not
		}
		if n, err := a.MultiUnlock(ctx, []string{"a", "b", "c", "nosuch"}, u); n != first || err != nil {
			t.Fatal(n, err)
		}
		if owner == "" {
			if n, err := a.MultiUnlock(ctx, []string{"b", "b"}, u); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		s.Do(t, "DEL", "redisson_lock_token:{a}", "redisson_lock_token:{b}", "redisson_lock_token:{c}")
		_, err = a.MultiUnlock(ctx, []string{"a", "b", "c"}, u)
		wantCode(t, err, "NOTHELD")
	}
}

// What was taken before one that is refused is given back, with what a named owner had before as it was.
func TestMultiLockAllOrNone(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
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
		"held, with a name": {"taken", Request{Owner: "o", Lease: 60_000, Blocks: true, Block: 60}, "nil"},
		"held, a lease":     {"taken", Request{Blocks: true, Block: 60, Lease: 20}, "nil"},
		"held, name, lease": {"taken", Request{Owner: "o", Lease: 5000}, "nil"},
		"another kind":      {"rw", Request{}, "LOCKKIND"},
		"no lock":           {"string", Request{Owner: "o", Lease: 5000}, "error"},
		"no replicas":       {"z", Request{Replicas: 1, Blocks: true, Block: 2000}, "NOREPLICAS"},
		"no name's":         {"z", Request{Owner: "o", Lease: 5000, Replicas: 1}, "NOREPLICAS"},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := client(m)
			keys := []string{c.key, "free1", "free2"}
			if c.r.Owner != "" {
				mustLock(t, a, Request{Key: "own", Owner: "o", Lease: 60_000})
				keys = append(keys, "own")
			}
			held := fmt.Sprint(hash(t, s, "own"))
			_, err := a.MultiLock(context.Background(), keys, c.r)
			if got := outcomeWord(err); got != c.want {
				t.Fatalf("%q: %v, want %s", got, err, c.want)
			}
			if n := s.Do(t, "EXISTS", "free1", "free2"); n.(int64) != 0 || a.Held() != 0 {
				t.Fatal("taken, and not given back")
			}
			if got := fmt.Sprint(hash(t, s, "own")); got != held {
				t.Fatalf("the older hold was %s, is %s", held, got)
			}
			if c.r.Owner == "" {
				return
			}
			if ttl := pttl(t, s, "own"); ttl > 60_010 || ttl < 30_000 {
				t.Fatalf("the older hold's lease has %d ms left", ttl)
			}
			mustUnlock(t, a, UnlockRequest{Key: "own", Owner: "o"}, true)
		})
	}
}

// A connection that holds one of the locks already, on whichever side, gets none of them: giving back what a MULTILOCK has taken would not tell
// the two apart.
func TestMultiLockOfAHeldLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		for _, kind := range lockstore.Kinds[:3] {
			for _, lease := range []int64{0, 60_000} {
				a, lost := client(m)
				mustLock(t, a, Request{Key: "own", Kind: kind, Lease: lease})
				before := fmt.Sprint(hash(t, s, "own"))
				for _, asked := range lockstore.Kinds[:3] {
					wantCode(t, multi(a, Request{Kind: asked, Self: true}, "a", "own", "z"), "ERR")
				}
				if n := s.Do(t, "EXISTS", "a", "z").(int64); n != 0 || a.Held() != 1 || fmt.Sprint(hash(t, s, "own")) != before {
					t.Errorf("%v: %d are taken, %d held: %v", kind, n, a.Held(), hash(t, s, "own"))
				}
				mustUnlock(t, a, UnlockRequest{Key: "own", Side: kind}, true)
				if err := multi(a, Request{Kind: kind}, "a", "own"); err != nil || lost.reasons() != "" {
					t.Errorf("%v: %v, lost %q", kind, err, lost.reasons())
				}
				a.Close(Gone)
				noneHeld(t, s, m)
				eventually(t, 10*time.Second, "given back", func() bool { return s.Do(t, "EXISTS", "own").(int64) == 0 })
			}
		}
	})
}

// A lease begins when the last lock is there, also a connection's that is shorter than the wait for it.
func TestMultiLockLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: time.Second})
		for owner, lease := range map[string]int64{"": 1500, "o": 3000} {
			other, _ := client(m)
			a, lost := client(m)
			mustLock(t, other, Request{Key: "z"})
			done := make(chan error)
			go func() { done <- multi(a, Request{Owner: owner, Blocks: true, Lease: lease}, "z", "a", "b") }()
			time.Sleep(2500 * time.Millisecond)
			mustUnlock(t, other, UnlockRequest{Key: "z"}, true)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"a", "b", "z"} {
				if left := pttl(t, s, key); left > lease+10 || left < lease-200 {
					t.Errorf("%q: %s has %d ms", owner, key, left)
				}
			}
			time.Sleep(lockstore.Milliseconds(lease + 100))
			if n := s.Do(t, "EXISTS", "a", "b", "z").(int64); n > 0 {
				t.Errorf("%q: %d do not end", owner, n)
			}
			_, err := a.MultiUnlock(context.Background(), []string{"a", "b"}, UnlockRequest{Owner: owner})
			if owner != "" {
				wantCode(t, err, "NOTHELD")
				continue
			}
			wantCode(t, err, "LOCKLOST")
			if got := lost.reasons(); len(got) != len("a:expired b:expired z:expired ") {
				t.Error(got)
			}
		}
	})
}

// What a named owner had before lasts for the lease that is asked for, or longer.
func TestMultiLockOfWhatANamedOwnerHad(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		for had, want := range map[int64]int64{8_000: 25_000, 120_000: 100_000} {
			other, _ := client(m)
			a, _ := client(m)
			mustLock(t, other, Request{Key: "z"})
			mustLock(t, a, Request{Key: "had", Owner: "o", Lease: had})
			done := make(chan error)
			go func() { done <- multi(a, Request{Owner: "o", Blocks: true, Lease: 25_000}, "z", "a", "had") }()
			time.Sleep(20 * time.Second)
			mustUnlock(t, other, UnlockRequest{Key: "z"}, true)
			if err := <-done; err != nil {
				t.Error(had, err)
			}
			if left := pttl(t, s, "had"); left < want-1000 || left > want+1000 {
				t.Errorf("%d ms are left", left)
			}
			time.Sleep(26 * time.Second)
			if n := s.Do(t, "EXISTS", "a", "z").(int64); n > 0 {
				t.Errorf("%d: %d are left, %d and %d ms", had, n, pttl(t, s, "a"), pttl(t, s, "z"))
			}
			s.Do(t, "DEL", "had", "a", "z")
		}
	})
}

// What a named owner has of a lock ends when it would have, if its MULTILOCK, or its LOCK with REPLICAS, gets nothing; however often that is said.
func TestFailedLocksLengthenNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		other, _ := client(m)
		a, _ := client(m)
		for _, kind := range lockstore.Kinds {
			mustLock(t, other, Request{Key: "z", Kind: Plain})
			for name, ask := range map[string]func(r Request) error{
				"MULTILOCK": func(r Request) error { return multi(a, r, "had", "z") },
				"REPLICAS": func(r Request) error {
					r.Key, r.Replicas = "had", 1
					_, err := a.Lock(context.Background(), r)
					return err
				},
			} {
				if name == "MULTILOCK" && kind != Plain {
					continue
				}
				mustLock(t, a, Request{Key: "had", Kind: kind, Owner: "o", Lease: 8000})
				for range 5 {
					if err := ask(Request{Kind: kind, Owner: "o", Lease: 60_000}); err == nil {
						t.Error(name, "is granted")
					}
				}
				if left := pttl(t, s, "had"); left > 8002 {
					t.Errorf("%s, %v: %d ms are left", name, kind, left)
				}
				mustUnlock(t, a, UnlockRequest{Key: "had", Side: kind, Owner: "o"}, true)
			}
			mustUnlock(t, other, UnlockRequest{Key: "z"}, true)
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
		for _, r := range []Request{{}, {Lease: 5000}, {Owner: "o", Lease: 60_000}} {
			t.Run(fmt.Sprint(name, r.Owner, r.Lease), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m, m2 := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
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
					switch err := <-done; {
					case r.Owner == "":
						wantCode(t, err, "LOCKLOST")
					case name == "taken by another":
						if !errors.Is(err, ErrNotAcquired) {
							t.Error(err)
						}
					default:
						wantCode(t, err, "NOTHELD")
					}
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
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		other, _ := client(m)
		for _, r := range []Request{{}, {Lease: 60000}, {Owner: "o", Lease: 5000}, {Owner: "o", Lease: 60000}} {
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
		m, m2 := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
		for _, second := range []*Manager{m, m2} {
			other, _ := client(m)
			mustLock(t, other, Request{Key: "z"})
			a, _ := client(m)
			b, _ := client(second)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error)
			r := Request{Owner: "o", Lease: 60_000, Blocks: true}
			go func() { _, err := a.MultiLock(ctx, []string{"a", "z"}, r); done <- err }()
			eventually(t, 5*time.Second, "waits", func() bool { return m.Stats().Waiting == 1 })
			mustLock(t, b, Request{Key: "a", Owner: "o", Lease: 60_000})
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
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		for _, owner := range []string{"", "o"} {
			c, _ := client(m)
			b := &multiLock{c: c, r: Request{Owner: owner, Lease: 60000}, began: time.Now()}
			for _, key := range []string{"a", "b"} {
				if err := b.take(context.Background(), key, false); err != nil {
					t.Fatal(err)
				}
			}
			for _, taken := range b.taken {
				if err := b.settle(context.Background(), taken); err != nil {
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
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
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
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	ctx := context.Background()
	for _, c := range []struct {
		spoil func()
		want  string
	}{
		{func() { s.Do(t, "DEL", "b") }, "LOCKLOST"},
		{func() { s.Do(t, "DEL", "b"); s.Do(t, "DEL", "c"); s.Do(t, "SET", "c", "x") }, "LOCKLOST"},
		{func() { s.Do(t, "DEL", "c"); s.Do(t, "SET", "c", "x") }, "LOCKLOST"},
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
	m, m2 := engine(t, s.URL(), ManagerOptions{}), engine(t, s.URL(), ManagerOptions{})
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
			engines := []*Manager{bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})}
			longest := int64(0)
			for i, lease := range leases {
				c, _ := client(engines[i%2])
				longest = max(longest, lease)
				if _, err := c.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: "o", Lease: lease}); err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"a", "b"} {
					if ttl := pttl(t, s, key); ttl > longest+10 || ttl < longest-400 {
						t.Errorf("%v, after the call %d: %s has %d ms", leases, i+1, key, ttl)
					}
				}
			}
			s.Do(t, "DEL", "a", "b")
		}
	})
}

// What a named owner is told of a lock by another connection, while a MULTILOCK of its waits for another one, holds whatever comes of the MULTILOCK.
func TestMultiLockBesideItsOwner(t *testing.T) {
	const long = 120_000
	type how struct {
		name string
		does func(c *Client) error
	}
	renews := func(lease int64) func(c *Client) error {
		return func(c *Client) error {
			return c.Renew(context.Background(), RenewRequest{Key: "k1", Owner: "o", Lease: lease})
		}
	}
	locks := func(lease int64) func(c *Client) error {
		return func(c *Client) error {
			_, err := c.Lock(context.Background(), Request{Key: "k1", Owner: "o", Lease: lease})
			return err
		}
	}
	anew := func(c *Client) error {
		if _, err := c.Unlock(context.Background(), UnlockRequest{Key: "k1", Owner: "o"}); err != nil {
			return err
		}
		return locks(long)(c)
	}
	for _, h := range []how{
		{"RENEW EX", renews(long)}, {"LOCK EX", locks(long)}, {"UNLOCK, LOCK EX", anew},
	} {
		for _, through := range []string{"one", "two"} {
			for _, before := range []int64{0, 30_000} {
				for _, waits := range []time.Duration{7 * time.Second, 40 * time.Second} {
					for _, succeeds := range []bool{false, true} {
						if succeeds && h.name == "UNLOCK, LOCK EX" {
							continue // one of its locks was given back meanwhile
						}
						t.Run(fmt.Sprintf("%s through %s, before %d, waits %v, succeeds %v", h.name, through, before, waits, succeeds), func(t *testing.T) {
							inBubble(t, func(t *testing.T, w *world.World) {
								s := w.NewNode(bubbleAddr)
								engines := map[string]*Manager{"one": bubbleEngine(t, w, s, "one", ManagerOptions{}), "two": bubbleEngine(t, w, s, "two", ManagerOptions{})}
								a, _ := client(engines[through])
								b, _ := client(engines["one"])
								other, _ := client(engines["one"])
								mustLock(t, other, Request{Key: "k2"})
								if before > 0 {
									mustLock(t, a, Request{Key: "k1", Owner: "o", Lease: before})
								}
								r := Request{Owner: "o", Lease: waits.Milliseconds() + 1000, Blocks: true, Block: waits.Milliseconds()}
								done := make(chan error, 1)
								go func() { _, err := b.MultiLock(context.Background(), []string{"k1", "k2"}, r); done <- err }()
								time.Sleep(5 * time.Second)
								if err := h.does(a); err != nil {
									t.Fatal(err)
								}
								time.Sleep(waits - 6*time.Second)
								if succeeds {
									mustUnlock(t, other, UnlockRequest{Key: "k2"}, true)
								}
								if err := <-done; succeeds && err != nil || !succeeds && !errors.Is(err, ErrNotAcquired) {
									t.Fatal(err)
								}
								time.Sleep(30 * time.Second)
								ttl := pttl(t, s, "k1")
								if ttl < long-(waits+30*time.Second).Milliseconds() {
									t.Errorf("k1 has %d ms", ttl)
								}
								time.Sleep(time.Duration(ttl+1000) * time.Millisecond)
								if ttl := pttl(t, s, "k1"); ttl > 0 {
									t.Errorf("after its end k1 has %d ms", ttl)
								}
							})
						})
					}
				}
			}
		}
	}
}

// A lock that its owner has given back through another proxy, and takes again here, is a new hold: nothing of the former one counts any more.
func TestTakenAgainAfterAnUnlockElsewhere(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, kind := range lockstore.Kinds[:3] {
			for how, test := range map[string]struct {
				verb  func(c *Client, r Request) error
				fails bool
			}{
				"LOCK EX": {func(c *Client, r Request) error {
					r.Key, r.Lease = "k1", 20_000
					_, err := c.Lock(context.Background(), r)
					return err
				}, false},
				"MULTILOCK EX": {func(c *Client, r Request) error { r.Lease = 20_000; return multi(c, r, "k1", "k3") }, false},
				"a MULTILOCK that fails": {func(c *Client, r Request) error {
					r.Lease, r.Blocks, r.Block = 20_000, true, 15_000
					return multi(c, r, "k1", "k2")
				}, true},
			} {
				t.Run(fmt.Sprint(how, " ", kind, " quorum ", votes), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						m, n, there := twoEngines(t, w, votes)
						a, lost := client(m)
						b, _ := client(n)
						r := Request{Owner: "o", Kind: kind}
						mustLock(t, b, Request{Key: "k2", Kind: opposite(kind)})
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind, Lease: 60_000})
						mustUnlock(t, b, UnlockRequest{Key: "k1", Side: kind, Owner: "o"}, true)
						time.Sleep(time.Second)
						if err := test.verb(a, r); test.fails != (err != nil) {
							t.Fatal(err)
						}
						if test.fails == there("k1") && !(test.fails && votes) { // where its vote came late it has its lease
							t.Error("it is there:", there("k1"))
						}
						time.Sleep(15 * time.Second)
						if test.fails == there("k1") {
							t.Error("15 s later it is there:", there("k1"))
						}
						if time.Sleep(40 * time.Second); there("k1") {
							t.Error("it does not end")
						}
						if got := lost.reasons(); got != "" {
							t.Errorf("told %q", got)
						}
					})
				})
			}
		}
	}
}

// Such a new hold ends with its lease, whatever its owner says at the other proxy, and is not shortened by what fails there.
func TestTakenAgainAndNamedElsewhere(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, kind := range lockstore.Kinds[:3] {
			for name, verb := range map[string]func(c *Client, r Request) error{
				"MULTILOCK EX": func(c *Client, r Request) error { r.Lease = 5000; return multi(c, r, "k1", "k3") },
				"a MULTILOCK that fails": func(c *Client, r Request) error {
					r.Lease, r.Blocks, r.Block = 5000, true, 100
					return multi(c, r, "k1", "k2")
				},
				"REPLICAS": func(c *Client, r Request) error {
					r.Key, r.Lease, r.Replicas = "k1", 5000, 1
					_, err := c.Lock(context.Background(), r)
					return err
				},
			} {
				t.Run(fmt.Sprint(name, " ", kind, " quorum ", votes), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						m, n, there := twoEngines(t, w, votes)
						a, lost := client(m)
						b, _ := client(n)
						r := Request{Owner: "o", Kind: kind}
						mustLock(t, b, Request{Key: "k2", Kind: opposite(kind)})
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind, Lease: 60_000})
						mustUnlock(t, b, UnlockRequest{Key: "k1", Side: kind, Owner: "o"}, true)
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind, Lease: 20_000})
						err := verb(b, r)
						if time.Sleep(18 * time.Second); !there("k1") {
							t.Error("it has ended early;", err)
						}
						if time.Sleep(30 * time.Second); there("k1") {
							t.Error("it is renewed;", err)
						}
						if got := lost.reasons(); got != "" {
							t.Errorf("told %q", got)
						}
					})
				})
			}
		}
	}
}

// Such a new hold is given back if too few replicas have it; else it ends with its lease, and UNLOCK says so.
func TestTakenAgainEndsWithItsLease(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, kind := range lockstore.Kinds[:3] {
			for _, replicas := range []int64{0, 1} {
				if votes && replicas > 0 {
					continue // refused
				}
				t.Run(fmt.Sprint(kind, " quorum ", votes, " REPLICAS ", replicas), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						m, n, there := twoEngines(t, w, votes)
						a, _ := client(m)
						b, _ := client(n)
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind, Lease: 60_000})
						mustUnlock(t, b, UnlockRequest{Key: "k1", Side: kind, Owner: "o"}, true)
						_, err := a.Lock(context.Background(), Request{Key: "k1", Owner: "o", Kind: kind, Lease: 60_000, Replicas: replicas})
						if replicas > 0 {
							if !isCode(err, "NOREPLICAS") || there("k1") {
								t.Error("it is there:", there("k1"), err)
							}
							return
						}
						if time.Sleep(50 * time.Second); err != nil || !there("k1") {
							t.Error("it is not there", err)
						}
						time.Sleep(15 * time.Second)
						_, err = a.Unlock(context.Background(), UnlockRequest{Key: "k1", Owner: "o", Side: kind})
						wantCode(t, err, "NOTHELD")
					})
				})
			}
		}
	}
}

// opposite is a kind of lock that one of that kind waits for.
func opposite(kind Kind) Kind {
	return map[Kind]Kind{Plain: Plain, Read: Write, Write: Write, Limit: Limit}[kind]
}

// twoEngines are two proxies of one Redis, or of one quorum. there says whether any node has a lock.
func twoEngines(t *testing.T, w *world.World, votes bool) (m, n *Manager, there func(key string) bool) {
	t.Helper()
	if votes {
		ns := bubbleNodes(w, 3)
		times := quorum.StoreOptions{NodeTimeout: 200 * time.Millisecond} // as by default
		return ns.engine(t, "one", 0, ManagerOptions{}, times), ns.engine(t, "two", 0, ManagerOptions{}, times), func(key string) bool { return ns.holding(t, key) > 0 }
	}
	s := w.NewNode(bubbleAddr)
	return bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{}), func(key string) bool { return pttl(t, s, key) > 0 }
}

// What a verb that fails has taken is given back, also where its owner has given the lock back through another proxy shortly before, and how often
// it is said again.
func TestGivenBackAfterAnUnlockElsewhere(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for name, fails := range map[string]struct {
			verb func(c *Client, r Request) error
			code string
		}{
			"MULTILOCK": {func(c *Client, r Request) error {
				_, err := c.MultiLock(context.Background(), []string{"k1", "k2"}, r)
				return err
			}, "nil"},
			"MULTILOCK EX": {func(c *Client, r Request) error {
				r.Lease = 5000
				_, err := c.MultiLock(context.Background(), []string{"k1", "k2"}, r)
				return err
			}, "nil"},
			"REPLICAS": {func(c *Client, r Request) error {
				r.Key, r.Replicas = "k1", 1
				_, err := c.Lock(context.Background(), r)
				return err
			}, "NOREPLICAS"},
		} {
			for _, first := range []int64{5000, 20_000} { // the lease of the hold before
				t.Run(fmt.Sprint(kind, " ", name, " ", first), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						s := w.NewNode(bubbleAddr)
						a, _ := client(bubbleEngine(t, w, s, "one", ManagerOptions{}))
						b, _ := client(bubbleEngine(t, w, s, "two", ManagerOptions{}))
						other, _ := client(b.m)
						mustLock(t, other, Request{Key: "k2", Kind: opposite(kind)})
						mustLock(t, a, Request{Key: "k1", Owner: "o", Kind: kind, Lease: first})
						mustUnlock(t, b, UnlockRequest{Key: "k1", Side: kind, Owner: "o"}, true)
						for range 3 {
							if err := fails.verb(a, Request{Owner: "o", Kind: kind, Lease: 60_000}); outcomeWord(err) != fails.code {
								t.Fatal(err)
							}
							if ttl := pttl(t, s, "k1"); ttl > 0 {
								t.Error("it is held still, for", ttl)
							}
							time.Sleep(time.Second)
						}
						time.Sleep(50 * time.Second) // less than the lease that it would have
						if ttl := pttl(t, s, "k1"); ttl > 0 {
							t.Error("it has come back, for", ttl)
						}
					})
				})
			}
		}
	}
}

// A hold that another MULTILOCK of its owner has joined lasts for as long as that one was told, and is left alone by the one that has
// made it, which fails if the hold has ended when its last lock is there.
func TestMultiLockBesideAnother(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, b := range []struct {
			name          string
			first, second int64  // leases of the two
			first8        string // what the first one is told, 8 s after the second one was
			least, most   time.Duration
		}{
			{"fails", 5000, 5000, "nil", 5 * time.Second, 10 * time.Second},
			{"has ended", 5000, 5000, "NOTHELD", 5 * time.Second, 15 * time.Second},
			{"succeeds", 20_000, 10_000, "ok", 27 * time.Second, 35 * time.Second},
			{"the second asks for longer", 5000, 59_000, "ok", 57 * time.Second, 65 * time.Second},
		} {
			t.Run(fmt.Sprintf("%s, votes %v", b.name, votes), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					m, there := oneOrQuorum(t, w, votes)
					conn1, _ := client(m)
					conn2, _ := client(m)
					other, _ := client(m)
					mustLock(t, other, Request{Key: "b"})
					done := make(chan error, 1)
					go func() {
						_, err := conn1.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: "X", Lease: b.first, Blocks: true, Block: 10_000})
						done <- err
					}()
					time.Sleep(time.Second)
					began := time.Now()
					if _, err := conn2.MultiLock(context.Background(), []string{"a", "c"}, Request{Owner: "X", Lease: b.second}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(7 * time.Second)
					if b.first8 != "nil" {
						mustUnlock(t, other, UnlockRequest{Key: "b"}, true)
					}
					if err := <-done; outcomeWord(err) != b.first8 {
						t.Fatal(err)
					}
					for there("a") && time.Since(began) < b.most {
						time.Sleep(100 * time.Millisecond)
					}
					if took := time.Since(began); took < b.least || took >= b.most {
						t.Errorf("it ended after %v", took)
					}
				})
			})
		}
	}
}

// Each lock of a MULTILOCK counts once, and a MULTILOCK that is refused counts once.
func TestMultiLockCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", ManagerOptions{})
		a, _ := client(m)
		b, _ := client(m)
		if _, err := a.MultiLock(context.Background(), []string{"a", "b"}, Request{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.MultiLock(context.Background(), []string{"a", "c"}, Request{}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		if s := m.Stats(); s.Granted != 2 || s.Refused != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// What a MULTILOCK that has failed has taken is given back, and what its named owner had ends with its lease, however long Redis is away.
func TestMultiLockGivesBackLate(t *testing.T) {
	for how, c := range map[string]struct {
		owner string
		away  time.Duration
		again bool // its owner sends LOCK again meanwhile
		keys  []string
	}{
		"a named owner, Redis stalls":  {"o", 7 * time.Second, false, []string{"k", "l", "m"}},
		"a connection, Redis stalls":   {"", 7 * time.Second, false, []string{"k", "l", "m"}},
		"a named owner, Redis is away": {"o", 20 * time.Second, false, []string{"k", "m"}},
		"a connection, Redis is away":  {"", 20 * time.Second, false, []string{"k", "l", "m"}},
		"a named owner, behind a LOCK": {"o", 20 * time.Second, true, []string{"k", "m"}},
	} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m := bubbleEngine(t, w, s, "one", ManagerOptions{})
				link := w.Proxy("one").Link(s.Addr())
				other, _ := client(m)
				mustLock(t, other, Request{Key: "m"})
				b, _ := client(m)
				a := b
				if c.owner != "" {
					a, _ = client(m)
				}
				leased := Request{Key: "k", Owner: c.owner, Lease: 60_000}
				keys := c.keys
				if c.owner == "" {
					keys = keys[1:] // it may not have one of them
				} else {
					mustLock(t, a, leased)
				}
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() {
					_, err := b.MultiLock(ctx, keys, Request{Owner: c.owner, Lease: 60_000, Blocks: true})
					done <- err
				}()
				time.Sleep(time.Second)
				link.Swallow(world.Replies)
				if c.again {
					go func() { _, _ = a.Lock(context.Background(), leased) }()
					time.Sleep(10 * time.Millisecond)
				}
				cancel()
				if c.away > 10*time.Second {
					time.AfterFunc(100*time.Millisecond, link.Cut)
				}
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				time.Sleep(c.away - patience)
				link.Cut()
				link.Heal()
				time.Sleep(2 * time.Minute)
				if ttl := pttl(t, s, "k"); ttl > 0 {
					t.Errorf("k has %d ms", ttl)
				}
				if ttl := pttl(t, s, "l"); ttl > 0 {
					t.Errorf("l has %d ms", ttl)
				}
			})
		})
	}
}

// What an owner is told of a lock through another connection, while a MULTILOCK of the owner waits for that very lock, holds whatever comes of the
// MULTILOCK, and no longer.
func TestMultiLockWaitsBehindItsOwner(t *testing.T) {
	locks := func(lease int64) func(c *Client) error {
		return func(c *Client) error {
			_, err := c.Lock(context.Background(), Request{Key: "a", Owner: "X", Lease: lease, Blocks: true})
			return err
		}
	}
	for _, first := range []struct {
		name        string
		does        func(c *Client) error
		least, most time.Duration // it ends between, after the grant
	}{
		{"LOCK EX", locks(50_000), 49 * time.Second, 55 * time.Second},
		{"MULTILOCK EX", func(c *Client) error {
			_, err := c.MultiLock(context.Background(), []string{"a", "c"}, Request{Owner: "X", Lease: 50_000, Blocks: true})
			return err
		}, 49 * time.Second, 65 * time.Second},
	} {
		for _, how := range []string{"one", "two", "quorum"} {
			for _, succeeds := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, succeeds %v", first.name, how, succeeds), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						m, n, there := oneOrTwo(t, w, how)
						other, _ := client(m)
						mustLock(t, other, Request{Key: "a"})
						if !succeeds {
							mustLock(t, other, Request{Key: "b"})
						}
						told, done := make(chan error, 1), make(chan error, 1)
						conn1, _ := client(m)
						go func() { told <- first.does(conn1) }()
						eventually(t, 5*time.Second, "the first waits", func() bool { return m.Stats().Waiting == 1 })
						conn2, _ := client(n)
						go func() {
							_, err := conn2.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: "X", Lease: 5000, Blocks: true, Block: 15_000})
							done <- err
						}()
						time.Sleep(5 * time.Second)
						mustUnlock(t, other, UnlockRequest{Key: "a"}, true)
						if err := <-told; err != nil {
							t.Fatal(err)
						}
						began := time.Now()
						if err := <-done; succeeds && err != nil || !succeeds && !errors.Is(err, ErrNotAcquired) {
							t.Fatal(err)
						}
						for there("a") && time.Since(began) < first.least {
							time.Sleep(time.Second)
						}
						if took := time.Since(began); took < first.least {
							t.Errorf("it ended after %v", took)
						}
						if time.Sleep(first.most - first.least); there("a") {
							t.Error("it does not end")
						}
					})
				})
			}
		}
	}
}

// So does what a MULTILOCK is told that ends at the very moment at which another one of its owner asks for the same lock.
func TestMultiLockBesideAnEndingOne(t *testing.T) {
	for after := time.Duration(0); after < 2*time.Second; after += 50 * time.Millisecond {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, _ := bubbleSlow(t, w, s, ManagerOptions{})
			other, _ := client(m)
			mustLock(t, other, Request{Key: "c"})
			conn1, _ := client(m)
			conn2, _ := client(m)
			go func() {
				time.Sleep(after)
				_, _ = conn2.MultiLock(context.Background(), []string{"a", "c"}, Request{Owner: "X", Lease: 100})
			}()
			if _, err := conn1.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: "X", Lease: 5000}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Second)
			if pttl(t, s, "a") <= 0 {
				t.Errorf("asked for after %v it has ended early", after)
			}
			time.Sleep(40 * time.Second)
			if pttl(t, s, "a") > 0 {
				t.Errorf("asked for after %v it does not end", after)
			}
		})
	}
}

// oneOrTwo is the proxies of two connections, which may be the same, on one Redis or on a quorum, and says whether a lock is there.
func oneOrTwo(t *testing.T, w *world.World, how string) (m, n *Manager, there func(key string) bool) {
	t.Helper()
	if how != "two" {
		m, there = oneOrQuorum(t, w, how == "quorum")
		return m, m, there
	}
	s := w.NewNode(bubbleAddr)
	w.Proxy("two").Link(s.Addr()).Delay(50*time.Millisecond, 0) // the other one comes first
	return bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{}), func(key string) bool { return pttl(t, s, key) > 0 }
}

// TestMultiUnlockOfSome: what MULTIUNLOCK says when one node of a cluster is out of reach is not that nothing was done.
func TestMultiUnlockOfSome(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		k := w.NewCluster("10.0.0.1:6379", "10.0.0.2:6379")
		o := ManagerOptions{Logger: testLog()}
		seeds := upstream.ClusterTarget{Seeds: []string{"10.0.0.1:6379"}, Node: upstream.Target{Network: "tcp", Dialer: w.Proxy("one")}}
		c, err := cluster.Open(context.Background(), seeds, cluster.Options{Node: upstream.NodeOptions{Logger: o.Logger}})
		if err != nil {
			t.Fatal(err)
		}
		m := atWork(t, New(sharded.Cluster(c, ""), o), c.Close)
		a, _ := client(m)
		keys := []string{nameIn("a", 0, 2), nameIn("b", 1, 2)}
		if _, err := a.MultiLock(context.Background(), keys, Request{Owner: "job", Lease: 60_000}); err != nil {
			t.Fatal(err)
		}
		w.Proxy("one").Link(k.Nodes()[0].Addr()).Cut()
		b, _ := client(m)
		_, err = b.MultiUnlock(context.Background(), keys, UnlockRequest{Owner: "job"})
		if k.Nodes()[1].Do(t, "EXISTS", keys[1]).(int64) != 0 {
			t.Fatal("the lock on the other node was not given back")
		}
		var own *Error
		if !errors.As(err, &own) || !strings.HasPrefix(own.Text, "not released: some ") {
			t.Fatal(err)
		}
	})
}

// TestMultiLockLeaseAfterALostRenewal: a MULTILOCK ends with its lease, or with the watchdog's lease that kept its locks alive if the reply to that was
// lost. One that a LOCK through another proxy has lengthened stays.
func TestMultiLockLeaseAfterALostRenewal(t *testing.T) {
	const watchdog, lease = 6 * time.Second, 2 * time.Second
	for _, elsewhere := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world.World) {
			n := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, n, "one", ManagerOptions{Watchdog: watchdog})
			a, _ := client(m)
			other, _ := client(m)
			if _, err := other.Lock(context.Background(), Request{Key: "k2", Lease: 1500}); err != nil {
				t.Fatal(err)
			}
			link := w.Proxy("one").Link(n.Addr())
			link.Delay(20*time.Millisecond, 0)
			var renewal sync.Once
			n.Log(func(_ time.Time, _ *world.Node, command []string, _ string) {
				if slices.Contains(command, "keep") && slices.Contains(command, "k1") {
					renewal.Do(func() {
						go func() {
							link.Swallow(world.Replies)
							time.Sleep(50 * time.Millisecond)
							link.Cut()
							link.Heal()
						}()
					})
				}
			})
			if elsewhere {
				c, _ := client(bubbleEngine(t, w, n, "two", ManagerOptions{Watchdog: watchdog}))
				time.AfterFunc(time.Second, func() {
					_, err := c.Lock(context.Background(), Request{Key: "k1", Owner: "job", Lease: 20_000})
					if err != nil {
						t.Error(err)
					}
				})
			}
			r := Request{Owner: "job", Lease: lease.Milliseconds(), Blocks: true, Block: 5000}
			if _, err := a.MultiLock(context.Background(), []string{"k1", "k2"}, r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lease + 100*time.Millisecond)
			if n.Do(t, "EXISTS", "k2").(int64) == 1 {
				t.Error("the last lock does not end")
			}
			time.Sleep(watchdog - lease)
			if there := n.Do(t, "EXISTS", "k1").(int64) == 1; there != elsewhere {
				t.Errorf("another LOCK: %v; when the leases are over the lock is there: %v", elsewhere, there)
			}
		})
	}
}

// TestMultiLockOfWhatWasGivenBackElsewhere: a lock that its owner has given back through another proxy is none that it had before, also when the reply
// to the MULTILOCK's request for it is lost: its lease ends it.
func TestMultiLockOfWhatWasGivenBackElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		n := w.NewNode(bubbleAddr)
		one := bubbleEngine(t, w, n, "one", ManagerOptions{})
		a, lost := client(one)
		b, _ := client(bubbleEngine(t, w, n, "two", ManagerOptions{}))
		keys, r := []string{"k", "m"}, Request{Owner: "job", Lease: 55_000}
		if _, err := a.MultiLock(context.Background(), keys, r); err != nil {
			t.Fatal(err)
		}
		if freed, err := b.MultiUnlock(context.Background(), keys, UnlockRequest{Owner: "job"}); freed != 2 || err != nil {
			t.Fatal(freed, err)
		}
		link := w.Proxy("one").Link(n.Addr())
		link.Delay(20*time.Millisecond, 0)
		var request sync.Once
		n.Log(func(_ time.Time, _ *world.Node, command []string, reply string) {
			if strings.HasPrefix(command[0], "EVAL") && slices.Contains(command, "10000") && slices.Contains(command, "k") {
				request.Do(func() {
					go func() {
						link.Swallow(world.Replies)
						time.Sleep(50 * time.Millisecond)
						link.Cut()
						link.Heal()
					}()
				})
			}
		})
		r.Lease = 10_000
		if _, err := a.MultiLock(context.Background(), keys, r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		if n.Do(t, "EXISTS", "k", "m").(int64) != 0 || one.Stats().Held != 0 || lost.reasons() != "" {
			t.Errorf("the locks are there for ever; lost: %q", lost.reasons())
		}
	})
}

// A MULTIUNLOCK that may have given one of its locks back does not say that nothing was sent, whatever becomes of the others.
func TestMultiUnlockOfUnknownOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		a, _ := client(bubbleEngine(t, w, s, "one", ManagerOptions{}))
		b, _ := client(bubbleEngine(t, w, s, "two", ManagerOptions{}))
		if err := multi(a, Request{Owner: "o", Lease: 60_000}, "k1", "k2"); err != nil {
			t.Fatal(err)
		}
		mustLock(t, b, Request{Key: "warm", Owner: "o", Lease: 60_000}) // so that a connection is there
		link := w.Proxy("two").Link(s.Addr())
		link.Delay(200*time.Millisecond, 0)
		defer link.Heal()
		time.AfterFunc(300*time.Millisecond, func() { link.Swallow(world.Replies) }) // the UNLOCK of k2 is on its way
		time.AfterFunc(time.Second, link.Cut)
		n, err := b.MultiUnlock(context.Background(), []string{"k1", "k2"}, UnlockRequest{Owner: "o"})
		if pttl(t, s, "k1") <= 0 || pttl(t, s, "k2") > 0 {
			t.Fatalf("k1 has %d ms left, k2 %d", pttl(t, s, "k1"), pttl(t, s, "k2"))
		}
		if err == nil || strings.HasPrefix(err.Error(), "upstream unavailable") {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// What a named owner's LOCK or MULTILOCK that fails has made is given back, unless the same owner has joined it meanwhile, through another proxy: that
// lease stays as it was asked for.
func TestFailedVerbsLeaveALeaseOfMeanwhile(t *testing.T) {
	for how, fail := range map[string]func(c *Client, r Request) error{
		"LOCK": func(c *Client, r Request) error {
			r.Replicas = 1
			_, err := c.Lock(context.Background(), r)
			return err
		},
		"MULTILOCK": func(c *Client, r Request) error {
			r.Blocks, r.Block = true, 2000
			return multi(c, r, r.Key, "taken")
		},
	} {
		for _, kind := range lockstore.Kinds {
			for _, joined := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %v, joined %v", how, kind, joined), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						s := w.NewNode(bubbleAddr)
						a, _ := client(bubbleEngine(t, w, s, "one", ManagerOptions{}))
						b, _ := client(bubbleEngine(t, w, s, "two", ManagerOptions{}))
						r := Request{Key: "k", Kind: kind, Owner: "me", Lease: 20_000}
						taken := Request{Key: "taken", Kind: kind}
						if kind == Read {
							taken.Kind = Write
						}
						mustLock(t, b, taken)
						mustLock(t, a, Request{Key: "warm", Kind: kind, Owner: "me", Lease: 1000}) // so that a connection is there
						w.Proxy("one").Link(s.Addr()).Delay(200*time.Millisecond, 0)
						failed := make(chan error, 1)
						go func() { failed <- fail(a, r) }()
						eventually(t, 5*time.Second, "it is taken", func() bool { return pttl(t, s, r.Key) > 0 })
						least, most := int64(-2), int64(-2)
						if joined {
							r.Lease = 60_000
							mustLock(t, b, r)
							least, most = 50_000, 60_002
						}
						if err := <-failed; err == nil {
							t.Fatal("it has not failed")
						}
						time.Sleep(time.Second)
						if left := pttl(t, s, r.Key); left < least || left > most {
							t.Errorf("it has %d ms left", left)
						}
					})
				})
			}
		}
	}
}
