package locks

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// asked is what a page for machines answers.
func asked(t *testing.T, p *harness.Proxy, page string) (code int, said string) {
	t.Helper()
	answer, err := http.Get("http://" + p.MetricsAddr() + page)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

var renewalsDone = regexp.MustCompile(`lockproxy_lock_renewals_total\{outcome="ok"\} ([0-9]+)`)

// renewals is how many leases the proxy has renewed.
func renewals(t *testing.T, p *harness.Proxy) (n int) {
	t.Helper()
	_, said := asked(t, p, "/metrics")
	if found := renewalsDone.FindStringSubmatch(said); found != nil {
		n, _ = strconv.Atoi(found[1])
	}
	return n
}

// TestApart: with --locks the locks are on a Redis of their own, and lockproxy says so. What the data's Redis forgets is no lock.
func TestApart(t *testing.T) {
	t.Parallel()
	data, keeper := testredis.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"), testredis.Start(t)
	p := harness.StartProxy(t, data.URL(), "--locks", keeper.URL(), "--lock-watchdog-timeout", "3s", "--operators", "default")
	holders := map[string]*harness.Wire{}
	for take, give := range map[string]string{"LOCK plain": "UNLOCK plain", "FAIRLOCK fair": "UNLOCK fair", "RLOCK read": "UNLOCK read",
		"LOCK ends EX 600": "UNLOCK ends", "LOCK some LIMIT 2": "UNLOCK some", "LOCK named OWNER me EX 600": "UNLOCK named OWNER me", "MULTILOCK 2 m1 m2": "UNLOCK m1"} {
		w := harness.DialHearing(t, p.Addr())
		harness.Expect(t, w, "+OK\r\n", strings.Fields(take)...)
		holders[give] = w
	}
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "SELECT", "3")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "three")
	harness.Expect(t, w, "+OK\r\n", "SELECT", "0")
	at := "redis://" + keeper.Addr()
	in := harness.Object(t, harness.Decode(t, w.Do("LOCKINFO", "plain")))
	if in["at"] != at || in["kind"] != "plain" || len(harness.Objects(t, in["holders"])) != 1 {
		t.Errorf("LOCKINFO: %v", in)
	}
	if got := w.Do("INFO", "lockproxy"); !strings.Contains(got, "\nlockproxy_locks_at:"+at+"\r") || !strings.Contains(got, "\nlockproxy_locks_status:ok\r") ||
		strings.Contains(got, "quorum") {
		t.Errorf("INFO: %s", got)
	}
	nodes := harness.Objects(t, harness.Decode(t, w.Do("LOCKPROXY", "NODES")))
	if len(nodes) != 2 || nodes[0]["name"] != data.Addr() || nodes[0]["locks"] != "" || nodes[1]["name"] != at || nodes[1]["role"] != "locks" ||
		nodes[1]["state"] != "up" || nodes[1]["locks"] != "ok" {
		t.Errorf("NODES: %v", nodes)
	}
	for command, want := range map[string]string{
		"FENCED plain GET d": "-ERR FENCED is not supported with --locks: the lock is not where the data is; use LOCK ... FENCE\r\n",
		"LOCKLIST SCAN 0":    "-ERR LOCKLIST SCAN is not available with --locks: ",
		"LOCK r REPLICAS 1":  "-NOREPLICAS ",
		"LOCK f FENCE EX 1":  ":",
	} {
		if got := w.Do(strings.Fields(command)...); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", command, got)
		}
	}
	harness.Expect(t, w, "+OK\r\n", "MULTI")
	harness.Expect(t, w, "-ERR Command not allowed inside a transaction\r\n", "LOCK", "in")
	harness.Expect(t, w, "+OK\r\n", "DISCARD")
	if keeper.Do(t, "EXISTS", "plain").(int64) != 1 || data.Do(t, "EXISTS", "plain").(int64) != 0 {
		t.Error("where is the lock?")
	}
	harness.Expect(t, w, "+OK\r\n", "FLUSHALL")
	value := strings.Repeat("x", 16<<10)
	harness.Eventually(t, "the data's Redis evicts", func() bool {
		for i := range 100 {
			harness.Expect(t, w, "+OK\r\n", "SET", fmt.Sprint("filler:", i, time.Now().UnixNano()), value)
		}
		return !strings.Contains(fmt.Sprintf("%s", data.Do(t, "INFO", "stats")), "\nevicted_keys:0\r")
	})
	data.Restart()
	before := renewals(t, p)
	harness.Eventually(t, "each lock is renewed", func() bool { return renewals(t, p) > before+12 })
	other := harness.Dial(t, p.Addr())
	harness.Eventually(t, "newcomers are served", func() bool {
		got, err := other.Try("PING")
		if err != nil {
			other = harness.Dial(t, p.Addr())
		}
		return got == "+PONG\r\n"
	})
	for _, key := range []string{"plain", "fair", "ends", "named", "m1", "m2"} {
		harness.Expect(t, other, "$-1\r\n", "LOCK", key)
	}
	for give, holder := range holders {
		harness.Expect(t, holder, ":1\r\n", strings.Fields(give)...)
	}
	if log := p.Log(); strings.Contains(log, "lock lost") || strings.Contains(log, "evict") {
		t.Errorf("%s", log)
	}
}

// TestApartAway: while the locks' Redis is away commands go on, holders are told of their losses before anybody else can have the lock, and
// probes and operators are told which Redis is away. When it is back locks can be had again.
func TestApartAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]struct{ leave, back func(*testredis.Server) }{
		"killed": {(*testredis.Server).Kill, (*testredis.Server).Restart}, "frozen": {(*testredis.Server).Stop, (*testredis.Server).Cont},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, keeper := testredis.Start(t), testredis.Start(t)
			p := harness.StartProxy(t, data.URL(), "--locks", keeper.URL(), "--lock-watchdog-timeout", "6s", "--operators", "default")
			holder, w := harness.DialHearing(t, p.Addr()), harness.Dial(t, p.Addr())
			harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
			away.leave(keeper)
			harness.Expect(t, w, "+OK\r\n", "SET", "d", "1")
			if push := holder.Read(); !strings.HasPrefix(push, ">4\r\n$9\r\nlock-lost\r\n$1\r\nk\r\n") || !strings.Contains(push, "unrenewed") {
				t.Errorf("the holder hears %q", push)
			}
			harness.Expect(t, w, "$1\r\n1\r\n", "GET", "d")
			harness.Eventually(t, "the probe says so, and that commands are served", func() bool {
				code, said := asked(t, p, "/readyz")
				return code == 200 && strings.HasPrefix(said, "ok\nlocks: ")
			})
			harness.Eventually(t, "the metric says so", func() bool { return p.Metric(`lockproxy_locks_unavailable{reason="unreachable"}`) == 1 })
			nodes := harness.Objects(t, harness.Decode(t, w.Do("LOCKPROXY", "NODES")))
			if len(nodes) != 2 || nodes[0]["state"] != "up" || nodes[1]["state"] != "down" || nodes[1]["trouble"] == "" {
				t.Errorf("NODES: %v", nodes)
			}
			away.back(keeper)
			harness.Eventually(t, "locks can be had again", func() bool {
				return p.Metric(`lockproxy_locks_unavailable{reason="unreachable"}`) == 0 && w.Do("LOCK", "k") == "+OK\r\n"
			})
			if got := holder.Do("UNLOCK", "k"); !strings.HasPrefix(got, "-LOCKLOST ") {
				t.Errorf("the former holder: %q", got)
			}
			harness.Expect(t, w, ":1\r\n", "UNLOCK", "k")
			harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
		})
	}
}

// TestApartWithoutTheData: while the data's Redis is away locks are taken, renewed and given back, by clients that were there before, and free when
// their client goes.
func TestApartWithoutTheData(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testredis.Server){"killed": (*testredis.Server).Kill, "frozen": (*testredis.Server).Stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, keeper := testredis.Start(t), testredis.Start(t)
			p := harness.StartProxy(t, data.URL(), "--locks", keeper.URL(), "--lock-watchdog-timeout", "2s")
			w, waiter, goes := harness.DialHearing(t, p.Addr()), harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
			harness.Expect(t, goes, "+OK\r\n", "LOCK", "k")
			waiter.Send("LOCK", "k", "BLOCK", "0")
			harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, w, "k") == 1 })
			leave(data)
			was := renewals(t, p)
			harness.Eventually(t, "it is renewed", func() bool { return renewals(t, p) > was+2 })
			harness.Eventually(t, "the probe says which Redis is away", func() bool {
				code, said := asked(t, p, "/readyz")
				return code == 503 && strings.HasPrefix(said, "upstream: ") && !strings.Contains(said, "locks: ")
			})
			goes.Close()
			if got := waiter.Read(); got != "+OK\r\n" {
				t.Errorf("the waiter: %q", got)
			}
			harness.Expect(t, w, "+OK\r\n", "LOCK", "other")
			harness.Expect(t, w, ":1\r\n", "RENEW", "other")
			harness.Expect(t, w, ":1\r\n", "UNLOCK", "other")
		})
	}
}

// TestApartRights: who may lock is asked of the data's Redis, where the user's account is; what its keys are does not matter.
func TestApartRights(t *testing.T) {
	t.Parallel()
	data, keeper := testredis.Start(t), testredis.Start(t)
	data.Do(t, "ACL", "SETUSER", "app", "on", ">p", "~app:*", "+@all")
	keeper.Do(t, "ACL", "SETUSER", "svc", "on", ">secret", "~*", "&*", "+@all")
	keeper.Do(t, "ACL", "SETUSER", "default", "off")
	data.Do(t, "SET", "app:text", "no hash")
	p := harness.StartProxy(t, data.URL(), "--locks", "redis://svc:secret@"+keeper.Addr())
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "AUTH", "app", "p")
	for verb, want := range map[string]string{"LOCK other": "-NOPERM ", "LOCK app:1": "+OK\r\n", "LOCK app:text": "+OK\r\n", "UNLOCK app:text": "", "LOCKINFO other": "-NOPERM ",
		"MULTILOCK 2 app:2 other": "-NOPERM "} {
		if got := w.Do(strings.Fields(verb)...); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", verb, got)
		}
	}
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "app:1")
	if strings.Contains(p.Log(), "secret") {
		t.Error("the log has the password")
	}
}

// TestApartShared: proxies before different data share the locks of one Redis, and know each other there.
func TestApartShared(t *testing.T) {
	t.Parallel()
	keeper := testredis.Start(t)
	var all []*harness.Wire
	var proxies []*harness.Proxy
	for range 2 {
		p := harness.StartProxy(t, testredis.Start(t).URL(), "--locks", keeper.URL(), "--operators", "default")
		proxies, all = append(proxies, p), append(all, harness.Dial(t, p.Addr()))
	}
	harness.Expect(t, all[0], "+OK\r\n", "LOCK", "k")
	harness.Expect(t, all[1], "$-1\r\n", "LOCK", "k")
	harness.Eventually(t, "each knows the other", func() bool {
		return strings.Contains(all[1].Do("LOCKPROXY", "LOCKS", "10", "ALL"), "$1\r\nk\r\n") && strings.Contains(all[1].Do("LOCKINFO", "k"), "$5\r\nproxy\r\n")
	})
	all[1].Send("LOCK", "k", "BLOCK", "0")
	harness.Eventually(t, "it waits", func() bool {
		w := harness.Dial(t, proxies[1].Addr())
		defer w.Close()
		return harness.WaitingHere(t, w, "k") == 1
	})
	harness.Expect(t, all[0], ":1\r\n", "UNLOCK", "k")
	if got := all[1].Read(); got != "+OK\r\n" {
		t.Errorf("the waiter: %q", got)
	}
}

// TestApartTLS: the locks' Redis is reached with TLS and a password in a file, as the data's.
func TestApartTLS(t *testing.T) {
	t.Parallel()
	ca, tlsPort := testredis.NewAuthority(t), testredis.FreePort(t)
	cert, key := ca.Issue("localhost")
	keeper := testredis.Start(t, "--tls-port", strconv.Itoa(tlsPort), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File,
		"--tls-auth-clients", "no")
	keeper.Do(t, "ACL", "SETUSER", "svc", "on", ">secret", "~*", "&*", "+@all")
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := harness.StartProxy(t, testredis.Start(t).URL(), "--locks", fmt.Sprintf("rediss://svc@localhost:%d", tlsPort), "--upstream-tls-ca", ca.File,
		"--locks-password-file", password)
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k")
	if keeper.Do(t, "EXISTS", "k").(int64) != 1 {
		t.Error("where is the lock?")
	}
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "k")
}
