package quorum

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// clockedNodes starts n nodes, the one given with a clock that can be set.
func clockedNodes(t *testing.T, n int, with map[int]*testredis.Clock) (nodes []*testredis.Server) {
	t.Helper()
	for i := range n {
		if c := with[i]; c != nil {
			nodes = append(nodes, testredis.StartWithClock(t, c))
		} else {
			nodes = append(nodes, testredis.Start(t))
		}
	}
	return nodes
}

// The directed schedule: A has the lock on nodes 0, 1, 2; node 2 is restarted, empty; B asks 2, 3 and 4. What keeps B out is
// that a node counts only when it has been up for the longest lease: when a clock that is set makes node 2 look older than it
// is, which is that rule switched off, there are two holders.
func TestQuorumRestartedNode(t *testing.T) {
	t.Parallel()
	for name, lies := range map[string]bool{"with the rule": false, "without it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := nodeClock(t)
			q := beforeNodes(t, clockedNodes(t, 5, map[int]*testredis.Clock{2: c}))
			a := harness.Dial(t, q.p.Addr())
			q.links[3].Disable()
			q.links[4].Disable()
			wants(t, a, "+OK", "LOCK", "k")
			if on := q.holding("k"); len(on) != 3 || on[2] != 2 {
				t.Fatalf("on %v", on)
			}
			if lies {
				q.links[2].Disable() // or A's renewal would bring the lock back to it before B asks
			}
			q.nodes[2].Restart()
			if lies {
				c.Step(time.Hour)
			}
			b := harness.Dial(t, q.awayFrom(0, 1).Addr())
			var got string
			harness.Eventually(t, "B's proxy reaches nodes 3 and 4, and 2 counts or is young", func() bool {
				got = b.Do("LOCK", "k")
				return got == "+OK\r\n" || got == "$-1\r\n" || strings.HasPrefix(got, "-NOQUORUM 2 of 5 ") && harness.NodeState(b, 2, "state") == "young"
			})
			if first := a.Do("RENEW", "k"); lies != (got == "+OK\r\n") {
				t.Errorf("A: %q, B: %q", first, got)
			}
		})
	}
}

// awayFrom starts a proxy that cannot reach some of the nodes, and does not wait for any.
func (q *quorum) awayFrom(some ...int) *harness.Proxy {
	q.t.Helper()
	flags := append([]string{}, "--quorum-max-lease", "8s", "--lock-watchdog-timeout", "8s", "--quorum-node-timeout", "200ms")
	for i, n := range q.nodes {
		link := testredis.NewProxy(q.t, n.Addr())
		for _, k := range some {
			if i == k {
				link.Disable()
			}
		}
		flags = append(flags, "--quorum", "redis://"+link.Addr())
	}
	return harness.StartProxy(q.t, q.data.URL(), flags...)
}

// A node whose clock is set forward has let locks run out, as if it had forgotten them: it counts as little as one that was
// restarted. The same schedule, then, gives no two holders to proxies that saw it.
func TestQuorumClockSet(t *testing.T) {
	t.Parallel()
	c := nodeClock(t)
	q := beforeNodes(t, clockedNodes(t, 5, map[int]*testredis.Clock{2: c}))
	other, links := q.another()
	a, b := harness.Dial(t, q.p.Addr()), harness.Dial(t, other.Addr())
	q.links[3].Disable()
	q.links[4].Disable()
	wants(t, a, "+OK", "LOCK", "k")
	links[0].Disable()
	links[1].Disable()
	wants(t, b, "$-1", "LOCK", "k")
	c.Step(time.Hour)
	wants(t, b, "-NOQUORUM 2 of 5 nodes count, 3 are needed: the lock was not taken; 1 ", "LOCK", "k")
	if got := harness.NodeState(b, 2, "error"); harness.NodeState(b, 2, "state") != "young" || !strings.Contains(got, "its clock was set by ") {
		t.Errorf("%q", got)
	}
	if n, err := strconv.Atoi(harness.NodeState(b, 2, "counts_in")); err != nil || n < 1 || n > 9 {
		t.Errorf("it counts in %d s, %v", n, err)
	}
	for _, l := range append(q.links, links...) {
		l.Enable()
	}
	a.Do("UNLOCK", "k") // of nodes 0 and 1, or of more if those came back in time
	harness.Eventually(t, "it counts again", func() bool { return harness.NodeState(b, 2, "state") == "up" })
	harness.Eventually(t, "the lock is free", func() bool { return b.Do("LOCK", "k") == "+OK\r\n" })
	c.Step(-time.Hour)
	harness.Eventually(t, "it is seen", func() bool { return strings.Contains(harness.NodeState(b, 2, "error"), "its clock was set by -") })
	wants(t, b, ":1", "RENEW", "k")
	wants(t, b, ":1", "UNLOCK", "k")
	wants(t, b, "+OK", "LOCK", "k")
}

// Tokens rise though the node whose clock was ahead is gone, and though it comes back empty and behind.
func TestQuorumFenceRises(t *testing.T) {
	t.Parallel()
	c := nodeClock(t)
	c.Step(time.Hour)
	q := beforeNodes(t, clockedNodes(t, 3, map[int]*testredis.Clock{0: c}))
	w := harness.Dial(t, q.p.Addr())
	last, hour := int64(0), time.Now().Add(50*time.Minute).UnixMicro()
	next := func(when string) {
		t.Helper()
		var got string
		harness.Eventually(t, "granted "+when, func() bool { got = w.Do("LOCK", "k", "FENCE"); return got[0] == ':' })
		if n := harness.Number(t, got); n <= last || n < hour {
			t.Errorf("%s: %d after %d", when, n, last)
		} else {
			last = n
		}
		wants(t, w, ":1", "UNLOCK", "k")
	}
	for i := range q.nodes {
		harness.Eventually(t, "all nodes count", func() bool { return harness.NodeState(w, i, "state") == "up" })
	}
	q.links[1].Disable() // any two of the three are enough: so that the one that is ahead is surely among them
	next("by the node that is ahead, and one more")
	q.links[1].Enable()
	harness.Eventually(t, "node 1 is back", func() bool { return harness.NodeState(w, 1, "state") == "up" })
	next("with all nodes")
	q.links[0].Disable()
	next("without the node that is ahead")
	next("again")
	c.Step(-2 * time.Hour)
	q.nodes[0].Restart()
	q.links[0].Enable()
	harness.Eventually(t, "the jump of its clock is seen", func() bool { return strings.Contains(harness.NodeState(w, 0, "error"), "its clock was set by -") })
	q.links[1].Disable()
	next("by a node that knows, and one that has forgotten")
	q.links[1].Enable()
	q.links[2].Disable()
	harness.Eventually(t, "node 1 is back", func() bool { return harness.NodeState(w, 1, "state") == "up" })
	next("by the other two")
}
