package cluster

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// shards makes a snapshot of masters with slots, each with one replica: a and a', b and b' …
func shards(ids string) *Snapshot {
	s := &Snapshot{copies: map[string][]*Node{}}
	for i, id := range strings.Split(ids, "") {
		master, replica := &Node{ID: id}, &Node{ID: id + "'"}
		s.Masters, s.Replicas = append(s.Masters, master), append(s.Replicas, replica)
		s.copies[master.ID] = []*Node{replica}
		s.give(i, master)
	}
	s.Masters = append(s.Masters, &Node{ID: "empty"}) // a master without slots is no shard
	return s
}

func TestKinship(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		known, view string
		want        int
	}{
		{"abc", "a b c", ours},
		{"abc", "a b x y", ours},
		{"abc", "a x y z", foreign},
		{"abc", "x y z", foreign},
		{"abc", "", foreign},
		{"abc", "a b' z", ours},         // b has failed over and is forgotten
		{"abc", "a' b' c'", ours},       // all have
		{"abc", "empty x y", foreign},   // who had no slots tells nothing
		{"ab", "a", halfOurs},           // b has been removed, or a is in another cluster
		{"ab", "a b", ours},             //
		{"abcd", "a b x y", halfOurs},   //
		{"abcde", "a b x y z", foreign}, //
		{"a", "x", foreign},             //
		{"a", "a x y z", ours},          // it has grown
	} {
		v := &view{}
		for _, id := range strings.Fields(c.view) {
			v.nodes = append(v.nodes, described{id: id, master: !strings.HasSuffix(id, "'")})
		}
		if got := shards(c.known).membershipOf(v); got != c.want {
			t.Errorf("of %q the view %q has membership %d, want %d", c.known, c.view, got, c.want)
		}
	}
	if new(Snapshot).membershipOf(&view{}) != ours {
		t.Error("the first view is believed")
	}
}

// A node of another cluster, with owners for all slots, comes to the address of one of ours: nothing of ours goes there, neither
// of its own slots nor, above all, of the slots of healthy masters.
func TestForeignNodeAtAnAddress(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	var said logged
	o := Options{Refresh: time.Hour, RetryFor: 2 * time.Second}
	o.Node.Logger = slog.New(slog.NewTextHandler(&said, nil))
	c := openCluster(t, tc, o)
	taken := tc.Servers[0] // the seed, too
	firstSlots, all := c.Snapshot().Owner(0), learn(t, c)
	if firstSlots.ID != tc.ID(taken) {
		t.Fatal("another node has the first slots")
	}
	healthy := c.Snapshot().Owner(Slots - 1)

	taken.Do(t, "CLUSTER", "RESET", "HARD")
	taken.Do(t, "CLUSTER", "ADDSLOTSRANGE", 0, Slots-1)
	taken.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") // as if it were another process
	for range 20 {
		c.Refreshed(t.Context())
		if at := c.Snapshot().Owner(Slots - 1); at != healthy {
			t.Fatalf("a healthy master's slot is believed to be at %s %s", at.ID, at.Addr)
		}
	}
	cl := newClient(t, c, all, 2)
	for i := range 15 {
		key := fmt.Sprintf("key:%d", i)
		p := NewPlan(cl.table.command("SET", key, "v"))
		cl.e.Do(t.Context(), []*Plan{p})
		if lost := Slot([]byte(key)) < Slots/3; lost != (string(p.Reply) != "+OK\r\n") {
			t.Errorf("SET of slot %d: %q, %v", Slot([]byte(key)), p.Reply, p.Err)
		}
	}
	if n := taken.Do(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%v keys went into the foreign cluster", n)
	}
	// The seeds have no node id to prove: there the view is judged.
	seed := upstream.NewNode(c.target.At(taken.Addr(), ""), c.opts.Node)
	defer seed.Close()
	eventually(t, "the view at the seed's address is another cluster's", func() bool {
		v, err := c.viewOf(t.Context(), seed, taken.Addr())
		return err == nil && c.Snapshot().membershipOf(v) == foreign
	})
	// Not at all, when the other nodes have found out first, and name no address for it any more.
	if n := strings.Count(said.String(), "another server answers"); n > 1 {
		t.Errorf("the log says %d times that another server answers:\n%s", n, said.String())
	}
}

// logged is what a logger wrote.
type logged struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
