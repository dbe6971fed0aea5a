package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// nodes are independent servers, each behind a relay.
type nodes struct {
	servers []*testredis.Server
	relays  []*testredis.Proxy
}

func startNodes(t *testing.T, n int) *nodes {
	t.Helper()
	ns := &nodes{}
	for range n {
		s := testredis.Start(t)
		ns.servers = append(ns.servers, s)
		ns.relays = append(ns.relays, testredis.NewProxy(t, s.Addr()))
	}
	return ns
}

// quorumEngine is a Manager at work on nodes. Those must have been up for minUptime; 0 switches that rule off, which only
// a test can.
func quorumEngine(t *testing.T, addrs []string, minUptime time.Duration, o Options) *Manager {
	t.Helper()
	o.Logger = testLog()
	if o.Quorum.NodeTimeout == 0 {
		o.Quorum.NodeTimeout = 2 * time.Second // wide: the machine may be busy
	}
	var controls []*upstream.Control
	for _, addr := range addrs {
		c := upstream.NewControl(upstream.Target{Network: "tcp", Addr: addr, MinUptime: minUptime},
			upstream.ControlOptions{DialTimeout: 2 * time.Second, Logger: o.Logger})
		controls = append(controls, c)
		o.Quorum.Nodes = append(o.Quorum.Nodes, QuorumNode{Name: addr, Control: c})
	}
	return atWork(t, New(controls[0], o), func() {
		for _, c := range controls {
			c.Close()
		}
	})
}

func (ns *nodes) addrs() (out []string) {
	for _, s := range ns.servers {
		out = append(out, s.Addr())
	}
	return out
}

func (ns *nodes) relayed() (out []string) {
	for _, r := range ns.relays {
		out = append(out, r.Addr())
	}
	return out
}

// holding is on how many of the nodes that answer the key exists.
func (ns *nodes) holding(t *testing.T, key string, down ...int) (n int64) {
	t.Helper()
	dead := map[int]bool{}
	for _, i := range down {
		dead[i] = true
	}
	for i, s := range ns.servers {
		if !dead[i] {
			n += s.Do(t, "EXISTS", key).(int64)
		}
	}
	return n
}

func TestQuorumLockAndUnlock(t *testing.T) {
	ns := startNodes(t, 5)
	m := quorumEngine(t, ns.addrs(), 0, Options{})
	a, _ := client(m)
	b, _ := client(m)
	mustLock(t, a, Request{Key: "k"})
	eventually(t, 5*time.Second, "on all nodes", func() bool { return ns.holding(t, "k") == 5 })
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
	eventually(t, 5*time.Second, "free on all nodes", func() bool { return ns.holding(t, "k") == 0 })
	mustLock(t, b, Request{Key: "k"})
}

// What two nodes out of five that are away change: nothing. Three: nobody gets a lock, and none is left behind.
func TestQuorumWithNodesDown(t *testing.T) {
	ns := startNodes(t, 5)
	m := quorumEngine(t, ns.addrs(), 0, Options{Watchdog: 2 * time.Second, Quorum: QuorumOptions{NodeTimeout: 500 * time.Millisecond}})
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
	mustLock(t, b, Request{Key: "k2"})
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
}

// A hold whose majority has gone is lost, and its holder hears of it before anybody else can have the lock.
func TestQuorumLossWhenTheMajorityHasGone(t *testing.T) {
	ns := startNodes(t, 5)
	m := quorumEngine(t, ns.addrs(), 0, Options{Watchdog: 2 * time.Second})
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
}

func TestQuorumLossWhenNodesForgot(t *testing.T) {
	ns := startNodes(t, 5)
	m := quorumEngine(t, ns.addrs(), 0, Options{Watchdog: 3 * time.Second})
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
}

// The directed schedule: A has the lock on nodes 1, 2, 3; node 3 is restarted empty; B asks 3, 4 and 5.
func forgetfulMajority(t *testing.T, minUptime time.Duration) error {
	ns := startNodes(t, 5)
	if minUptime > 0 {
		time.Sleep(minUptime + 2*time.Second) // they grow old enough
	}
	one := quorumEngine(t, ns.relayed(), minUptime, Options{})
	a, _ := client(one)
	ns.relays[3].Disable()
	ns.relays[4].Disable()
	mustLock(t, a, Request{Key: "k"})
	if ns.holding(t, "k") != 3 {
		t.Fatal(ns.holding(t, "k"))
	}
	ns.servers[2].Restart()
	two := quorumEngine(t, append([]string{"127.0.0.1:1", "127.0.0.1:1"}, ns.addrs()[2:]...), minUptime, Options{})
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
	if err := forgetfulMajority(t, 0); err != nil {
		t.Fatal("this schedule no longer shows what the rule is for:", err)
	}
}

func TestQuorumNodeThatForgotDoesNotCount(t *testing.T) {
	err := forgetfulMajority(t, 3*time.Second)
	wantCode(t, err, "NOQUORUM")
}

func TestQuorumYoungNodeIsNamed(t *testing.T) {
	ns := startNodes(t, 3)
	m := quorumEngine(t, ns.addrs(), time.Hour, Options{})
	a, _ := client(m)
	_, err := a.Lock(context.Background(), Request{Key: "k"})
	wantCode(t, err, "NOQUORUM")
	for _, n := range m.Nodes() {
		if n.State != "young" || n.Trouble == "" {
			t.Fatalf("%+v", n)
		}
	}
}

func TestQuorumRefusals(t *testing.T) {
	ns := startNodes(t, 3)
	m := quorumEngine(t, ns.addrs(), 0, Options{})
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
}

func TestQuorumRenew(t *testing.T) {
	ns := startNodes(t, 3)
	m := quorumEngine(t, ns.addrs(), 0, Options{})
	a, al := client(m)
	mustLock(t, a, Request{Key: "k", Lease: 30000})
	if err := a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 1000}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "over", func() bool { return al.reasons() == "k:expired " })
	b, _ := client(m)
	wantCode(t, b.Renew(context.Background(), RenewRequest{Key: "k"}), "NOTHELD")
}
