package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// An owner with a name is one owner on every proxy. It has the lock or not: LOCK said again changes nothing but the token, which rises.
func TestQuorumOwnerWithAName(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		one := ns.engine(t, "one", 0, Options{Watchdog: 2 * time.Second})
		two := ns.engine(t, "two", 0, Options{Watchdog: 2 * time.Second})
		a, al := client(one)
		b, bl := client(two)
		g := mustLock(t, a, Request{Key: "k", Owner: "job", Fence: true})
		again := mustLock(t, b, Request{Key: "k", Owner: "job", Fence: true})
		if again.Token <= g.Token {
			t.Fatal(again, g)
		}
		time.Sleep(3 * time.Second) // b's watchdog has it now
		if al.reasons()+bl.reasons() != "" {
			t.Fatal(al.reasons(), bl.reasons())
		}
		mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "job"}, true)
		mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "job"}, true) // said again
		if n := ns.holding(t, "k"); n != 0 {
			t.Fatal(n)
		}
		c, _ := client(two)
		mustLock(t, c, Request{Key: "k"})
	})
}

// A LOCK that is said again through another proxy, while the first one is still at it, and then fails, keeps what both nodes gave:
// the first one takes back only what it alone counted on.
func TestQuorumOwnerSaidAgainElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		ns.link("first", 0).Swallow(world.Both)
		for _, proxy := range []string{"first", "again"} {
			ns.link(proxy, 1).Cut()
			ns.link(proxy, 4).Cut()
		}
		again := ns.engine(t, "again", 0, Options{})
		first := ns.engine(t, "first", 0, Options{}, quorum.Options{NodeTimeout: 4 * time.Second})
		var all sync.WaitGroup
		for _, r := range everyKind() {
			all.Go(func() {
				r.Owner = "job"
				a, _ := client(first)
				fails := make(chan error, 1)
				go func() {
					_, err := a.Lock(context.Background(), r)
					fails <- err
				}()
				if !heldOn(t, ns, r.Key, 2, "two of five gave it") {
					return
				}
				b, bl := client(again)
				if _, err := b.Lock(context.Background(), r); err != nil {
					t.Error(r.Key, err)
				}
				if err := <-fails; !isCode(err, "NOQUORUM") {
					t.Error(r.Key, err)
				}
				heldOn(t, ns, r.Key, 3, "a majority has it")
				time.Sleep(300 * time.Millisecond) // what is taken back is gone by now
				if heldOn(t, ns, r.Key, 3, "it stays"); bl.reasons() != "" {
					t.Error(r.Key, bl.reasons())
				}
				if freed, err := b.Unlock(context.Background(), UnlockRequest{Key: r.Key, Owner: "job", Side: r.Kind}); !freed || err != nil {
					t.Error(r.Key, freed, err)
				}
				heldOn(t, ns, r.Key, 0, "given back")
			})
		}
		all.Wait()
	})
}

// A renewed hold of an owner with a name goes on being renewed on a node that forgot it, and was given it again by a LOCK EX.
func TestQuorumLockedWithALeaseWhereItWasForgotten(t *testing.T) {
	for _, kind := range []Kind{Plain, Read, Write} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			c, lost := client(ns.engine(t, "one", 0, Options{}))
			r := Request{Key: "k", Kind: kind, Owner: "job"}
			mustLock(t, c, r)
			heldOn(t, ns, r.Key, 3, "taken")
			ns.servers[0].Do(t, "FLUSHALL")
			r.Lease = 50_000
			mustLock(t, c, r)
			heldOn(t, ns, r.Key, 3, "said again")
			time.Sleep(15 * time.Second)
			ns.servers[1].Do(t, "FLUSHALL")
			time.Sleep(time.Minute)
			if heldOn(t, ns, r.Key, 3, "renewed"); lost.reasons() != "" {
				t.Error(kind, lost.reasons())
			}
		})
	}
}

// Nodes that missed a grant or a release disagree, until the next one.
func TestQuorumNodesThatDisagree(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, Options{})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		eventually(t, 5*time.Second, "on all", func() bool { return ns.holding(t, "k") == 5 })
		ns.link("one", 0).Cut()
		mustLock(t, a, Request{Key: "k", Self: true}) // node 1 misses it
		mustUnlock(t, a, UnlockRequest{Key: "k"}, false)
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true) // and the release
		eventually(t, 5*time.Second, "one left", func() bool { return ns.holding(t, "k") == 1 })
		ns.link("one", 1).Cut()
		mustLock(t, b, Request{Key: "k"}) // on 3, 4 and 5
		if _, err := a.Lock(context.Background(), Request{Key: "k"}); err == nil {
			t.Fatal("two holders")
		}
		ns.link("one", 0).Heal()
		ns.link("one", 1).Heal()
		eventually(t, 30*time.Second, "what was missed is made up for", func() bool {
			return hash(t, ns.servers[0], "k")[a.Owner()] == ""
		})
		if _, err := a.Lock(context.Background(), Request{Key: "k"}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal("two holders", err)
		}
		mustUnlock(t, b, UnlockRequest{Key: "k"}, true)
		mustLock(t, a, Request{Key: "k"})
		eventually(t, 30*time.Second, "agreed", func() bool { return ns.holding(t, "k") == 5 })
	})
}

// Fencing tokens rise although each grant may come from another majority.
func TestQuorumFence(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, Options{})
		last := int64(0)
		for i := range 6 {
			for k := range ns.servers {
				r := ns.link("one", k)
				r.Heal()
				if k == i%5 || k == (i+1+i/5)%5 {
					r.Cut()
				}
			}
			c, _ := client(m)
			var g Grant
			eventually(t, 10*time.Second, "granted", func() bool {
				var err error
				g, err = c.Lock(context.Background(), Request{Key: "k", Fence: true, Self: true})
				return err == nil
			})
			var next Grant
			eventually(t, 10*time.Second, "entered", func() bool {
				var err error
				next, err = c.Lock(context.Background(), Request{Key: "k", Fence: true, Self: true})
				return err == nil
			})
			if g.Token <= last || next.Token <= g.Token {
				t.Fatal(last, g.Token, next.Token)
			}
			last = next.Token
			c.Close(Gone)
		}
		for k := range ns.servers {
			ns.link("one", k).Heal()
		}
		named, _ := client(m)
		tokensRise(t, named, "plain", Plain)
		tokensRise(t, named, "write", Write)
		// A node far ahead is believed as soon as it is asked.
		ahead := last + 1e12
		ns.servers[0].Do(t, "SET", lockstore.TokenKey("ahead"), ahead)
		c, _ := client(m)
		eventually(t, 10*time.Second, "seen", func() bool {
			g, err := c.Lock(context.Background(), Request{Key: "ahead", Fence: true, Self: true})
			return err == nil && g.Token > ahead
		})
		var sure int
		for _, s := range ns.servers {
			var token int64
			_, _ = fmt.Sscan(fmt.Sprintf("%s", s.Do(t, "GET", lockstore.TokenKey("ahead"))), &token)
			if token > ahead {
				sure++
			}
		}
		if sure < 3 {
			t.Fatal("only on", sure)
		}
	})
}

func TestQuorumSides(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k", Kind: Read})
		mustLock(t, b, Request{Key: "k", Kind: Read, Owner: "b"})
		if _, err := m.NewClient(ClientInfo{ID: 1e6}).Lock(context.Background(), Request{Key: "k", Kind: Write}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		_, err := a.Lock(context.Background(), Request{Key: "k", Kind: Write})
		wantCode(t, err, "DEADLOCK")
		_, err = a.Lock(context.Background(), Request{Key: "k"})
		wantCode(t, err, "LOCKKIND")
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		mustUnlock(t, b, UnlockRequest{Key: "k", Owner: "b"}, true)
		mustLock(t, a, Request{Key: "k", Kind: Write})
		mustLock(t, a, Request{Key: "k", Kind: Write, Self: true})
		mustLock(t, a, Request{Key: "k", Kind: Read})
		if _, err := b.Lock(context.Background(), Request{Key: "k", Kind: Read}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		mustUnlock(t, a, UnlockRequest{Key: "k", Side: Write}, false)
		mustUnlock(t, a, UnlockRequest{Key: "k", Side: Write}, true)
		mustLock(t, b, Request{Key: "k", Kind: Read})
		freed, err := b.Unlock(context.Background(), UnlockRequest{Key: "k", Force: true})
		if err != nil || !freed {
			t.Fatal(freed, err)
		}
		eventually(t, 5*time.Second, "free", func() bool { return ns.holding(t, "k") == 0 })
		freed, err = b.Unlock(context.Background(), UnlockRequest{Key: "k", Force: true})
		if err != nil || freed {
			t.Fatal(freed, err)
		}
	})
}

// TestQuorumKindsThroughAnotherProxy: an UNLOCK is about the lock that a named owner has now, not about the one that it had here last.
func TestQuorumKindsThroughAnotherProxy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		near, _ := client(ns.engine(t, "one", 0, Options{}))
		far, _ := client(ns.engine(t, "two", 0, Options{}))
		for _, before := range lockstore.Kinds {
			for _, now := range lockstore.Kinds {
				key := before.String() + ", then " + now.String()
				mustLock(t, near, Request{Key: key, Kind: before, Owner: "job:7"})
				mustUnlock(t, near, UnlockRequest{Key: key, Owner: "job:7"}, true)
				mustLock(t, far, Request{Key: key, Kind: now, Owner: "job:7"})
				mustUnlock(t, near, UnlockRequest{Key: key, Owner: "job:7"}, true)
				eventually(t, 5*time.Second, "free", func() bool { return ns.holding(t, key) == 0 })
			}
		}
	})
}

func TestQuorumMultiLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, Options{})
		a, _ := client(m)
		b, _ := client(m)
		ns.servers[4].Kill()
		if _, err := a.MultiLock(context.Background(), []string{"x", "y", "z"}, Request{Lease: 20000, Fence: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.MultiLock(context.Background(), []string{"a", "z"}, Request{}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "a given back", func() bool { return ns.holding(t, "a", 4) == 0 })
		n, err := a.MultiUnlock(context.Background(), []string{"x", "y", "z"}, UnlockRequest{})
		if n != 3 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := b.MultiLock(context.Background(), []string{"a", "z"}, Request{Owner: "o"}); err != nil {
			t.Fatal(err)
		}
		// What an owner with a name had before ends when it would have, though another proxy's MULTILOCK with it fails.
		other := ns.engine(t, "two", 0, Options{})
		mustLock(t, a, Request{Key: "p", Owner: "p", Lease: 20000})
		c, _ := client(other)
		eventually(t, 10*time.Second, "the nodes are reached", func() bool { return other.Nodes()[0].State == "up" })
		if _, err := c.MultiLock(context.Background(), []string{"p", "z"}, Request{Owner: "p"}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		in, err := other.Info(context.Background(), 0, "p")
		if err != nil || len(in.Holders) != 1 || in.TTL > 20000 || in.TTL < 5000 {
			t.Fatalf("%+v %v", in, err)
		}
	})
}

// A client that goes frees its locks on all nodes at once, and who waits is woken.
func TestQuorumClientGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		one := ns.engine(t, "one", 0, Options{Poll: time.Minute})
		two := ns.engine(t, "two", 0, Options{Poll: time.Minute})
		a, _ := client(one)
		b, _ := client(two)
		mustLock(t, a, Request{Key: "k"})
		got := make(chan error, 1)
		go func() {
			_, err := b.Lock(context.Background(), Request{Key: "k", Blocks: true, Fair: true})
			got <- err
		}()
		eventually(t, 5*time.Second, "waits", func() bool { return two.Stats().Waiting == 1 })
		time.Sleep(300 * time.Millisecond)
		a.Close(Gone)
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("not woken")
		}
		b.Close(Gone)
		eventually(t, 5*time.Second, "free", func() bool { return ns.holding(t, "k") == 0 })
	})
}

// Twenty clients on two proxies add up what they read and write without any other protection.
func TestQuorumExclusion(t *testing.T) {
	t.Parallel()
	servers := testredis.StartSet(t, 5)
	ms := []*Manager{quorumEngine(t, addrs(servers), 0, Options{}, patient), quorumEngine(t, addrs(servers), 0, Options{}, patient)}
	servers[1].Kill()
	const clients, times = 20, 15
	var counters [2]atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c, _ := client(ms[i%2])
			for n := range times {
				k := (i + n) % len(counters)
				r := Request{Key: fmt.Sprint("k", k), Blocks: true}
				if _, err := c.Lock(context.Background(), r); err != nil {
					t.Error(err)
					return
				}
				v := counters[k].Load()
				time.Sleep(200 * time.Microsecond)
				counters[k].Store(v + 1)
				if _, err := c.Unlock(context.Background(), UnlockRequest{Key: r.Key}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if sum := counters[0].Load() + counters[1].Load(); sum != clients*times {
		t.Fatal(sum)
	}
}

// What is left of an owner on a minority is no hold from before: a MULTILOCK that found it on the way, and fails, leaves that to its
// lease, since another LOCK of this owner may count on it; one that does not fail gives it its own lease, or the end that it has if, for all
// that is known, a majority may have it. It was renewed for as long as the connection lived.
func TestQuorumMultiLockOverLeftovers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, Options{})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, b, Request{Key: "z"})
		leave := func() {
			for _, s := range ns.servers[:2] {
				s.Do(t, "HSET", "k", "o", 1)
				s.Do(t, "PEXPIRE", "k", 60000)
			}
		}
		leave()
		ns.link("one", 4).Cut() // it may have it, too, for all that is known
		r := Request{Owner: "o", Lease: 20000}
		if _, err := a.MultiLock(context.Background(), []string{"k", "z"}, r); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, "given back", func() bool { return ns.holding(t, "k") == 2 })
		mustUnlock(t, b, UnlockRequest{Key: "z"}, true)
		leave()
		ends := func(most time.Duration) {
			t.Helper()
			if _, err := a.MultiLock(context.Background(), []string{"k", "z"}, r); err != nil {
				t.Fatal(err)
			}
			for _, e := range m.List("o", "") {
				if e.Watched || e.Left > most {
					t.Errorf("%+v", e)
				}
			}
		}
		ends(time.Minute)
		if n, err := a.MultiUnlock(context.Background(), []string{"k", "z"}, UnlockRequest{Owner: "o"}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		ns.link("one", 4).Heal()
		time.Sleep(5 * time.Second)
		leave()
		ends(20 * time.Second)
	})
}

// giveBackInPart gives locks of the owner job back through proxy one, which does not reach just under half of the nodes. So many of the others do
// not answer the proxy called away from then on.
func (ns *simulated) giveBackInPart(t *testing.T, by *Client, keys []string, away string, silent int) {
	t.Helper()
	for i := range len(ns.servers) / 2 { // these keep them
		ns.link("one", i).Swallow(world.Both)
	}
	if n, err := by.MultiUnlock(context.Background(), keys, UnlockRequest{Owner: "job"}); n != int64(len(keys)) || err != nil {
		t.Fatal(n, err)
	}
	for i := range silent {
		ns.link(away, len(ns.servers)-1-i).Cut()
	}
	time.Sleep(2 * time.Second)
}

// What was given back through another proxy is no hold from before either, for a MULTILOCK at the proxy that still believes in it, though one
// node has it still and another one does not answer: the MULTILOCK's lease ends it, nobody renews it.
func TestQuorumMultiLockOfWhatWasGivenBackElsewhere(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, nodes)
			one, two := ns.engine(t, "one", 0, Options{}), ns.engine(t, "two", 0, Options{})
			a, _ := client(one)
			b, lost := client(two)
			time.Sleep(2 * time.Second) // the nodes' clocks are known
			keys, r := []string{"k", "m"}, Request{Owner: "job", Lease: 55_000}
			if _, err := b.MultiLock(context.Background(), keys, r); err != nil {
				t.Fatal(err)
			}
			ns.giveBackInPart(t, a, keys, "two", nodes/2)
			r.Lease = 10_000
			if _, err := b.MultiLock(context.Background(), keys, r); err != nil {
				t.Fatal(err)
			}
			for _, e := range two.List("job", "") {
				if e.Watched {
					t.Errorf("%d nodes: renewed: %+v", nodes, e)
				}
			}
			time.Sleep(100 * time.Second)
			if ns.holding(t, "k") > 0 || ns.holding(t, "m") > 0 || two.Stats().Held > 0 {
				t.Errorf("%d nodes: %d and %d of them have the locks for ever, lost: %q", nodes, ns.holding(t, "k"), ns.holding(t, "m"), lost.reasons())
			}
		})
	}
}

// A look at what was given back through another proxy goes on while two nodes say that it is there, two that it is not, and one does not answer:
// until that one does, or it is an error. It is not taken for held, or a MULTILOCK with a lease would be renewed for ever.
func TestQuorumLookAtWhatWasGivenBackElsewhere(t *testing.T) {
	for _, heals := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 5)
			one, two := ns.engine(t, "one", 0, Options{}), ns.engine(t, "two", 0, Options{})
			a, _ := client(one)
			b, _ := client(two)
			time.Sleep(2 * time.Second) // the nodes' clocks are known
			mustLock(t, b, Request{Key: "k", Owner: "job"})
			ns.giveBackInPart(t, a, []string{"k"}, "two", 1)
			if heals {
				time.AfterFunc(unsureLook/2, ns.link("two", 4).Heal)
			}
			began := time.Now()
			id, _ := b.id(Plain, 0, "k", "job")
			err := two.watchdog.lookAgain(context.Background(), id, true, patience)
			if heals && (err != nil || two.holds.held(id)) || !heals && !isCode(err, "NOQUORUM") {
				t.Errorf("heals %v: %v after %v, held %v", heals, err, time.Since(began), two.holds.held(id))
			}
		})
	}
}

// Where nodes do not tell whether the owner still has a lock that was renewed, or has given it back through another proxy, a MULTILOCK with a
// lease fails: the lock must neither be renewed for ever nor end while the owner counts on it. A third proxy knows as little as the one that
// renews the lock. A LOCK with a lease is given it, since the next renewal finds out.
func TestQuorumMultiLockOfWhatMayHaveBeenGivenBack(t *testing.T) {
	for _, verb := range []string{"MULTILOCK", "LOCK"} {
		for _, at := range []string{"3, two", "3, three", "5, two", "5, three"} {
			t.Run(verb+" on "+at, func(t *testing.T) {
				size, through, _ := strings.Cut(at, ", ")
				nodes := int(size[0] - '0')
				inBubble(t, func(t *testing.T, w *world.World) {
					ns := bubbleNodes(w, nodes)
					engines := map[string]*Manager{"one": ns.engine(t, "one", 0, Options{}), "two": ns.engine(t, "two", 0, Options{}), "three": ns.engine(t, "three", 0, Options{})}
					a, _ := client(engines["one"])
					b, _ := client(engines["two"])
					again, _ := client(engines[through])
					time.Sleep(2 * time.Second) // the nodes' clocks are known
					keys, r := []string{"k", "m"}, Request{Owner: "job"}
					if _, err := b.MultiLock(context.Background(), keys, r); err != nil {
						t.Fatal(err)
					}
					ns.giveBackInPart(t, a, keys, through, nodes/2)
					if r.Lease = 10_000; verb == "LOCK" {
						r.Key = "k"
						mustLock(t, again, r)
					} else if _, err := again.MultiLock(context.Background(), keys, r); !isCode(err, "NOQUORUM") {
						t.Error(err)
					}
					time.Sleep(100 * time.Second)
					if ns.holding(t, "k") > 0 || ns.holding(t, "m") > 0 {
						t.Errorf("%d and %d nodes have the locks for ever", ns.holding(t, "k"), ns.holding(t, "m"))
					}
				})
			})
		}
	}
}

// An UNLOCK of a named owner that a node gets late does not end what the owner has taken through another proxy since it was answered. A node that
// was in trouble when it was sent is not waited for; any other is, until it cannot do what it was sent any more.
func TestQuorumUnlockThatComesLate(t *testing.T) {
	for _, troubled := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			times := quorum.Options{NodeTimeout: 200 * time.Millisecond}
			one, two := ns.engine(t, "one", 0, Options{}, times), ns.engine(t, "two", 0, Options{}, times)
			a, _ := client(one)
			b, _ := client(two)
			time.Sleep(2 * time.Second) // the nodes' clocks are known
			r, u := Request{Key: "k", Kind: Read, Owner: "job"}, UnlockRequest{Key: "k", Side: Read, Owner: "job"}
			mustLock(t, a, r)
			mustUnlock(t, a, u, true) // the nodes have the scripts
			mustLock(t, b, r)
			time.Sleep(time.Second)
			if troubled {
				ns.link("one", 0).Delay(300*time.Millisecond, 0)
				mustLock(t, a, Request{Key: "other"})
				time.Sleep(250 * time.Millisecond)
			}
			if ns.link("one", 0).Delay(190*time.Millisecond, 0); !troubled {
				ns.link("one", 0).Delay(250*time.Millisecond, 0)
				ns.servers[0].Jump(-100 * time.Millisecond) // it does for longer what it was sent
			}
			began := time.Now()
			mustUnlock(t, a, u, true)
			if took := time.Since(began); troubled != (took < 100*time.Millisecond) || took > time.Second {
				t.Errorf("troubled %v: answered after %v", troubled, took)
			}
			ns.link("two", 2).Cut() // the other two are the majority
			r.Lease = 20_000
			mustLock(t, b, r)
			time.Sleep(time.Second)
			if n := ns.holding(t, "k", 2); n != 2 {
				t.Errorf("troubled %v: %d of the two nodes still have it", troubled, n)
			}
		})
	}
}

// An UNLOCK through another proxy than the LOCK, which passes a node before the LOCK's vote comes there and does not reach two others, leaves no
// majority with the lock, which the LOCK's proxy would renew for as long as the client stays.
func TestQuorumUnlockOvertakesAVote(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, nodes)
			one, two := ns.engine(t, "one", 0, Options{}), ns.engine(t, "two", 0, Options{})
			a, _ := client(one)
			b, _ := client(two)
			time.Sleep(2 * time.Second) // the nodes' clocks are known
			for _, r := range everyKind() {
				r.Owner = "job"
				for i := range nodes / 2 {
					ns.link("one", i).Cut()
				}
				ns.link("two", nodes-1).Delay(50*time.Millisecond, 0)
				mustLock(t, b, r)
				mustUnlock(t, a, UnlockRequest{Key: r.Key, Owner: "job", Side: r.Kind}, true)
				ns.link("two", nodes-1).Heal()
				time.Sleep(2 * time.Minute)
				if n := two.Stats().Held; n > 0 || ns.holding(t, r.Key) > 0 {
					t.Errorf("%d nodes, %s: %d holds are renewed, %d nodes have it", nodes, r.Key, n, ns.holding(t, r.Key))
				}
				for i := range nodes / 2 {
					ns.link("one", i).Heal()
				}
				time.Sleep(5 * time.Second)
			}
		})
	}
}

// An UNLOCK that is said again where the first one reached too few nodes, right after the LOCK through another proxy, gives the lock back:
// what the first one later leaves alone, since it may have been taken anew, is no answer to the second one. The other proxy would renew
// it for as long as the client that took it stays.
func TestQuorumUnlockSaidAgainElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		one := ns.engine(t, "one", 0, Options{})
		two := ns.engine(t, "two", 0, Options{})
		a, _ := client(one)
		b, _ := client(two)
		mustLock(t, b, Request{Key: "before"}) // two knows the nodes' clocks
		time.Sleep(2 * time.Second)
		for _, r := range everyKind() {
			r.Owner = "job"
			mustLock(t, a, r)
			heldOn(t, ns, r.Key, 5, "on all")
			for _, i := range []int{0, 2, 4} {
				ns.link("two", i).Cut()
			}
			u := UnlockRequest{Key: r.Key, Owner: "job", Side: r.Kind}
			freed, err := b.Unlock(context.Background(), u)
			if !isCode(err, "NOQUORUM") {
				t.Error(r.Key, err)
			}
			for _, i := range []int{0, 2, 4} {
				ns.link("two", i).Heal()
			}
			for isCode(err, "NOQUORUM") { // the nodes are connected to again
				freed, err = b.Unlock(context.Background(), u)
			}
			if !freed && !isCode(err, "NOTHELD") { // the first one has reached the nodes since
				t.Error(r.Key, freed, err)
			}
			if n := ns.holding(t, r.Key); n > 2 {
				t.Error(r.Key, n, "nodes have it")
			}
			time.Sleep(time.Minute) // a node that could not be asked has it until the lease is over
			heldOn(t, ns, r.Key, 0, "for good")
		}
	})
}
