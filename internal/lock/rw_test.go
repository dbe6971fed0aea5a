package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func refused(t *testing.T, c *Client, r Request) {
	t.Helper()
	if _, err := c.Lock(context.Background(), r); !errors.Is(err, ErrNotAcquired) {
		t.Fatalf("%v by %s: %v", r.Kind, c.Owner(), err)
	}
}

// subKeys are the keys of read holds that are there.
func subKeys(t *testing.T, s redisServer) []string {
	t.Helper()
	k, err := redis.Strings(s.Do(t, "KEYS", "*:rwlock_timeout:*"), nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(k)
	return k
}

func TestRWIsRedissons(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	b, _ := client(m)
	for name, prefix := range map[string]string{"k": "{k}", "{test}:abc:key": "{test}:abc:key", "a{b": "a{b", "a}b": "{a}b}"} {
		mustLock(t, a, Request{Key: name, Kind: Read})
		mustLock(t, a, Request{Key: name, Kind: Read})
		mustLock(t, b, Request{Key: name, Kind: Read})
		if got := fmt.Sprint(hash(t, s, name)); got != fmt.Sprint(map[string]string{"mode": "read", a.Owner(): "2", b.Owner(): "1"}) {
			t.Fatal(got)
		}
		want := []string{
			prefix + ":" + a.Owner() + ":rwlock_timeout:1", prefix + ":" + a.Owner() + ":rwlock_timeout:2", prefix + ":" + b.Owner() + ":rwlock_timeout:1",
		}
		slices.Sort(want)
		if got := subKeys(t, s); !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
		mustUnlock(t, a, UnlockRequest{Key: name}, false)
		mustUnlock(t, a, UnlockRequest{Key: name, Side: Read}, true)
		mustUnlock(t, b, UnlockRequest{Key: name}, true)
		mustLock(t, a, Request{Key: name, Kind: Write})
		if got := fmt.Sprint(hash(t, s, name)); got != fmt.Sprint(map[string]string{"mode": "write", a.Owner() + ":write": "1"}) {
			t.Fatal(got)
		}
		refused(t, b, Request{Key: name, Kind: Read})
		refused(t, b, Request{Key: name, Kind: Write})
		mustUnlock(t, a, UnlockRequest{Key: name}, true)
		if n := s.Do(t, "DBSIZE").(int64); n != 0 {
			t.Fatalf("%d keys left", n)
		}
	}
}

func TestBothSidesAndNone(t *testing.T) {
	s := testredis.Start(t)
	m, m2 := engine(t, s.URL(), ManagerOptions{}), engine(t, s.URL(), ManagerOptions{})
	ctx := context.Background()
	for _, owner := range []string{"", "o"} {
		a, _ := client(m)
		elsewhere, _ := client(m2)
		mustLock(t, a, Request{Key: "k", Kind: Write, Owner: owner, Lease: 30_000})
		mustLock(t, a, Request{Key: "k", Kind: Read, Owner: owner, Lease: 30_000})
		clients := []*Client{a}
		if owner != "" {
			clients = append(clients, elsewhere)
		}
		for _, c := range clients {
			if _, err := c.Unlock(ctx, UnlockRequest{Key: "k", Owner: owner}); err == nil || !strings.Contains(err.Error(), "say READ or WRITE") {
				t.Fatal(err)
			}
			if err := c.Renew(ctx, RenewRequest{Key: "k", Owner: owner, Lease: 30_000}); err == nil || !strings.Contains(err.Error(), "say READ or WRITE") {
				t.Fatal(err)
			}
		}
		last := clients[len(clients)-1]
		mustUnlock(t, last, UnlockRequest{Key: "k", Owner: owner, Side: Write}, true)
		mustUnlock(t, last, UnlockRequest{Key: "k", Owner: owner}, true)
		if n := s.Do(t, "EXISTS", "k").(int64); n != 0 {
			t.Fatal(hash(t, s, "k"))
		}
		_, err := last.Unlock(ctx, UnlockRequest{Key: "k", Owner: owner})
		wantCode(t, err, "NOTHELD")
		s.Do(t, "FLUSHALL")
	}
}

// A writer whose own read lease is over holds one side: no verb asks which.
func TestWriterWhoseReadLeaseIsOver(t *testing.T) {
	for _, votes := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world.World) {
			m, there := oneOrQuorum(t, w, votes)
			a, _ := client(m)
			mustLock(t, a, Request{Key: "k", Kind: Write, Owner: "X", Lease: 60_000})
			mustLock(t, a, Request{Key: "k", Kind: Read, Owner: "X", Lease: 1000})
			time.Sleep(2 * time.Second)
			if err := a.Renew(context.Background(), RenewRequest{Key: "k", Owner: "X", Lease: 60_000}); err != nil {
				t.Error(err)
			}
			mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "X"}, true)
			if there("k") {
				t.Error("it is still locked")
			}
		})
	}
}

// A connection's hold has one lease, and so has each of its read holds, though the newest was asked for with a shorter one.
func TestAShortReadWithinALongHold(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, kind := range []Kind{Read, Write} {
			for _, lease := range []int64{0, 20_000} {
				inBubble(t, func(t *testing.T, w *world.World) {
					m, there := oneOrQuorum(t, w, votes)
					a, lost := client(m)
					mustLock(t, a, Request{Key: "k", Kind: kind, Lease: lease})
					mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 100})
					for range 3 {
						time.Sleep(5 * time.Second)
						if err := a.m.watchdog.visitNow(context.Background(), a.id(Read, 0, "k", ""), patience); err != nil || lost.reasons() != "" {
							t.Fatalf("quorum %v, %v for %d ms: %v, lost %q", votes, kind, lease, err, lost.reasons())
						}
					}
					mustUnlock(t, a, UnlockRequest{Key: "k", Side: Read}, kind == Write)
					mustUnlock(t, a, UnlockRequest{Key: "k", Side: kind}, true)
					if there("k") {
						t.Error("it is still locked")
					}
				})
			}
		}
	}
}

// On a quorum a node that does not answer may have the read hold that the others do not make a majority of.
func TestSideOnASilentNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		a, _ := client(ns.engine(t, "one", 0, ManagerOptions{}))
		b, _ := client(ns.engine(t, "two", 0, ManagerOptions{}))
		mustLock(t, a, Request{Key: "k", Kind: Write, Owner: "X", Lease: 60_000})
		mustLock(t, a, Request{Key: "k", Kind: Read, Owner: "X", Lease: 60_000})
		time.Sleep(time.Second)
		read := lockstore.ID{Key: "k", Owner: "X", Kind: Read}
		ns.servers[2].Do(t, "HDEL", "k", read.Field())
		ns.link("two", 1).Cut()
		_, err := b.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "X"})
		wantCode(t, err, "ERR")
	})
}

func TestUpgradeIsDeadlock(t *testing.T) {
	s := testredis.Start(t)
	m, m2 := engine(t, s.URL(), ManagerOptions{}), engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	b, _ := client(m2)
	ctx := context.Background()
	for _, c := range []*Client{a, b} {
		for _, blocks := range []bool{false, true} {
			if c == a {
				mustLock(t, a, Request{Key: "k", Kind: Read})
				_, err := a.Lock(ctx, Request{Key: "k", Kind: Write, Blocks: blocks})
				wantCode(t, err, "DEADLOCK")
				mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
			}
			mustLock(t, a, Request{Key: "k", Kind: Read, Owner: "o", Lease: 30_000})
			_, err := c.Lock(ctx, Request{Key: "k", Kind: Write, Owner: "o", Blocks: blocks, Lease: 30_000})
			wantCode(t, err, "DEADLOCK")
		}
	}
	// A pooled connection may be another thread's now.
	p, _ := client(m)
	p.SetLibrary(true)
	mustLock(t, p, Request{Key: "p", Kind: Read})
	for _, k := range []Kind{Read, Write} {
		_, err := p.Lock(ctx, Request{Key: "p", Kind: k})
		wantCode(t, err, "OWNERREQUIRED")
	}
	_, err := p.Lock(ctx, Request{Key: "p", Kind: Write, Self: true})
	wantCode(t, err, "DEADLOCK")
	mustLock(t, p, Request{Key: "p", Kind: Read, Self: true})
}

func TestRWWrongKinds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 600 * time.Millisecond})
		a, lost := client(m)
		b, _ := client(m)
		ctx := context.Background()
		mustLock(t, a, Request{Key: "plain"})
		mustLock(t, a, Request{Key: "rw", Kind: Read})
		for _, c := range []*Client{a, b} {
			for _, r := range []Request{{Key: "plain", Kind: Read}, {Key: "plain", Kind: Write}, {Key: "rw"}} {
				_, err := c.Lock(ctx, r)
				wantCode(t, err, "LOCKKIND")
				r.Blocks = true
				_, err = c.Lock(ctx, r)
				wantCode(t, err, "LOCKKIND")
			}
		}
		_, err := a.Unlock(ctx, UnlockRequest{Key: "plain", Side: Write})
		wantCode(t, err, "LOCKKIND")
		_, err = b.Unlock(ctx, UnlockRequest{Key: "plain", Side: Read, Force: true})
		wantCode(t, err, "LOCKKIND")
		_, err = a.Unlock(ctx, UnlockRequest{Key: "rw", Side: Write})
		wantCode(t, err, "NOTHELD")
		mustUnlock(t, b, UnlockRequest{Key: "rw", Side: Write, Force: true}, false)
		mustUnlock(t, b, UnlockRequest{Key: "rw", Force: true}, true)
		eventually(t, 15*time.Second, "told", func() bool { return lost.reasons() == "rw:forced " })
		// What is behind a lost lock's name is not taken for it.
		s.Do(t, "DEL", "plain")
		mustLock(t, a, Request{Key: "plain", Kind: Read})
		eventually(t, 15*time.Second, "told", func() bool { return lost.reasons() == "rw:forced plain:gone " })
		_, err = a.Unlock(ctx, UnlockRequest{Key: "plain"})
		wantCode(t, err, "LOCKLOST")
		mustUnlock(t, a, UnlockRequest{Key: "plain"}, true)
	})
}

func TestRWWatchdogAndLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 1500 * time.Millisecond}) // a renewal may come a second late on a busy machine
		a, lost := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "r", Kind: Read})
		mustLock(t, a, Request{Key: "r", Kind: Read, Lease: 300})
		mustLock(t, b, Request{Key: "r", Kind: Read, Owner: "o", Lease: 30_000})
		mustLock(t, b, Request{Key: "w", Kind: Write, Owner: "o", Lease: 30_000})
		mustLock(t, a, Request{Key: "both", Kind: Write, Lease: 1400})
		mustLock(t, a, Request{Key: "both", Kind: Read})
		mustLock(t, a, Request{Key: "leased", Kind: Read, Lease: 1400})
		s.Do(t, "SET", "poison", "x")
		mustLock(t, a, Request{Key: "overwritten", Kind: Read})
		s.Do(t, "SET", "overwritten", "x")
		time.Sleep(3 * time.Second) // two leases
		for key, fields := range map[string]string{
			"r": fmt.Sprint(map[string]string{"mode": "read", a.Owner(): "2", "o": "1"}), "w": "map[mode:write o:write:1]",
			"both": fmt.Sprint(map[string]string{"mode": "write", a.Owner(): "1", a.Owner() + ":write": "1"}),
		} {
			if got := fmt.Sprint(hash(t, s, key)); got != fields || pttl(t, s, key) <= 0 {
				t.Errorf("%s is %s", key, got)
			}
		}
		if got := len(subKeys(t, s)); got != 3 { // of an owner's read holds the newest is renewed
			t.Error(subKeys(t, s))
		}
		if got := lost.reasons(); got != "overwritten:gone leased:expired " {
			t.Fatal(got)
		}
		mustUnlock(t, a, UnlockRequest{Key: "both", Side: Write}, true)
		mustUnlock(t, a, UnlockRequest{Key: "both"}, true)
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "leased"})
		wantCode(t, err, "LOCKLOST")
		mustUnlock(t, a, UnlockRequest{Key: "r", All: true}, true)
		mustUnlock(t, b, UnlockRequest{Key: "r", Owner: "o"}, true)
		mustUnlock(t, b, UnlockRequest{Key: "w", Owner: "o"}, true)
		eventually(t, 15*time.Second, "nothing left", func() bool { return m.Stats().Held == 0 })
		if got := s.Do(t, "DBSIZE").(int64) - s.Do(t, "EXISTS", "poison", "overwritten").(int64); got != 0 {
			t.Fatal(got)
		}
	})
}

// TestReadLeaseEndsAlone: a reader's lease is its own, whatever others have.
func TestReadLeaseEndsAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, lost := client(m)
		b, _ := client(m)
		writer, _ := client(m)
		mustLock(t, b, Request{Key: "k", Kind: Read})
		mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 300})
		eventually(t, 15*time.Second, "expired", func() bool { return lost.reasons() == "k:expired " })
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"})
		wantCode(t, err, "LOCKLOST")
		refused(t, writer, Request{Key: "k", Kind: Write})
		mustUnlock(t, b, UnlockRequest{Key: "k"}, true)
		mustLock(t, writer, Request{Key: "k", Kind: Write})
	})
}

func TestDisconnectReleasesReads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: 10 * time.Second})
		a, _ := client(m)
		b, _ := client(m)
		writer, _ := client(m)
		mustLock(t, a, Request{Key: "k", Kind: Write})
		mustLock(t, a, Request{Key: "k", Kind: Read})
		mustLock(t, a, Request{Key: "k", Kind: Read})
		mustLock(t, b, Request{Key: "r", Kind: Read})
		mustLock(t, a, Request{Key: "r", Kind: Read})
		got := make(chan error, 1)
		go func() {
			_, err := writer.Lock(context.Background(), Request{Key: "k", Kind: Write, Blocks: true})
			got <- err
		}()
		eventually(t, 15*time.Second, "waiting", func() bool { return m.Stats().Waiting == 1 })
		a.Close(Gone)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		eventually(t, 15*time.Second, "released", func() bool {
			return fmt.Sprint(hash(t, s, "r")) == fmt.Sprint(map[string]string{"mode": "read", b.Owner(): "1"})
		})
		b.Reset()
		eventually(t, 15*time.Second, "released", func() bool { return s.Do(t, "EXISTS", "r").(int64) == 0 })
	})
}

// TestReadersPassTogether: a line of readers behind a writer is granted reader by reader, one script each; a writer among
// them waits for those before it.
func TestReadersPassTogether(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{Poll: 10 * time.Second})
	w, _ := client(m)
	mustLock(t, w, Request{Key: "k", Kind: Write})
	const readers = 30
	order := make(chan string, 2*readers+1)
	var all sync.WaitGroup
	var held []*Client
	enqueue := func(name string, kind Kind) {
		c, _ := client(m)
		held = append(held, c)
		waiting := m.Stats().Waiting
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := c.Lock(context.Background(), Request{Key: "k", Kind: kind, Blocks: true}); err != nil {
				t.Error(err)
			}
			order <- name
		}()
		eventually(t, 30*time.Second, "in line", func() bool { return m.Stats().Waiting == waiting+1 })
	}
	for range readers {
		enqueue("first", Read)
	}
	enqueue("writer", Write)
	enqueue("last", Read)
	before := scriptsRun(t, s)
	mustLock(t, w, Request{Key: "k", Kind: Read}) // a re-entry passes the line
	mustUnlock(t, w, UnlockRequest{Key: "k", Side: Write}, true)
	for range readers {
		if got := <-order; got != "first" {
			t.Fatal(got)
		}
	}
	mustUnlock(t, w, UnlockRequest{Key: "k"}, true)
	if n := scriptsRun(t, s) - before; n > readers+8 {
		t.Errorf("%d scripts for %d readers", n, readers)
	}
	if m.Stats().Waiting != 2 {
		t.Fatal(m.Stats().Waiting)
	}
	for _, c := range held[:readers] {
		mustUnlock(t, c, UnlockRequest{Key: "k"}, true)
	}
	if got := <-order; got != "writer" {
		t.Fatal(got)
	}
	mustUnlock(t, held[readers], UnlockRequest{Key: "k"}, true)
	all.Wait()
	mustUnlock(t, held[readers+1], UnlockRequest{Key: "k"}, true)
}

func scriptsRun(t *testing.T, s *testredis.Server) int {
	t.Helper()
	info, _ := redis.String(s.Do(t, "INFO", "commandstats"), nil)
	sum := 0
	for _, line := range strings.Split(info, "\r\n") {
		n := 0
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &n); err == nil {
			sum += n
		}
		if _, err := fmt.Sscanf(line, "cmdstat_eval:calls=%d,", &n); err == nil {
			sum += n
		}
	}
	return sum
}

// TestRWSettled: an RLOCK, WLOCK or UNLOCK of a connection whose reply was lost counts once; a named owner is told what became of its UNLOCK.
func TestRWSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, ManagerOptions{})
		for _, k := range []Kind{Read, Write} {
			for _, owner := range []string{"", "o"} {
				a, _ := client(m)
				field := lockstore.ID{Owner: a.Owner(), Kind: k}.Field()
				if owner != "" {
					field = lockstore.ID{Owner: owner, Kind: k}.Field()
				}
				counts, left := []string{"1", "2"}, "1"
				if owner != "" {
					counts, left = counts[:1], ""
				}
				for _, count := range counts {
					done := make(chan error, 1)
					go func() {
						_, err := a.Lock(context.Background(), Request{Key: "k", Owner: owner, Kind: k, Lease: 60_000})
						done <- err
					}()
					eventually(t, 5*time.Second, "entered", func() bool { return hash(t, s, "k")[field] == count })
					p.Drop()
					if err := <-done; err != nil || hash(t, s, "k")[field] != count {
						t.Fatal(k, owner, err, hash(t, s, "k"))
					}
				}
				if n := len(subKeys(t, s)); k == Read && n != len(counts) || k == Write && n != 0 {
					t.Fatal(subKeys(t, s))
				}
				done := make(chan error, 1)
				go func() {
					free, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: owner})
					if free {
						err = errors.New("free")
					}
					done <- err
				}()
				eventually(t, 5*time.Second, "unlocked", func() bool { return hash(t, s, "k")[field] == left })
				p.Drop()
				if err := <-done; (err != nil) != (owner != "") || hash(t, s, "k")[field] != left {
					t.Fatal(k, owner, err, hash(t, s, "k"))
				} else if owner != "" {
					wantCode(t, err, "ERR")
					continue
				}
				mustUnlock(t, a, UnlockRequest{Key: "k", Owner: owner}, true)
				if n := len(subKeys(t, s)); n != 0 || s.Do(t, "EXISTS", "k").(int64) != 0 {
					t.Fatal(subKeys(t, s), hash(t, s, "k"))
				}
			}
		}
	})
}

// TestRWExclusion has 64 clients of two proxies read and write a counter.
func TestRWExclusion(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	engines := []*Manager{engine(t, s.URL(), ManagerOptions{}), engine(t, s.URL(), ManagerOptions{})}
	const clients, rounds = 64, 20
	var readers, writers, writes atomic.Int64
	total := int64(0) // only writers touch it
	var all sync.WaitGroup
	for i := range clients {
		c, _ := client(engines[i%2])
		all.Add(1)
		go func() {
			defer all.Done()
			for range rounds {
				kind := Read
				if rand.N(4) == 0 {
					kind = Write
				}
				if _, err := c.Lock(context.Background(), Request{Key: "k", Kind: kind, Blocks: true}); err != nil {
					t.Error(err)
					return
				}
				if kind == Read {
					readers.Add(1)
					if writers.Load() != 0 {
						t.Error("reads beside a writer")
					}
					_ = total
					readers.Add(-1)
				} else {
					if writers.Add(1) != 1 || readers.Load() != 0 {
						t.Error("writes beside somebody")
					}
					total++
					writes.Add(1)
					writers.Add(-1)
				}
				if _, err := c.Unlock(context.Background(), UnlockRequest{Key: "k"}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	if total != writes.Load() || s.Do(t, "DBSIZE").(int64) != 0 {
		t.Fatal(total, writes.Load(), s.Do(t, "DBSIZE"))
	}
}

// A named owner that gives back the write side and reads on lets those in that wait to read, as a connection does.
func TestReadersBesideAWriterThatReadsOn(t *testing.T) {
	for _, owner := range []string{"", "job"} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Hour})
			a, _ := client(m)
			b, _ := client(m)
			r := Request{Key: "k", Kind: Write, Owner: owner}
			if owner != "" {
				r.Lease = 600_000
			}
			mustLock(t, a, r)
			r.Kind = Read
			mustLock(t, a, r)
			done := make(chan error)
			go func() {
				_, err := b.Lock(context.Background(), Request{Key: "k", Kind: Read, Blocks: true})
				done <- err
			}()
			time.Sleep(10 * time.Second)
			mustUnlock(t, a, UnlockRequest{Key: "k", Side: Write, Owner: owner}, true)
			began := time.Now()
			if err := <-done; err != nil || time.Since(began) > time.Second {
				t.Errorf("%q: the reader is in after %v: %v", owner, time.Since(began), err)
			}
		})
	}
}
