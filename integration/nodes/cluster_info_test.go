package nodes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// INFO is of all masters together, and of those that are left when one has gone.
func TestClusterInfo(t *testing.T) {
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	harness.Protocols(t, func(t *testing.T, proto int) {
		w := harness.Dial(t, p.Addr())
		if proto == 3 {
			w = harness.Dial3(t, p.Addr())
		}
		w.Do("FLUSHALL")
		for i := range 60 {
			harness.Expect(t, w, "+OK\r\n", "SET", fmt.Sprint("k", i), "v", "EX", "1000")
		}
		holds(t, w, "db0:keys=60,expires=60,avg_ttl=", "INFO", "keyspace")
		for i := range 6 { // at all masters
			harness.Dial(t, p.Addr()).Send("BLPOP", fmt.Sprint("none", i), "0")
		}
		harness.Eventually(t, "6 clients wait", func() bool { return strings.Contains(w.Do("INFO", "clients"), "\r\nblocked_clients:6\r\n") })
		for i := range 6 {
			harness.Expect(t, w, ":1\r\n", "RPUSH", fmt.Sprint("none", i), "v")
		}
		harness.Eventually(t, "nobody waits", func() bool { return strings.Contains(w.Do("INFO", "clients"), "\r\nblocked_clients:0\r\n") })
		all := w.Do("INFO", "everything")
		for _, section := range []string{"Server", "Clients", "Memory", "Stats", "Commandstats", "Keyspace", "Lockproxy"} {
			if n := strings.Count(all, "# "+section+"\r\n"); n != 1 {
				t.Errorf("section %s is there %d times", section, n)
			}
		}
		holds(t, w, "calls=6,", "INFO", "commandstats")
		harness.Expect(t, w, "-ERR syntax error\r\n", "SORT_RO", "none", "STORE", "b")
		w.Do("CONFIG", "RESETSTAT")
	})
	w := harness.Dial(t, p.Addr())
	tc.Servers[1].Kill()
	holds(t, w, "# Server\r\n", "INFO")
	holds(t, w, "lockproxy_cluster_masters:", "INFO")
}

// holds says that a reply has part.
func holds(t *testing.T, w *harness.Wire, part string, args ...string) {
	t.Helper()
	if got := w.Do(args...); !strings.Contains(got, part) {
		t.Errorf("%v has no %q:\n%s", args, part, got)
	}
}
