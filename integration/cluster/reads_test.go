package cluster

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// infoNumber is a line of the proxy's INFO.
func infoNumber(t testing.TB, w *harness.Wire, name string) int {
	t.Helper()
	m := regexp.MustCompile(name + `:(\d+)`).FindStringSubmatch(w.Do("INFO", "lockproxy"))
	if m == nil {
		t.Fatalf("INFO lacks %s", name)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// getsOf is how many GETs a server has run.
func getsOf(t testing.TB, s *testredis.Server) int {
	t.Helper()
	info, err := redis.String(s.Do(t, "INFO", "commandstats"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(info, "cmdstat_get:calls=")
	if !found {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(digits)
	return n
}

// readsAll reads k0 to k59, and checks them; reads is how many came from replicas, as the proxy counts.
func readsAll(t testing.TB, w *harness.Wire) (reads int) {
	t.Helper()
	before := infoNumber(t, w, "lockproxy_cluster_replica_reads")
	for i := range 60 {
		harness.Expect(t, w, framed(fmt.Sprint(i)), "GET", fmt.Sprint("k", i))
	}
	return infoNumber(t, w, "lockproxy_cluster_replica_reads") - before
}

// startReads is a cluster with replicas behind a proxy, and 60 keys that all nodes have.
func startReads(t *testing.T, args ...string) (*testredis.Cluster, *harness.Proxy, *harness.Wire) {
	t.Helper()
	tc := testredis.StartCluster(t, 3, 1)
	p := harness.StartClusterProxy(t, tc, args...)
	w := harness.Dial(t, p.Addr())
	for i := range 60 {
		harness.Expect(t, w, ok, "SET", fmt.Sprint("k", i), fmt.Sprint(i))
	}
	replicated(t, tc)
	return tc, p, w
}

// replicated waits until the replicas of a cluster of three masters have all that those have.
func replicated(t *testing.T, tc *testredis.Cluster) {
	t.Helper()
	for _, s := range tc.Servers[:3] {
		harness.Eventually(t, "replicas have all", func() bool {
			info, _ := redis.String(s.Do(t, "INFO", "replication"), nil)
			_, at, _ := strings.Cut(info, "master_repl_offset:")
			at, _, _ = strings.Cut(at, "\r\n")
			return strings.Contains(info, "offset="+at+",lag")
		})
	}
}

func TestClusterReadFromReplica(t *testing.T) {
	t.Parallel()
	tc, p, w := startReads(t, "--cluster-read-from", "replica", "--cluster-retry", "1s")
	// A replica that has not answered for a second is not read from for a while, as may be on a busy machine.
	atReplicas := func(when string) {
		t.Helper()
		harness.Eventually(t, when+" all reads are at replicas", func() bool { return readsAll(t, w) == 60 })
	}
	atReplicas("at first")
	harness.Eventually(t, "all replicas run GETs, and no master does", func() bool {
		var before []int
		for _, s := range tc.Servers {
			before = append(before, getsOf(t, s))
		}
		readsAll(t, w)
		for i, s := range tc.Servers {
			if n := getsOf(t, s) - before[i]; (n > 0) != (i >= 3) {
				return false
			}
		}
		return true
	})
	if n := p.Metric("lockproxy_replica_reads_total"); n < 120 {
		t.Errorf("the metric says %v", n)
	}
	// READWRITE has this connection read at masters, READONLY at replicas again; RESET goes back to the setting.
	for _, step := range []struct {
		say, want string
		at        bool
	}{{"READWRITE", ok, false}, {"READONLY", ok, true}, {"READWRITE", ok, false}, {"RESET", "+RESET\r\n", true}} {
		harness.Expect(t, w, step.want, step.say)
		if step.at {
			atReplicas("after " + step.say)
		} else if n := readsAll(t, w); n != 0 {
			t.Errorf("after %s %d reads at replicas", step.say, n)
		}
	}
	// Who holds a lock reads what the holder before has written.
	harness.Expect(t, w, ok, "LOCK", "l")
	if n := readsAll(t, w); n != 0 {
		t.Errorf("under a lock %d reads at replicas", n)
	}
	harness.Expect(t, w, yes, "UNLOCK", "l")
	atReplicas("after it")
	// Transactions, and what is read under WATCH, are at masters; big replies of replicas come whole.
	harness.Expect(t, w, ok, "WATCH", "k1")
	if n := readsAll(t, w); n != 0 {
		t.Errorf("under WATCH %d reads at replicas", n)
	}
	harness.Expect(t, w, ok, "UNWATCH")
	atReplicas("after UNWATCH")
	if got := w.Pipeline(harness.EncodeAll([][]string{{"MULTI"}, {"GET", "k1"}, {"EXEC"}}), 3); got[2] != "*1\r\n"+framed("1") {
		t.Errorf("%q", got)
	}
	value := strings.Repeat("x", 5<<20)
	harness.Expect(t, w, ok, "SET", "big", value)
	harness.Eventually(t, "the big value is at the replica", func() bool { return w.Do("GET", "big") == framed(value) })
	for range 5 {
		harness.Expect(t, w, framed(value), "GET", "big")
	}
	tc.Servers[3].Kill()
	readsAll(t, w)
	tc.Servers[4].Stop()
	defer tc.Servers[4].Cont()
	harness.Eventually(t, "a read fails at a replica", func() bool { // unless no replica was read from for a while
		readsAll(t, w)
		return infoNumber(t, w, "lockproxy_cluster_replica_failures") > 0
	})
}

// With "client" it is READONLY that counts, whatever clients see; by default it changes nothing.
func TestClusterReadFromClient(t *testing.T) {
	t.Parallel()
	_, p, w := startReads(t, "--cluster-read-from", "client")
	time.Sleep(time.Second) // replicas are known to serve by then, or soon after
	if n := readsAll(t, w); n != 0 {
		t.Errorf("%d reads at replicas unasked", n)
	}
	harness.Expect(t, w, ok, "READONLY")
	harness.Eventually(t, "reads are at replicas", func() bool { return readsAll(t, w) == 60 })
	other := harness.Dial(t, p.Addr())
	if n := readsAll(t, other); n != 0 {
		t.Errorf("another client: %d reads at replicas", n)
	}
	harness.Expect(t, w, ok, "READWRITE")
	if n := readsAll(t, w); n != 0 {
		t.Errorf("after READWRITE %d reads at replicas", n)
	}
	_, p, w = startReads(t, "--present", "cluster")
	harness.Expect(t, w, ok, "READONLY")
	time.Sleep(time.Second)
	if n := readsAll(t, w); n != 0 {
		t.Errorf("by default %d reads at replicas", n)
	}
	if strings.Contains(p.Log(), "DATA RACE") {
		t.Error("raced")
	}
}
