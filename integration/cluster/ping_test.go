package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A shard that is down, and that nobody takes over, keeps no client from being answered PING, as it would be by any node.
func TestClusterPingWithoutAShard(t *testing.T) {
	t.Parallel()
	for _, full := range []string{"no", "yes"} {
		t.Run("cluster-require-full-coverage "+full, func(t *testing.T) {
			t.Parallel()
			tc := testredis.StartCluster(t, 3, 0, testredis.QuickFailover, "--cluster-require-full-coverage "+full)
			p := harness.StartClusterProxy(t, tc)
			slowest := time.Duration(0)
			ping := func() {
				for range 6 { // at all nodes
					w, began := harness.Dial(t, p.Addr()), time.Now()
					harness.Expect(t, w, "+PONG\r\n", "PING")
					slowest = max(slowest, time.Since(began))
					w.Close()
				}
			}
			info := harness.Dial(t, p.Addr())
			ping()
			tc.Servers[0].Kill()

			harness.Eventually(t, "the proxy knows", func() bool {
				ping()
				return strings.Contains(info.Do("INFO", "lockproxy"), "lockproxy_cluster_masters:2\r\n")
			})
			ping()
			if slowest > harness.Bound(4*time.Second) {
				t.Errorf("PING took up to %v", slowest)
			}
		})
	}
}

// What needs a connection of its own, and no key, gets it at a node that is up, long before the others say that one is down.
func TestClusterOwnConnectionsWithoutANode(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, "--cluster-node-timeout 60000")
	p := harness.StartClusterProxy(t, tc)
	tc.Servers[0].Kill()
	began := time.Now()
	for range 3 {
		s := &subscriber{harness.Dial3(t, p.Addr()), t, ">"}
		s.Send("SUBSCRIBE", "news")
		s.confirmed("subscribe", "news", 1)
		w := harness.Dial(t, p.Addr())
		harness.Expect(t, w, ok, "MULTI")
		harness.Expect(t, w, "+QUEUED\r\n", "PING")
		harness.Expect(t, w, "*1\r\n+PONG\r\n", "EXEC")
	}
	if took := time.Since(began); took > 59*time.Second { // a node calls another dead after 60 s
		t.Errorf("it took %v, as long as the nodes take to agree that one is down", took)
	}
}
