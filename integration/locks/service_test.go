package locks

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// serviceVerbs are all verbs, and what they say to one client.
var serviceVerbs = [][2]string{
	{"LOCK app:1", "+OK"},
	{"LOCK app:1 OWNER x PX 7900 FENCE", "$-1"},
	{"RENEW app:1 PX 7900", ":1"},
	{"UNLOCK app:1", ":1"},
	{"LOCK app:1 OWNER x PX 7900 FENCE", ":"},
	{"RENEW app:1 OWNER x PX 7900", ":1"},
	{"UNLOCK app:1 OWNER x", ":1"},
	{"UNLOCK app:1 OWNER x", "-NOTHELD"},
	{"LOCK app:1 REPLICAS 9 BLOCK 1", "-NOREPLICAS"},
	{"FAIRLOCK app:1 BLOCK 10", "+OK"},
	{"FENCED app:1 SET {app:1}data x", "+OK"},
	{"UNLOCK app:1 FORCE", ":1"},
	{"MULTILOCK 2 app:2 app:3 PX 7900", "+OK"},
	{"MULTIUNLOCK 2 app:2 app:3", ":2"},
	{"WLOCK app:4", "+OK"},
	{"RLOCK app:4", "+OK"},
	{"UNLOCK app:4 WRITE", ":1"},
	{"RENEW app:4 READ", ":1"},
	{"UNLOCK app:4", ":1"},
	{"WLOCK app:4 OWNER y PX 7900", "+OK"},
	{"UNLOCK app:4 FORCE", ":1"},
	{"LOCKINFO app:1", "*"},
	{"LOCKLIST", "*"},
}

// serviceWorks has every verb work through two proxies, waiting and handing on included, and nothing of it refused by a server.
func serviceWorks(t *testing.T, proxies []*harness.Proxy, servers []*testredis.Server, not ...string) {
	t.Helper()
	a := harness.Dial(t, proxies[0].Addr())
	harness.Eventually(t, "locks are given", func() bool { return a.Do("LOCK", "app:0") == "+OK\r\n" })
	say := func(w *harness.Wire, words ...string) string {
		got, err := w.TryQuorum(words...)
		if err != nil {
			t.Errorf("%q: %v", words, err)
		}
		return got
	}
	for _, step := range serviceVerbs {
		if slices.ContainsFunc(not, func(word string) bool { return strings.Contains(step[0], word) }) {
			continue
		}
		words := strings.Fields(step[0])
		got, err := a.Try(words...)
		again := err != nil || strings.HasPrefix(got, "-NOQUORUM ")
		if again {
			got = say(a, words...)
		}
		left := again && (words[0] == "MULTIUNLOCK" || slices.Contains(words, "FORCE")) // said again it says how many locks were left
		if !strings.HasPrefix(got, step[1]) && !(left && strings.HasPrefix(got, ":") && got <= step[1]) {
			t.Errorf("%q: %q, want %s", step[0], got, step[1])
		}
	}
	// Enough in a row that somebody else's turn comes.
	for _, verb := range []string{"LOCK", "FAIRLOCK", "WLOCK", "RLOCK"} {
		var group sync.WaitGroup
		for i := range 8 {
			w := harness.Dial(t, proxies[i%2].Addr())
			group.Go(func() {
				for range 50 {
					for _, step := range [][]string{{verb, "app:5", "BLOCK", "60000"}, {"UNLOCK", "app:5"}} {
						if got := say(w, step...); strings.HasPrefix(got, "-") || got == "$-1\r\n" {
							t.Errorf("%q: %q", step, got)
							return
						}
					}
				}
			})
		}
		group.Wait()
	}
	time.Sleep(1500 * time.Millisecond) // the watchdog and the clocks are asked, too
	for _, s := range servers {
		if log := s.Do(t, "ACL", "LOG"); len(log.([]any)) != 0 {
			t.Errorf("Redis refused: %q", log)
		}
	}
	for _, p := range proxies {
		if strings.Contains(p.Log(), "lacks") {
			t.Errorf("something is said to be lacking:\n%s", p.Log())
		}
	}
}

// With what docs/OPERATIONS.md gives the service account, and no more, every verb works before each kind of upstream.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, harness.ServicePermissions(t, "")...)
	url := "redis://service:secret@" + s.Addr()
	serviceWorks(t, []*harness.Proxy{harness.StartProxy(t, url), harness.StartProxy(t, url)}, []*testredis.Server{s})
}

func TestServiceAccountWithSentinel(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	for _, s := range g.Nodes {
		s.Do(t, harness.ServicePermissions(t, "Sentinel")...)
	}
	url := strings.Replace(g.URL(), "redis+sentinel://", "redis+sentinel://service:secret@", 1)
	serviceWorks(t, []*harness.Proxy{harness.StartProxy(t, url), harness.StartProxy(t, url)}, g.Nodes)
}

func TestServiceAccountOnACluster(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	for _, s := range tc.Servers {
		s.Do(t, harness.ServicePermissions(t, "a cluster")...)
	}
	url := "redis-cluster://service:secret@" + tc.Servers[0].Addr()
	serviceWorks(t, []*harness.Proxy{harness.StartProxy(t, url), harness.StartProxy(t, url)}, tc.Servers)
}

func TestServiceAccountOfAQuorum(t *testing.T) {
	t.Parallel()
	data, nodes := testredis.Start(t), harness.StartNodes(t, 3)
	data.Do(t, "ACL", "SETUSER", "service", "on", ">secret", "&lockproxy:*", "+ping", "+command", "+config|get", "+eval", "+publish", "+subscribe", "+unsubscribe", "+pubsub|numsub")
	flags := []string{"--quorum-max-lease", "8s", "--lock-watchdog-timeout", "8s", "--quorum-node-timeout", "800ms"} // a busy machine, too, gives locks in time
	for _, s := range nodes {
		s.Do(t, harness.ServicePermissions(t, "a quorum")...)
		flags = append(flags, "--quorum", "redis://service:secret@"+s.Addr())
	}
	url := "redis://service:secret@" + data.Addr()
	serviceWorks(t, []*harness.Proxy{harness.StartProxy(t, url, flags...), harness.StartProxy(t, url, flags...)}, append(nodes, data), "FENCED", "REPLICAS")
}

func TestServiceAccountApart(t *testing.T) {
	t.Parallel()
	data, keeper := testredis.Start(t), testredis.Start(t)
	data.Do(t, "ACL", "SETUSER", "service", "on", ">secret", "+ping", "+command", "+config|get", "+eval")
	keeper.Do(t, harness.ServicePermissions(t, "`--locks`")...)
	url, flag := "redis://service:secret@"+data.Addr(), "redis://service:secret@"+keeper.Addr()
	serviceWorks(t, []*harness.Proxy{harness.StartProxy(t, url, "--locks", flag), harness.StartProxy(t, url, "--locks", flag)},
		[]*testredis.Server{keeper, data}, "FENCED")
}
