package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// quorumEngine is a Manager at work on servers. Those must have been up for minUptime; 0 switches that rule off, which only
// a test can.
// patient has the nodes of a quorum asked for longer than a busy machine stands still.
var patient = quorum.Options{NodeTimeout: 10 * time.Second}

func quorumEngine(t *testing.T, addrs []string, minUptime time.Duration, o Options, times ...quorum.Options) *Manager {
	t.Helper()
	var targets []upstream.Target
	for _, addr := range addrs {
		targets = append(targets, upstream.Target{Network: "tcp", Addr: addr, MinUptime: minUptime})
	}
	return quorumOf(t, targets, o, times...)
}

func quorumOf(t *testing.T, targets []upstream.Target, o Options, times ...quorum.Options) *Manager {
	t.Helper()
	o.Logger = testLog()
	nodes := quorum.Options{NodeTimeout: 2 * time.Second} // wide: the machine may be busy
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
func (ns *simulated) engine(t *testing.T, proxy string, minUptime time.Duration, o Options, times ...quorum.Options) *Manager {
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
	m := quorumEngine(t, addrs(servers), 0, Options{}, patient)
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
		m := ns.engine(t, "one", 0, Options{Watchdog: 2 * time.Second}, quorum.Options{NodeTimeout: 500 * time.Millisecond})
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
		mustLock(t, b, Request{Key: "k2", Lease: 20000}) // for longer than what follows takes
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
		wantCode(t, b.Renew(context.Background(), RenewRequest{Key: "k2"}), "NOQUORUM")
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
		m := ns.engine(t, "one", 0, Options{Watchdog: 2 * time.Second})
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

// A node that lost a lock gets it again with the next renewal, also when its answers are the last to come and nobody waits for them.
func TestQuorumSlowNodeHasTheLockAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, Options{})
		a, al := client(m)
		mustLock(t, a, Request{Key: "k"})
		mustLock(t, a, Request{Key: "named", Owner: "job"})
		eventually(t, 5*time.Second, "on all nodes", func() bool { return ns.holding(t, "k")+ns.holding(t, "named") == 10 })
		ns.link("one", 2).Delay(50*time.Millisecond, 0)
		ns.servers[2].Restart()
		time.Sleep(15 * time.Second) // a renewal
		if got := ns.holding(t, "k") + ns.holding(t, "named"); got != 10 || al.reasons() != "" {
			t.Error(got, al.reasons())
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		mustUnlock(t, a, UnlockRequest{Key: "named", Owner: "job"}, true)
		time.Sleep(time.Minute)
		if got := ns.holding(t, "k") + ns.holding(t, "named"); got != 0 {
			t.Error(got, "are left")
		}
	})
}

// It gets what the hold is then: if a RENEW, which waited for that renewal, has given it an end, no more than that.
func TestQuorumSlowNodeHasTheLockAsItIs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{})
		a, al := client(m)
		mustLock(t, a, Request{Key: "k"})
		mustLock(t, a, Request{Key: "named", Owner: "job"})
		eventually(t, 5*time.Second, "on all nodes", func() bool { return ns.holding(t, "k")+ns.holding(t, "named") == 6 })
		time.Sleep(9 * time.Second)
		forgets := ns.servers[2]
		forgets.Do(t, "FLUSHALL")
		ns.link("one", 2).Delay(150*time.Millisecond, 0)
		ns.link("one", 1).Delay(250*time.Millisecond, 0) // it answers last, and makes the majority
		time.Sleep(1200 * time.Millisecond)              // renewals are under way
		var both sync.WaitGroup
		for _, r := range []RenewRequest{{Key: "k", Lease: 5000}, {Key: "named", Owner: "job", Lease: 5000}} {
			both.Go(func() {
				if err := a.Renew(context.Background(), r); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		time.Sleep(2 * time.Second)
		for _, key := range []string{"k", "named"} {
			if left := forgets.Do(t, "PTTL", key).(int64); left < 0 || left > 3000 {
				t.Errorf("%s: %d ms are left", key, left)
			}
		}
		time.Sleep(10 * time.Second)
		if got := ns.holding(t, "k") + ns.holding(t, "named"); got != 0 || al.reasons() != "k:expired " {
			t.Error(got, "have it still;", al.reasons())
		}
	})
}

func TestQuorumLossWhenNodesForgot(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		m := ns.engine(t, "one", 0, Options{Watchdog: 3 * time.Second})
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
	one := ns.engine(t, "one", minUptime, Options{})
	a, _ := client(one)
	ns.link("one", 3).Cut()
	ns.link("one", 4).Cut()
	mustLock(t, a, Request{Key: "k"})
	if ns.holding(t, "k") != 3 {
		t.Fatal(ns.holding(t, "k"))
	}
	ns.servers[2].Restart()
	ns.link("two", 0).Cut()
	ns.link("two", 1).Cut()
	two := ns.engine(t, "two", minUptime, Options{})
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
		m := ns.engine(t, "one", time.Hour, Options{})
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
		m := ns.engine(t, "one", 0, Options{})
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
		m := ns.engine(t, "one", 0, Options{})
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
			o, q := Options{Watchdog: lease}, quorum.Options{NodeTimeout: timeout}
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
