package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The lock verbs on a cluster: every lock on its own node, for clients of two proxies.
func TestClusterLocks(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	a, b := harness.StartClusterProxy(t, tc), harness.StartClusterProxy(t, tc)
	w, v := harness.Dial(t, a.Addr()), harness.Dial(t, b.Addr())
	for i := range 30 { // on all nodes
		key := fmt.Sprint("k", i)
		for _, step := range []struct{ by, words, want string }{
			{"a", "LOCK " + key, ok}, {"b", "LOCK " + key, null}, {"a", "FAIRLOCK fair" + key, ok}, {"b", "FAIRLOCK fair" + key + " BLOCK 1", null}, {"a", "UNLOCK " + key, yes},
			{"b", "WLOCK " + key, ok}, {"b", "RLOCK " + key, ok}, {"b", "UNLOCK " + key + " WRITE", yes}, {"a", "RLOCK " + key, ok},
			{"a", "UNLOCK " + key, yes}, {"b", "UNLOCK " + key, yes}, {"a", "LOCK " + key + " OWNER o PX 60000", ok}, {"b", "RENEW " + key + " OWNER o EX 30", yes},
			{"b", "UNLOCK " + key + " OWNER o", yes}, {"a", "LOCK " + key, ok}, {"b", "UNLOCK " + key + " FORCE", yes},
		} {
			harness.Expect(t, map[string]*harness.Wire{"a": w, "b": v}[step.by], step.want, strings.Fields(step.words)...)
		}
	}
	harness.Expect(t, w, ok, "MULTILOCK", "3", "x", "y", "z")
	harness.Expect(t, v, null, "MULTILOCK", "2", "u", "y")
	harness.Expect(t, w, ":3\r\n", "MULTIUNLOCK", "3", "x", "y", "z")
	for _, name := range []string{"a{b", "{}x", "x{}{y}"} {
		if got := w.Do("LOCK", name); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("LOCK %s: %q", name, got)
		}
	}
	if got := w.Do("LOCKINFO", "k1"); !strings.Contains(got, "none") {
		t.Error(got)
	}
}

// Clients of two proxies count under locks of all nodes; a client that goes frees its lock, and who waits is woken.
func TestClusterLocksExclude(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	proxies := []*harness.Proxy{harness.StartClusterProxy(t, tc, "--wait-poll", "60s"), harness.StartClusterProxy(t, tc, "--wait-poll", "60s")}
	const clients, times, keys = 12, 60, 5
	var sum [keys]atomic.Int64 // read and then written, which the locks guard
	var wrong atomic.Int64
	harness.Together(clients, func(i int) {
		w := harness.Dial(t, proxies[i%2].Addr())
		for n := range times {
			k := (i + n) % keys
			key := "count" + strconv.Itoa(k)
			verb := []string{"LOCK", "FAIRLOCK", "WLOCK"}[k%3]
			if got, err := w.Try(verb, key, "BLOCK", "0"); err != nil || got != ok {
				t.Errorf("%s %s: %q %v", verb, key, got, err)
				return
			}
			sum[k].Store(sum[k].Load() + 1)
			if n == times-1 {
				w.Reset() // leaves with its lock
				return
			}
			if got, err := w.Try("UNLOCK", key); err != nil || got != yes {
				wrong.Add(1)
			}
		}
	})
	total := 0
	for k := range sum {
		total += int(sum[k].Load())
	}
	if total != clients*times || wrong.Load() != 0 {
		t.Errorf("%d, and %d wrong replies", total, wrong.Load())
	}
	w := harness.Dial(t, proxies[0].Addr())
	for k := range keys {
		harness.Eventually(t, "they are free", func() bool {
			return w.Do("LOCK", "count"+strconv.Itoa(k)) != null || w.Do("WLOCK", "count"+strconv.Itoa(k)) == ok
		})
	}
}

// Redis' own ACL says who may lock what, at the node that has it.
func TestClusterLocksAccess(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	for _, s := range tc.Servers {
		s.Do(t, "ACL", "SETUSER", "app", "on", ">secret", "~app:*", "+@read", "+@write")
		s.Do(t, "ACL", "SETUSER", "boss", "on", ">secret", "~app:*", "+@read", "+@write", "+multi")
		s.Do(t, "ACL", "SETUSER", "partly", "on", ">secret", "~app:*", "+@read", "+@write", "+multi", "-del", "(~tmp:* +del)")
	}
	p := harness.StartClusterProxy(t, tc)
	w, boss, partly := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, w, ok, "AUTH", "app", "secret")
	harness.Expect(t, boss, ok, "AUTH", "boss", "secret")
	harness.Expect(t, partly, ok, "AUTH", "partly", "secret")
	for i := range 10 {
		harness.Expect(t, w, ok, "LOCK", fmt.Sprint("app:", i))
		harness.Expect(t, w, yes, "UNLOCK", fmt.Sprint("app:", i))
		if got := w.Do("LOCK", fmt.Sprint("other:", i)); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("%q", got)
		}
		key := fmt.Sprint("app:force:", i)
		harness.Expect(t, w, ok, "LOCK", key)
		for _, c := range []*harness.Wire{w, partly} {
			if got := c.Do("UNLOCK", key, "FORCE"); !strings.HasPrefix(got, "-NOPERM ") {
				t.Errorf("%q", got)
			}
		}
		harness.Expect(t, boss, yes, "UNLOCK", key, "FORCE")
	}
}
