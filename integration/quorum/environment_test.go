package quorum

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// quorum is a proxy before independent nodes, over a link to each.
type quorum struct {
	t     *testing.T
	data  *testredis.Server
	nodes []*testredis.Server
	links []*testredis.Proxy
	p     *harness.Proxy
}

// quorumTimes are for nodes that are to count soon after their start, and for locks that are to be kept on a busy machine.
var quorumTimes = []string{"--quorum-max-lease", "8s", "--lock-watchdog-timeout", "8s", "--quorum-node-timeout", "800ms"}

// startQuorum starts n nodes and a proxy before them, and waits until all of them count.
func startQuorum(t *testing.T, n int, flags ...string) *quorum {
	t.Helper()
	return beforeNodes(t, harness.StartNodes(t, n), flags...)
}

func beforeNodes(t *testing.T, nodes []*testredis.Server, flags ...string) *quorum {
	t.Helper()
	q := &quorum{t: t, data: testredis.Start(t), nodes: nodes}
	q.p, q.links = q.another(flags...)
	return q
}

// another starts one more proxy before the same nodes, over links of its own, and waits until all of them count.
func (q *quorum) another(flags ...string) (*harness.Proxy, []*testredis.Proxy) {
	q.t.Helper()
	all := append([]string{}, quorumTimes...)
	var links []*testredis.Proxy
	for _, n := range q.nodes {
		links = append(links, testredis.NewProxy(q.t, n.Addr()))
		all = append(all, "--quorum", "redis://"+links[len(links)-1].Addr())
	}
	p := harness.StartProxy(q.t, q.data.URL(), append(all, flags...)...)
	w := harness.Dial(q.t, p.Addr())
	for i := range q.nodes {
		harness.Eventually(q.t, "node "+strconv.Itoa(i)+" counts", func() bool { return harness.NodeState(w, i, "state") == "up" })
	}
	w.Close()
	return p, links
}

// holding are the nodes on which a key exists, of those that are not away.
func (q *quorum) holding(key string, away ...int) (out []int) {
	q.t.Helper()
	gone := map[int]bool{}
	for _, i := range away {
		gone[i] = true
	}
	for i, n := range q.nodes {
		if !gone[i] && n.Do(q.t, "EXISTS", key).(int64) == 1 {
			out = append(out, i)
		}
	}
	return out
}

// nodeClock is a clock for a node; without a C compiler the test is skipped, loudly.
func nodeClock(t *testing.T) *testredis.Clock {
	t.Helper()
	c, err := testredis.NewClock(t, 0)
	if err != nil {
		t.Skip("*** CLOCKS OF NODES NOT TESTED:", err, "***")
	}
	return c
}

// wants sends a command and fails the test unless the reply begins so. NOQUORUM is asked again: nodes of a busy machine may be late.
func wants(t *testing.T, w *harness.Wire, reply string, words ...string) {
	t.Helper()
	got := w.Do(words...)
	for end := time.Now().Add(harness.Patience); !strings.HasPrefix(got, reply) && strings.HasPrefix(got, "-NOQUORUM ") && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		got = w.Do(words...)
	}
	if !strings.HasPrefix(got, reply) {
		t.Errorf("%s: %q, not %q", strings.Join(words, " "), got, reply)
	}
}

// promptly says how long f takes, which must be far below what leases are.
func promptly(t *testing.T, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > harness.Bound(5*time.Second) {
		t.Errorf("%s took %v", what, took)
	} else {
		t.Logf("%s: %v", what, took.Round(time.Millisecond))
	}
}
