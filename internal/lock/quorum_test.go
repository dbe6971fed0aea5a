package lock

import (
	"context"
	"errors"
	"fmt"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// patient has the nodes of a quorum asked for longer than a busy machine stands still.
var patient = quorum.StoreOptions{NodeTimeout: 10 * time.Second}

// quorumEngine is a Manager at work on servers. Those must have been up for minUptime; 0 switches that rule off, which only
// a test can.
func quorumEngine(t *testing.T, addrs []string, minUptime time.Duration, o ManagerOptions, times ...quorum.StoreOptions) *Manager {
	t.Helper()
	var targets []upstream.Target
	for _, addr := range addrs {
		targets = append(targets, upstream.Target{Network: "tcp", Addr: addr, MinUptime: minUptime})
	}
	return quorumOf(t, targets, o, times...)
}

func quorumOf(t *testing.T, targets []upstream.Target, o ManagerOptions, times ...quorum.StoreOptions) *Manager {
	t.Helper()
	o.Logger = testLog()
	nodes := quorum.StoreOptions{NodeTimeout: 2 * time.Second} // wide: the machine may be busy
	if len(times) > 0 {
		nodes = times[0]
	}
	var controls []*upstream.Control
	for _, target := range targets {
		c := upstream.NewControl(target, upstream.ControlOptions{DialTimeout: max(2*time.Second, nodes.NodeTimeout), Logger: o.Logger})
		controls = append(controls, c)
		nodes.Nodes = append(nodes.Nodes, quorum.Node{Name: target.Addr, Control: c})
	}
	return atWork(t, New(quorum.Open(nodes), o), func() {
		for _, c := range controls {
			c.Close()
		}
	})
}

// addrs are the servers' addresses.
func addrs(servers []*testredis.Server) (out []string) {
	for _, s := range servers {
		out = append(out, s.Addr())
	}
	return out
}

// having is on how many of the servers the key exists, but for those at these indexes, which are down.
func having[S redisServer](t *testing.T, servers []S, key string, down ...int) (n int64) {
	t.Helper()
	for i, s := range servers {
		if !slices.Contains(down, i) {
			n += s.Do(t, "EXISTS", key).(int64)
		}
	}
	return n
}

// simulated are independent nodes in a World.
type simulated struct {
	w       *world.World
	servers []*world.Node
}

func bubbleNodes(w *world.World, n int) *simulated {
	ns := &simulated{w: w}
	for i := range n {
		ns.servers = append(ns.servers, w.NewNode(fmt.Sprintf("10.0.0.%d:6379", i+1)))
	}
	return ns
}

// link is the way from a proxy to a node.
func (ns *simulated) link(proxy string, i int) *world.Link {
	return ns.w.Proxy(proxy).Link(ns.servers[i].Addr())
}

// engine is a Manager at work on the nodes, as the proxy of that name.
func (ns *simulated) engine(t *testing.T, proxy string, minUptime time.Duration, o ManagerOptions, times ...quorum.StoreOptions) *Manager {
	t.Helper()
	var targets []upstream.Target
	for _, s := range ns.servers {
		targets = append(targets, upstream.Target{Network: "tcp", Addr: s.Addr(), Dialer: ns.w.Proxy(proxy), MinUptime: minUptime})
	}
	return quorumOf(t, targets, o, times...)
}

func (ns *simulated) holding(t *testing.T, key string, down ...int) int64 {
	t.Helper()
	return having(t, ns.servers, key, down...)
}

func TestQuorumLockAndUnlock(t *testing.T) {
	servers := testredis.StartSet(t, 5)
	m := quorumEngine(t, addrs(servers), 0, ManagerOptions{}, patient)
	a, _ := client(m)
	b, _ := client(m)
	mustLock(t, a, Request{Key: "k"})
	eventually(t, 30*time.Second, "on all nodes", func() bool { return having(t, servers, "k") == 5 })
	if _, err := b.Lock(context.Background(), Request{Key: "k"}); !errors.Is(err, ErrNotAcquired) {
		t.Fatal(err)
	}
	_, err := b.Unlock(context.Background(), UnlockRequest{Key: "k"})
	wantCode(t, err, "NOTHELD")
	mustLock(t, a, Request{Key: "k", Self: true})
	mustLock(t, a, Request{Key: "k", Self: true})
	mustUnlock(t, a, UnlockRequest{Key: "k"}, false)
	mustUnlock(t, a, UnlockRequest{Key: "k"}, false)
	in, err := m.Info(context.Background(), 0, "k")
	if err != nil || in.Kind != "plain" || len(in.Holders) != 1 || in.Holders[0].Owner != a.Owner() || in.Holders[0].Holds != 1 || len(in.Nodes) != 5 ||
		in.TTL < 25000 || in.TTL > 29700 {
		t.Fatalf("%+v %v", in, err)
	}
	mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	eventually(t, 30*time.Second, "free on all nodes", func() bool { return having(t, servers, "k") == 0 })
	mustLock(t, b, Request{Key: "k"})
}

// What two nodes out of five that are away change: nothing. Three: nobody gets a lock, and none is left behind.
func TestQuorumWithNodesDown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, ManagerOptions{Watchdog: 2 * time.Second}, quorum.StoreOptions{NodeTimeout: 500 * time.Millisecond})
		a, al := client(m)
		b, _ := client(m)
		ns.servers[0].Kill()
		ns.servers[3].Stop()
		mustLock(t, a, Request{Key: "k"})
		if _, err := b.Lock(context.Background(), Request{Key: "k"}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second) // two leases: the watchdog renews on a majority
		if al.reasons() != "" {
			t.Fatal(al.reasons())
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		d, _ := client(m)
		mustLock(t, b, Request{Key: "k2", Lease: 20000}) // for longer than what follows takes
		mustLock(t, d, Request{Key: "k3", Lease: 20000})
		mustLock(t, d, Request{Key: "k4", Owner: "job", Lease: 20000})
		ns.servers[1].Kill()
		_, err := a.Lock(context.Background(), Request{Key: "k"})
		wantCode(t, err, "NOQUORUM")
		_, err = a.Lock(context.Background(), Request{Key: "k", Blocks: true, Block: 700})
		wantCode(t, err, "NOQUORUM")
		if n := ns.holding(t, "k", 0, 1, 3); n != 0 {
			t.Fatal("left behind on", n)
		}
		_, err = b.Unlock(context.Background(), UnlockRequest{Key: "k2"})
		wantCode(t, err, "NOQUORUM")
		wantCode(t, b.Renew(context.Background(), RenewRequest{Key: "k2"}), "NOTHELD") // it was to be given back
		wantCode(t, d.Renew(context.Background(), RenewRequest{Key: "k3"}), "NOQUORUM")
		wantCode(t, d.Renew(context.Background(), RenewRequest{Key: "k3", Lease: 20_000}), "NOQUORUM")
		wantCode(t, d.Renew(context.Background(), RenewRequest{Key: "k4", Owner: "job", Lease: 20_000}), "NOQUORUM")
		_, err = m.Info(context.Background(), 0, "k")
		wantCode(t, err, "NOQUORUM")
		ns.servers[3].Cont()
		eventually(t, 10*time.Second, "three are enough", func() bool {
			_, err := a.Lock(context.Background(), Request{Key: "k"})
			return err == nil
		})
	})
}

// A hold whose majority has gone is lost, and its holder hears of it before anybody else can have the lock.
func TestQuorumLossWhenTheMajorityHasGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, ManagerOptions{Watchdog: 2 * time.Second})
		a, al := client(m)
		mustLock(t, a, Request{Key: "k"})
		for _, i := range []int{0, 2, 4} {
			ns.servers[i].Kill()
		}
		eventually(t, 5*time.Second, "told", func() bool { return al.reasons() == "k:unrenewed " })
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"})
		if err == nil {
			t.Fatal("unlocked what was lost")
		}
	})
}

// A node that lost a lock gets it again with the next renewal, also when its answers are the last to come and nobody waits for them. What a named
// owner has is not renewed: its lease ends it.
func TestQuorumSlowNodeHasTheLockAgain(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 5)
			m := ns.engine(t, "one", 0, ManagerOptions{})
			a, al := client(m)
			mustLock(t, a, Request{Key: "k", Kind: kind})
			mustLock(t, a, Request{Key: "named", Kind: kind, Owner: "job", Lease: 30_000})
			eventually(t, 5*time.Second, "on all nodes", func() bool { return ns.holding(t, "k")+ns.holding(t, "named") == 10 })
			ns.link("one", 2).Delay(50*time.Millisecond, 0)
			ns.servers[2].Restart()
			time.Sleep(15 * time.Second) // a renewal
			if k, named := ns.holding(t, "k"), ns.holding(t, "named"); k != 5 || named != 4 || al.reasons() != "" {
				t.Error(kind, k, named, al.reasons())
			}
			mustUnlock(t, a, UnlockRequest{Key: "k", Side: kind}, true)
			mustUnlock(t, a, UnlockRequest{Key: "named", Side: kind, Owner: "job"}, true)
			time.Sleep(time.Minute)
			if got := ns.holding(t, "k") + ns.holding(t, "named"); got != 0 {
				t.Error(kind, got, "are left")
			}
		})
	}
}

// A lock outlives the restarts of all nodes, one after the other, and is lost when a majority forgets it at once.
func TestQuorumLockOutlivesAllNodes(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			a, lost := client(ns.engine(t, "one", 0, ManagerOptions{}))
			b, _ := client(ns.engine(t, "two", 0, ManagerOptions{}))
			alone := map[Kind]Kind{Plain: Plain, Read: Write, Write: Write}[kind]
			mustLock(t, a, Request{Key: "k", Kind: kind})
			heldOn(t, ns, "k", 3, "taken")
			for range 2 {
				for _, s := range ns.servers {
					s.Restart()
					time.Sleep(15 * time.Second)
					heldOn(t, ns, "k", 3, "it has it again")
					refused(t, b, Request{Key: "k", Kind: alone})
				}
			}
			for _, s := range ns.servers[:2] {
				s.Do(t, "FLUSHALL")
			}
			eventually(t, 15*time.Second, "told", func() bool { return lost.reasons() == "k:gone " })
			heldOn(t, ns, "k", 0, "no node keeps what it was given again")
			_, err := a.Lock(context.Background(), Request{Key: "k", Kind: kind})
			wantCode(t, err, "LOCKLOST")
			mustLock(t, b, Request{Key: "k", Kind: alone})
		})
	}
}

// So does what a named owner has, if it says RENEW, which shortens it, too. No node keeps what a RENEW has put there of a lock that is gone.
func TestQuorumRenewOutlivesAllNodes(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			a, _ := client(ns.engine(t, "one", time.Minute, ManagerOptions{}))
			b, _ := client(ns.engine(t, "two", time.Minute, ManagerOptions{}))
			time.Sleep(2 * time.Minute)
			alone := map[Kind]Kind{Plain: Plain, Read: Write, Write: Write}[kind]
			mustLock(t, a, Request{Key: "k", Kind: kind, Owner: "job", Lease: 30_000})
			heldOn(t, ns, "k", 3, "taken")
			for _, s := range ns.servers {
				s.Restart()
				for range 9 {
					time.Sleep(10 * time.Second)
					if err := a.Renew(context.Background(), RenewRequest{Key: "k", Side: kind, Owner: "job", Lease: 30_000}); err != nil {
						t.Fatal(kind, err)
					}
				}
				heldOn(t, ns, "k", 3, "it has it again")
				refused(t, b, Request{Key: "k", Kind: alone})
			}
			if err := a.Renew(context.Background(), RenewRequest{Key: "k", Side: kind, Owner: "job", Lease: 2000}); err != nil {
				t.Fatal(kind, err)
			}
			time.Sleep(2100 * time.Millisecond)
			wantCode(t, a.Renew(context.Background(), RenewRequest{Key: "k", Side: kind, Owner: "job", Lease: 30_000}), "NOTHELD")
			heldOn(t, ns, "k", 0, "it is gone")
			mustLock(t, b, Request{Key: "k", Kind: alone})
		})
	}
}

// It gets what the hold is then: if a RENEW, which waited for that renewal, has given it an end, it is given back at that end.
func TestQuorumSlowNodeHasTheLockAsItIs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, ManagerOptions{})
		a, al := client(m)
		mustLock(t, a, Request{Key: "k"})
		heldOn(t, ns, "k", 3, "on all nodes")
		time.Sleep(9 * time.Second)
		ns.servers[2].Do(t, "FLUSHALL")
		ns.link("one", 2).Delay(150*time.Millisecond, 0)
		ns.link("one", 1).Delay(250*time.Millisecond, 0) // it answers last, and makes the majority
		time.Sleep(1200 * time.Millisecond)              // the renewal is under way
		if err := a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 5000}); err != nil {
			t.Error(err)
		}
		time.Sleep(12 * time.Second)
		if got := ns.holding(t, "k"); got != 0 || al.reasons() != "k:expired " {
			t.Error(got, "have it still;", al.reasons())
		}
	})
}

func TestQuorumLossWhenNodesForgot(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, ManagerOptions{Watchdog: 3 * time.Second})
		a, al := client(m)
		mustLock(t, a, Request{Key: "k"})
		eventually(t, 5*time.Second, "on all nodes", func() bool { return ns.holding(t, "k") == 5 })
		for _, i := range []int{0, 2, 4} {
			ns.servers[i].Do(t, "FLUSHALL")
		}
		eventually(t, 5*time.Second, "told", func() bool { return al.reasons() != "" })
		if al.reasons() != "k:gone " {
			t.Fatal(al.reasons())
		}
	})
}

// The directed schedule: A has the lock on nodes 1, 2, 3; node 3 is restarted empty; B asks 3, 4 and 5.
func forgetfulMajority(t *testing.T, w *world.World, minUptime time.Duration) error {
	ns := bubbleNodes(w, 5)
	time.Sleep(minUptime + 2*time.Second) // they grow old enough
	one := ns.engine(t, "one", minUptime, ManagerOptions{})
	a, _ := client(one)
	ns.link("one", 3).Cut()
	ns.link("one", 4).Cut()
	mustLock(t, a, Request{Key: "k"})
	if ns.holding(t, "k") != 3 {
		t.Fatal(ns.holding(t, "k"))
	}
	ns.link("one", 2).Cut() // else its proxy gives it the lock again
	ns.servers[2].Restart()
	ns.link("two", 0).Cut()
	ns.link("two", 1).Cut()
	two := ns.engine(t, "two", minUptime, ManagerOptions{})
	b, _ := client(two)
	var err error
	for range 3 {
		if _, err = b.Lock(context.Background(), Request{Key: "k"}); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func TestQuorumWithoutTheUptimeRuleGivesTwoHolders(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		if err := forgetfulMajority(t, w, 0); err != nil {
			t.Fatal("this schedule no longer shows what the rule is for:", err)
		}
	})
}

func TestQuorumNodeThatForgotDoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		wantCode(t, forgetfulMajority(t, w, time.Minute), "NOQUORUM")
	})
}

func TestQuorumYoungNodeIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", time.Hour, ManagerOptions{})
		a, _ := client(m)
		_, err := a.Lock(context.Background(), Request{Key: "k"})
		wantCode(t, err, "NOQUORUM")
		for _, n := range m.Nodes() {
			if n.State != "young" || n.Trouble == "" {
				t.Fatalf("%+v", n)
			}
		}
	})
}

func TestQuorumRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, ManagerOptions{})
		a, _ := client(m)
		_, err := a.Lock(context.Background(), Request{Key: "k", Lease: 60001})
		wantCode(t, err, "ERR")
		_, err = a.Lock(context.Background(), Request{Key: "k", Replicas: 1})
		wantCode(t, err, "ERR")
		mustLock(t, a, Request{Key: "k", Lease: 60000})
		wantCode(t, a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 60001}), "ERR")
		if _, err := a.Lock(context.Background(), Request{Key: "short", Lease: 2}); err == nil { // NOQUORUM when the nodes take 10 ms
			t.Fatal("a lease that is all drift was granted")
		}
	})
}

func TestQuorumRenew(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, ManagerOptions{})
		a, al := client(m)
		mustLock(t, a, Request{Key: "k", Lease: 30000})
		if err := a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 1000}); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "over", func() bool { return al.reasons() == "k:expired " })
		b, _ := client(m)
		wantCode(t, b.Renew(context.Background(), RenewRequest{Key: "k"}), "NOTHELD")
	})
}

// When a majority answers, but takes longer than the node time-out, renewals do not count: the holder is told before anybody else can have
// the lock. That is so whether the steps reach the nodes in time, or too late as well.
func TestQuorumSlowMajority(t *testing.T) {
	const timeout, lease = 200 * time.Millisecond, 6 * time.Second
	for _, way := range []time.Duration{2 * timeout, timeout * 3 / 4} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			o, q := ManagerOptions{Watchdog: lease}, quorum.StoreOptions{NodeTimeout: timeout}
			m, n := ns.engine(t, "slow", 0, o, q), ns.engine(t, "other", 0, o, q)
			holder, told := client(m)
			mustLock(t, holder, Request{Key: "k"})
			other, _ := client(n)
			time.Sleep(2 * lease)
			refused(t, other, Request{Key: "k"}) // it is renewed
			for _, i := range []int{0, 2} {
				ns.link("slow", i).Delay(way, 0)
			}
			eventually(t, 2*lease, "somebody else has it", func() bool {
				time.Sleep(30 * time.Millisecond)
				was := told.reasons()
				_, err := other.Lock(context.Background(), Request{Key: "k"})
				if err == nil && was != "k:unrenewed " {
					t.Errorf("%v: somebody else has it, the holder was told: %q", way, was)
				}
				if err != nil && !errors.Is(err, ErrNotAcquired) {
					t.Fatal(err)
				}
				return err == nil
			})
		})
	}
}

// An owner with a name is one owner on every proxy. It has the lock or not: LOCK said again changes nothing but the token, which rises.
func TestQuorumOwnerWithAName(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		one := ns.engine(t, "one", 0, ManagerOptions{})
		two := ns.engine(t, "two", 0, ManagerOptions{})
		a, al := client(one)
		b, bl := client(two)
		g := mustLock(t, a, Request{Key: "k", Owner: "job", Fence: true, Lease: 10_000})
		again := mustLock(t, b, Request{Key: "k", Owner: "job", Fence: true, Lease: 10_000})
		if again.Token <= g.Token {
			t.Fatal(again, g)
		}
		time.Sleep(9 * time.Second)
		if al.reasons()+bl.reasons() != "" {
			t.Fatal(al.reasons(), bl.reasons())
		}
		mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "job"}, true)
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "job"}) // said again
		wantCode(t, err, "NOTHELD")
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
		again := ns.engine(t, "again", 0, ManagerOptions{})
		first := ns.engine(t, "first", 0, ManagerOptions{}, quorum.StoreOptions{NodeTimeout: 4 * time.Second})
		var all sync.WaitGroup
		for _, r := range everyLease("job") {
			all.Go(func() {
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

// Nodes that missed a grant or a release disagree, until the next one.
func TestQuorumNodesThatDisagree(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, ManagerOptions{})
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
		m := ns.engine(t, "one", 0, ManagerOptions{})
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
		namedTokensRise(t, named, "plain", Plain)
		namedTokensRise(t, named, "write", Write)
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
		m := ns.engine(t, "one", 0, ManagerOptions{})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k", Kind: Read})
		mustLock(t, b, Request{Key: "k", Kind: Read, Owner: "b", Lease: 30_000})
		if _, err := m.NewClient(ClientInfo{ID: 1e6}).Lock(context.Background(), Request{Key: "k", Kind: Write}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		_, err := a.Lock(context.Background(), Request{Key: "k", Kind: Write})
		wantCode(t, err, "DEADLOCK")
		_, err = a.Lock(context.Background(), Request{Key: "k"})
		wantCode(t, err, "LOCKKIND")
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		mustUnlock(t, b, UnlockRequest{Key: "k", Side: Read, Owner: "b"}, true)
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
		near, _ := client(ns.engine(t, "one", 0, ManagerOptions{}))
		far, _ := client(ns.engine(t, "two", 0, ManagerOptions{}))
		for _, before := range lockstore.Kinds[:3] {
			for _, now := range lockstore.Kinds[:3] {
				key := before.String() + ", then " + now.String()
				mustLock(t, near, Request{Key: key, Kind: before, Owner: "job:7", Lease: 30_000})
				mustUnlock(t, near, UnlockRequest{Key: key, Owner: "job:7"}, true)
				mustLock(t, far, Request{Key: key, Kind: now, Owner: "job:7", Lease: 30_000})
				mustUnlock(t, near, UnlockRequest{Key: key, Owner: "job:7"}, true)
				eventually(t, 5*time.Second, "free", func() bool { return ns.holding(t, key) == 0 })
			}
		}
	})
}

func TestQuorumMultiLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, ManagerOptions{})
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
		if _, err := b.MultiLock(context.Background(), []string{"a", "z"}, Request{Owner: "o", Lease: 30_000}); err != nil {
			t.Fatal(err)
		}
		// What an owner with a name had before ends when it would have, though another proxy's MULTILOCK with it fails.
		other := ns.engine(t, "two", 0, ManagerOptions{})
		mustLock(t, a, Request{Key: "p", Owner: "p", Lease: 20000})
		c, _ := client(other)
		eventually(t, 10*time.Second, "the nodes are reached", func() bool { return other.Nodes()[0].State == "up" })
		if _, err := c.MultiLock(context.Background(), []string{"p", "z"}, Request{Owner: "p", Lease: 5000}); !errors.Is(err, ErrNotAcquired) {
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
		one := ns.engine(t, "one", 0, ManagerOptions{Poll: time.Minute})
		two := ns.engine(t, "two", 0, ManagerOptions{Poll: time.Minute})
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
	ms := []*Manager{quorumEngine(t, addrs(servers), 0, ManagerOptions{}, patient), quorumEngine(t, addrs(servers), 0, ManagerOptions{}, patient)}
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

// everyKind is a request for each kind of lock, with and without a lease of its own, each of another key.
func everyKind() (all []Request) {
	for _, kind := range []Kind{Plain, Read, Write} {
		for _, lease := range []int64{0, 20000} {
			all = append(all, Request{Key: fmt.Sprintf("%v-%d", kind, lease), Kind: kind, Lease: lease})
		}
	}
	return all
}

// everyLease is everyKind for a named owner.
func everyLease(owner string) (all []Request) {
	for _, r := range everyKind() {
		if r.Owner = owner; r.Lease == 0 {
			r.Lease = 30_000
		}
		all = append(all, r)
	}
	return all
}

// heldOn waits until so many nodes have a key. It may be called by any goroutine.
func heldOn(t *testing.T, ns *simulated, key string, want int64, what string) bool {
	t.Helper()
	var n int64
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if n = ns.holding(t, key); n == want {
			return true
		}
	}
	t.Errorf("%s: %s: %d nodes have it, not %d", key, what, n, want)
	return false
}

// namedTokensRise: a named owner that has the lock, and had no token yet, does not get that of a former holder; said again its LOCK gives a higher one.
func namedTokensRise(t *testing.T, c *Client, key string, kind Kind) {
	t.Helper()
	last := mustLock(t, c, Request{Key: key, Kind: kind, Fence: true, Owner: "former", Lease: 30_000}).Token
	mustUnlock(t, c, UnlockRequest{Key: key, Side: kind, Owner: "former"}, true)
	mustLock(t, c, Request{Key: key, Kind: kind, Owner: "next", Lease: 30_000})
	for range 2 {
		g := mustLock(t, c, Request{Key: key, Kind: kind, Fence: true, Owner: "next", Lease: 30_000})
		if g.Token <= last {
			t.Errorf("%s: the next owner got token %d after %d", kind, g.Token, last)
		}
		last = g.Token
	}
}
