package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestClusterApart: with --locks the locks are on a cluster and the data is not. A failover there loses no lock that the replica has; a lock
// has the one database of a cluster, and says so in another.
func TestClusterApart(t *testing.T) {
	t.Parallel()
	tc, data := testredis.StartCluster(t, 3, 1), testredis.Start(t)
	p := harness.StartProxy(t, data.URL(), "--locks", harness.ClusterURL(tc), "--lock-watchdog-timeout", "20s", "--operators", "default")
	p.AwaitProbe(64)
	w, waiter := harness.DialHearing(t, p.Addr()), harness.Dial(t, p.Addr())
	for i := range 20 { // on all nodes
		key := fmt.Sprint("k", i)
		harness.Expect(t, w, ok, "LOCK", key)
		harness.Expect(t, waiter, null, "LOCK", key)
		harness.Expect(t, w, yes, "RENEW", key)
		harness.Expect(t, w, yes, "UNLOCK", key)
	}
	if left := len(harness.Keys(t, data)); left != 0 {
		t.Errorf("%d keys where the data is", left)
	}
	nodes := harness.Objects(t, harness.Decode(t, w.Do("LOCKPROXY", "NODES")))
	if len(nodes) != 4 || nodes[0]["locks"] != "" || nodes[3]["role"] != "locks" || nodes[3]["locks"] != "ok" {
		t.Errorf("NODES: %v", nodes)
	}
	harness.Expect(t, w, ok, "MULTILOCK", "3", "x", "y", "z")
	harness.Expect(t, waiter, ok, "SELECT", "3")
	if got := waiter.Do("LOCK", "x"); !strings.HasPrefix(got, "-ERR ") || !strings.Contains(got, "cluster") {
		t.Errorf("in database 3: %q", got)
	}
	harness.Expect(t, waiter, ok, "SELECT", "0")
	harness.Expect(t, w, ok, "LOCK", "held", "REPLICAS", "1")
	waiter.Send("LOCK", "held", "BLOCK", "0")
	if err := tc.Failover(replicaOf(t, tc, cluster.Slot([]byte("held")))); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it is renewed at the new master", func() bool { return w.Do("RENEW", "held") == yes })
	harness.Expect(t, w, yes, "UNLOCK", "held")
	if got := waiter.Read(); got != ok {
		t.Errorf("the waiter: %q", got)
	}
	harness.Expect(t, w, ":3\r\n", "MULTIUNLOCK", "3", "x", "y", "z")
}

// TestClusterApartFromClusterData: data on a cluster, locks on one Redis: a MULTILOCK and names of locks know no slots.
func TestClusterApartFromClusterData(t *testing.T) {
	t.Parallel()
	tc, keeper := testredis.StartCluster(t, 3, 0), testredis.Start(t)
	p := harness.StartProxy(t, harness.ClusterURL(tc), "--locks", keeper.URL())
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, ok, "LOCK", "a{b")
	harness.Expect(t, w, ok, "MULTILOCK", "2", "x", "y")
	harness.Expect(t, w, ok, "SET", "x", "1")
	harness.Expect(t, w, ok, "FLUSHALL")
	harness.Expect(t, w, ":2\r\n", "MULTIUNLOCK", "2", "x", "y")
	harness.Expect(t, w, yes, "UNLOCK", "a{b")
	if got := w.Do("FENCED", "x", "GET", "x"); !strings.HasPrefix(got, "-ERR FENCED is not supported with --locks") {
		t.Errorf("FENCED: %q", got)
	}
}
