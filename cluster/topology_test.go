package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestDiscovery(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1)
	nobody := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	for _, s := range tc.Servers { // any node will do, a replica too
		c := openTarget(t, upstream.ClusterTarget{Seeds: []string{nobody, s.Addr()}, Node: upstream.Target{Network: "tcp"}}, Options{})
		snapshot := c.Snapshot()
		if len(snapshot.Masters) != 3 || len(snapshot.Replicas) != 3 {
			t.Fatalf("%d masters, %d replicas", len(snapshot.Masters), len(snapshot.Replicas))
		}
		for i, n := range snapshot.Masters {
			if n.Addr != tc.Servers[i].Addr() || n.ID != tc.ID(tc.Servers[i]) || snapshot.Owner(Slots*i/3) != n || snapshot.Owner(Slots*(i+1)/3-1) != n {
				t.Errorf("master %d is %v", i, n)
			}
		}
	}
	// What SLOTS says is what SHARDS says.
	c := openCluster(t, tc, Options{})
	var replies []resp.Reply
	eventually(t, "the node answers in time", func() (yes bool) {
		var err error
		replies, err = c.ask(context.Background(), c.Snapshot().Masters[0].up, []string{"CLUSTER", "SHARDS"}, []string{"CLUSTER", "SLOTS"}, []string{"CLUSTER", "NODES"})
		return err == nil
	})
	fault := resp.Reply{Kind: '-', Text: []byte("ERR unknown subcommand")}
	byShards, err1 := readView(replies[0], fault, replies[2], "h", false)
	bySlots, err2 := readView(fault, replies[1], replies[2], "h", false)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for slot := range Slots {
		a, b := byShards.nodes[byShards.owner[slot]], bySlots.nodes[bySlots.owner[slot]]
		if a.id != b.id || a.addr != b.addr || a.epoch != b.epoch || a.epoch == 0 || !a.master || !b.master {
			t.Fatalf("slot %d: %+v, %+v", slot, a, b)
		}
	}
	if len(byShards.nodes) != 6 || len(bySlots.nodes) < 3 { // SLOTS leaves out replicas that are not ready
		t.Errorf("%d and %d nodes", len(byShards.nodes), len(bySlots.nodes))
	}
	if _, err := readView(fault, fault, fault, "h", false); !errors.Is(err, errNoTopology) {
		t.Errorf("got %v", err)
	}
	testEpochs(t, c, byShards)
}

// A view that is behind takes no slot back.
func testEpochs(t *testing.T, c *Cluster, v *view) {
	first := new(Snapshot).after(v, nil, c.openNode)
	moved := *v
	moved.nodes = append([]described(nil), v.nodes...)
	target := v.owner[Slots-1]
	moved.nodes[target].epoch = 100
	moved.owner[0] = target
	second := first.after(&moved, nil, c.openNode)
	if second.Owner(0) != first.Owner(Slots-1) || second.Owner(1) != first.Owner(1) {
		t.Fatal("the slot was not moved, or nodes were made anew")
	}
	if third := second.after(v, nil, c.openNode); third.Owner(0) != second.Owner(0) {
		t.Error("the slot went back")
	}
	gone := *v
	gone.nodes = append([]described(nil), v.nodes...)
	gone.nodes[target].failed = true
	if third := second.after(&gone, nil, c.openNode); third.Owner(0) != first.Owner(0) || third.Owner(Slots-1) != nil {
		t.Error("a failed node has slots")
	}
	if first.stamp == second.stamp || first.stamp != new(Snapshot).after(v, nil, c.openNode).stamp {
		t.Error("stamps")
	}
}

func TestNoCluster(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--requirepass x")
	for url, want := range map[string]string{
		"redis-cluster://:x@" + s.Addr():                                "cluster support disabled",
		"redis-cluster://" + s.Addr():                                   "NOAUTH",
		"redis-cluster://:y@" + s.Addr():                                "WRONGPASS",
		fmt.Sprint("redis-cluster://127.0.0.1:", testredis.FreePort(t)): "refused",
	} {
		where, err := upstream.ParseURL(url)
		target, _ := where.Cluster()
		if err != nil {
			t.Fatal(err)
		}
		for slow, end := true, time.Now().Add(time.Minute); slow && time.Now().Before(end); slow = errors.Is(err, errSlow) { // a busy machine may be
			_, err = Open(context.Background(), target, Options{Node: upstream.NodeOptions{Logger: slog.New(slog.DiscardHandler)}})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", url, err)
		}
	}
}

func TestRefreshesCollapse(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{Refresh: time.Hour})
	before := c.Stats().Refreshes
	for range 1000 {
		c.Refresh()
	}
	<-c.refreshFrom(nil)
	if n := c.Stats().Refreshes - before; n < 1 || n > 100 { // a few: one may end between two calls
		t.Errorf("%d refreshes", n)
	}
	c2 := openCluster(t, tc, Options{Refresh: 20 * time.Millisecond})
	eventually(t, "the timer refreshes", func() bool { return c2.Stats().Refreshes > 3 })
}

// moveBehind moves a slot without c knowing, and sends a command there.
func moveBehind(t *testing.T, tc *testredis.Cluster, c *Cluster, cl *client) {
	t.Helper()
	key := keyIn(100)
	cl.expect("SET "+key+" v", "+OK\r\n")
	if err := tc.MoveSlot(100, tc.Servers[0], tc.Servers[1]); err != nil {
		t.Fatal(err)
	}
	cl.expect("GET "+key, "$1\r\nv\r\n")
	if c.Stats().Moved == 0 {
		t.Error("no redirect")
	}
	// The others hear of it by gossip; whoever asks one of them too soon is redirected once more.
	eventually(t, "the topology has the move", func() bool {
		cl.expect("GET "+key, "$1\r\nv\r\n")
		return c.Snapshot().Owner(100).ID == tc.ID(tc.Servers[1])
	})
}

// Nodes behind a NAT call themselves by names that only the map can tell.
func TestAddressMap(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, "--cluster-announce-hostname inner.invalid", "--cluster-preferred-endpoint-type hostname")
	var entries []string
	for _, s := range tc.Servers {
		entries = append(entries, fmt.Sprintf("inner.invalid:%d=%s", s.Port(), s.Addr()))
	}
	for _, text := range []string{strings.Join(entries, ","), "inner.invalid=127.0.0.1"} {
		m, err := ParseAddressMap(text)
		if err != nil {
			t.Fatal(err)
		}
		c := openCluster(t, tc, Options{AddressMap: m, Refresh: time.Hour})
		cl := newClient(t, c, learn(t, c), 2)
		moveBehind(t, tc, c, cl)
		if err := tc.MoveSlot(100, tc.Servers[1], tc.Servers[0]); err != nil {
			t.Fatal(err)
		}
		cl.expect("FLUSHALL", "+OK\r\n")
	}
	for _, bad := range []string{"a", "a=", "=b", "a:1=b", "a=b:1", "a=b,a=c"} {
		if m, err := ParseAddressMap(bad); err == nil {
			t.Errorf("%q: got %v", bad, m)
		}
	}
}

// A node that tells no host is at the host that was asked.
func TestUnknownEndpoint(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, "--cluster-preferred-endpoint-type unknown-endpoint")
	changes := make(chan *Snapshot, 10)
	c := openCluster(t, tc, Options{Refresh: time.Hour})
	c.OnChanged(func(before, now *Snapshot) { changes <- before; changes <- now })
	first := c.Snapshot()
	if first.Owner(100) == nil {
		t.Error("the first topology is not known")
	}
	moveBehind(t, tc, c, newClient(t, c, learn(t, c), 3))
	if before, now := <-changes, <-changes; before != first || before.Owner(100) == now.Owner(100) || now.Owner(100).ID != tc.ID(tc.Servers[1]) {
		t.Error("the change was not told")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca := testredis.NewAuthority(t)
	cert, key := ca.Issue("127.0.0.1")
	tc := testredis.StartCluster(t, 3, 0, "--tls-cluster yes", "--tls-cert-file "+cert, "--tls-key-file "+key, "--tls-ca-cert-file "+ca.File, "--tls-auth-clients no")
	port, err := redis.Strings(tc.Servers[0].Do(t, "CONFIG", "GET", "tls-port"), nil)
	if err != nil {
		t.Fatal(err)
	}
	where, err := upstream.ParseURL("rediss-cluster://127.0.0.1:" + port[1])
	target, _ := where.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	target.Node.TLS.RootCAs = ca.Pool
	c := openTarget(t, target, Options{Refresh: time.Hour})
	cl := newClient(t, c, learn(t, c), 3)
	cl.expect("MSET a 1 b 2 c 3", "+OK\r\n")
	cl.expect("DBSIZE", ":3\r\n")
	moveBehind(t, tc, c, cl)
	for i, n := range c.Snapshot().Masters {
		if n.Addr == tc.Servers[i].Addr() {
			t.Errorf("%s is not the port of TLS", n.Addr)
		}
	}
	target.Node.TLS.RootCAs = nil
	if c, err := Open(context.Background(), target, Options{Node: upstream.NodeOptions{Logger: slog.New(slog.DiscardHandler)}}); err == nil {
		c.Close()
		t.Error("a certificate of an unknown authority was taken")
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, "--requirepass geheim")
	where, err := upstream.ParseURL("redis-cluster://:geheim@" + tc.Servers[1].Addr())
	target, _ := where.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	c := openTarget(t, target, Options{})
	all := learn(t, c)
	stranger := newClient(t, c, all, 2)
	stranger.expect("MSET a 1 b 2", "error: NOAUTH Authentication required.")
	stranger.expect("SCAN 0", "error: NOAUTH Authentication required.")
	known := &client{t: t, table: all, e: c.Executor(upstream.Identity{Proto: 3, Password: "geheim"}, NewHome())}
	t.Cleanup(known.e.Close)
	known.expect("MSET a 1 b 2 c 3", "+OK\r\n")
	known.expect("EVAL return{redis.call('get',KEYS[1])} 1 b", "*1\r\n$1\r\n2\r\n")
	known.expect("DBSIZE", ":3\r\n")
	if keys, _ := known.scanAll(t); len(keys) != 3 {
		t.Errorf("got %v", keys)
	}
	liar := &client{t: t, table: all, e: c.Executor(upstream.Identity{Proto: 3, Password: "falsch"}, NewHome())}
	t.Cleanup(liar.e.Close)
	var refusal *upstream.ReplyError
	p := NewPlan(all.command("GET", "a"))
	if liar.e.Do(context.Background(), []*Plan{p}); !errors.As(p.Err, &refusal) || !strings.HasPrefix(refusal.Line, "WRONGPASS") {
		t.Errorf("got %v", p.Err)
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	a, b := &Node{Addr: "10.0.0.1:7000"}, &Node{Addr: "[::1]:7001"}
	s := &Snapshot{names: map[string]*Node{"10.0.0.1:7000": a, "a.example:7000": a, "[::1]:7001": b}}
	for addr, want := range map[string]*Node{
		"10.0.0.1:7000": a, "a.example:7000": a, ":7000": a, "?:7000": a, "::1:7001": b, "[::1]:7001": b,
		"10.0.0.1:7001": nil, "evil:7000": nil, "": nil, "x": nil, ":": nil,
	} {
		if got := s.named(addr, a); got != want {
			t.Errorf("%q: got %v", addr, got)
		}
	}
}

// A node that has left is closed when nobody uses it.
func TestNodeLeaves(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1)
	c := openCluster(t, tc, Options{Refresh: 50 * time.Millisecond})
	leaves := tc.Servers[5]
	node := c.Snapshot().withID(tc.ID(leaves))
	if node == nil {
		t.Fatal("not there")
	}
	c.Acquire(node)
	for _, s := range tc.Servers[:5] {
		s.Do(t, "CLUSTER", "FORGET", tc.ID(leaves))
	}
	// It would come back by itself, and must not speak for the cluster meanwhile.
	leaves.Kill()
	eventually(t, "it has left", func() bool { return c.Snapshot().withID(tc.ID(leaves)) == nil })
	state := func() (closed bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return node.closed
	}
	if state() {
		t.Error("closed under its user")
	}
	c.Release(node)
	eventually(t, "it is closed", state)

	// Users that never look again do not keep it for ever.
	leaves = tc.Servers[4]
	node = c.Snapshot().withID(tc.ID(leaves))
	c.mu.Lock()
	c.leftFor = 20 * time.Millisecond
	c.mu.Unlock()
	c.Acquire(node)
	defer c.Release(node)
	for _, s := range tc.Servers[:4] {
		s.Do(t, "CLUSTER", "FORGET", tc.ID(leaves))
	}
	leaves.Kill()
	eventually(t, "it is closed, too", state)
}

// A node that was reset knows of nobody else: what it says is not what the cluster looks like.
func TestNodeThatWasReset(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{Refresh: time.Hour}) // whose only seed it is
	reset := tc.Servers[0]
	reset.Do(t, "CLUSTER", "RESET", "HARD")
	for range 20 {
		c.Refreshed(t.Context())
		s := c.Snapshot()
		if s.Owner(Slots-1) == nil || s.Owner(Slots/2) == nil {
			t.Fatal("the other masters are not known any more")
		}
	}
	for _, s := range tc.Servers[1:] {
		s.Do(t, "CLUSTER", "DELSLOTSRANGE", 0, Slots/3-1) // nobody's, everybody says so
	}
	eventually(t, "what has no owner has none", func() bool {
		c.Refreshed(t.Context())
		s := c.Snapshot()
		return s.Owner(0) == nil && s.Owner(Slots-1) != nil
	})
}
