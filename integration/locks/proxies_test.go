package locks

import (
	"os"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// LOCKINFO names the machine of the proxy that serves a holder when it is another one, to those who may run CLIENT LIST, tells a Redisson's
// thread from that, and believes no client's name for it.
func TestLockInfoNamesTheOtherProxy(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--user service on >pw ~* &* +@all", "--user other on >pw ~* &* +@all", "--user reader on >pw ~* &* +@all -client|list")
	upstream := "redis://service:pw@" + server.Addr()
	a, b := harness.StartProxy(t, upstream), harness.StartProxy(t, upstream)
	a.AwaitProbe(1)
	b.AwaitProbe(1)
	holder, asker := harness.Dial(t, a.Addr()), harness.Dial(t, b.Addr())
	host, _ := os.Hostname()
	evil := harness.Dial(t, server.Addr())
	harness.Expect(t, evil, "+OK\r\n", "AUTH", "other", "pw")
	harness.Expect(t, evil, "+OK\r\n", "CLIENT", "SETNAME", "lockproxy:00000000-0000-0000-0000-000000000000:addr=6.6.6.6%3A1")
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "named", "OWNER", "job", "EX", "30")
	harness.Expect(t, asker, "+OK\r\n", "LOCK", "here")
	server.Do(t, "HSET", "redisson", "00000000-0000-0000-0000-000000000000:1", "1")
	of := func(w *harness.Wire, key, field string) any {
		t.Helper()
		holders := harness.Objects(t, harness.Object(t, harness.Decode(t, w.Do("LOCKINFO", key)))["holders"])
		if len(holders) != 1 {
			t.Fatalf("%s: %v", key, holders)
		}
		return holders[0][field]
	}
	harness.Eventually(t, "the proxies know of each other", func() bool { return of(asker, "k", "proxy") == host })
	both(t, func(t *testing.T, connect func(testing.TB, string) *harness.Wire) {
		asker := connect(t, b.Addr())
		if got := of(asker, "k", "proxy"); got != host {
			t.Errorf("the proxy of a holder is at %v, not %s", got, host)
		}
		for _, key := range []string{"named", "here", "redisson"} {
			if got := of(asker, key, "proxy"); got != nil {
				t.Errorf("the proxy of the holder of %q is %v", key, got)
			}
		}
		if got := of(asker, "redisson", "redisson"); got != "00000000-0000-0000-0000-000000000000" {
			t.Errorf("a Redisson's id is %v", got)
		}
		harness.Expect(t, asker, "+OK\r\n", "AUTH", "reader", "pw")
		if got := of(asker, "k", "proxy"); got != nil {
			t.Errorf("who may not run CLIENT LIST is told of %v", got)
		}
	})
}
