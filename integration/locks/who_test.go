package locks

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Redis' own ACL decides who may lock what, though the scripts run as the service account.
func TestAccessControl(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "app", "on", ">secret", "~app:*", "+@read", "+@write")
	s.Do(t, "ACL", "SETUSER", "reader", "on", ">secret", "%R~app:*", "+@read", "+@write")
	p := harness.StartProxy(t, s.URL())
	app, reader := harness.Dial(t, p.Addr()), harness.Dial3(t, p.Addr())
	harness.Expect(t, app, "+OK\r\n", "AUTH", "app", "secret")
	harness.Expect(t, reader, "+OK\r\n", "AUTH", "reader", "secret")

	harness.Expect(t, app, "+OK\r\n", "LOCK", "app:1")
	harness.Number(t, app.Do("LOCK", "app:2", "OWNER", "me", "EX", "30", "FENCE"))
	harness.Expect(t, app, ":1\r\n", "RENEW", "app:1", "EX", "90")
	for _, c := range []struct {
		w    *harness.Wire
		args []string
	}{
		{app, []string{"LOCK", "other"}},
		{app, []string{"LOCK", "other", "BLOCK", "0"}},
		{app, []string{"LOCK", "other", "OWNER", "me", "EX", "30"}},
		{app, []string{"UNLOCK", "other", "OWNER", "me"}},
		{app, []string{"UNLOCK", "other", "FORCE"}},
		{app, []string{"RENEW", "other"}},
		{app, []string{"LOCKINFO", "other"}},
		{reader, []string{"LOCK", "app:3"}},
		{reader, []string{"UNLOCK", "app:1", "FORCE"}},
		{reader, []string{"UNLOCK", "app:2", "OWNER", "me"}},
		{reader, []string{"RENEW", "app:2", "OWNER", "me", "EX", "30"}},
	} {
		for range 2 { // the second answer may be remembered
			if got := c.w.Do(c.args...); !strings.HasPrefix(got, "-NOPERM ") {
				t.Errorf("%q: %q", c.args, got)
			}
		}
	}
	if got := reader.Do("LOCKINFO", "app:1"); !strings.Contains(got, "plain") {
		t.Errorf("LOCKINFO by one who may read: %q", got)
	}
	direct := s.Do(t, "KEYS", "other*")
	if list, ok := direct.([]any); !ok || len(list) != 0 {
		t.Errorf("a refused lock left %q", direct)
	}
	harness.Expect(t, app, ":1\r\n", "UNLOCK", "app:1")
	harness.Expect(t, app, ":1\r\n", "UNLOCK", "app:2", "OWNER", "me")

	// A right that is taken away is taken away here too, some seconds later.
	s.Do(t, "ACL", "SETUSER", "app", "resetkeys", "~elsewhere:*")
	harness.Eventually(t, "the right to app:1 is gone", func() bool { return strings.HasPrefix(app.Do("LOCK", "app:1", "PX", "1"), "-NOPERM ") })
}

func TestNoAuthNoLock(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--requirepass secret")
	p := harness.StartProxy(t, s.URL())
	w := harness.Dial(t, p.Addr())
	for _, args := range [][]string{{"LOCK", "k"}, {"UNLOCK", "k"}, {"MULTIUNLOCK", "1", "k"}, {"UNLOCK", "k", "FORCE"}, {"LOCKINFO", "k"}, {"LOCKLIST"}, {"RENEW", "k"}} {
		if got := w.Do(args...); !strings.HasPrefix(got, "-NOAUTH ") {
			t.Errorf("%q before AUTH: %q", args, got)
		}
	}
	harness.Expect(t, w, "+OK\r\n", "AUTH", "secret")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k")
}

func TestPooledConnectionsNeedAnOwner(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "CLIENT", "SETINFO", "lib-name", "x")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k")
	for _, args := range [][]string{{"LOCK", "k"}, {"LOCK", "k", "BLOCK", "50"}, {"LOCK", "k", "FENCE", "EX", "90"}} {
		if got := w.Do(args...); !strings.HasPrefix(got, "-OWNERREQUIRED ") || !strings.Contains(got, "OWNER") {
			t.Errorf("%q: %q", args, got)
		}
	}
	owner := onlyOwner(t, s, "k")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k", "SELF")
	if h := hash(t, s, "k"); h[owner] != "2" {
		t.Errorf("after SELF: %v", h)
	}
	harness.Expect(t, w, "$-1\r\n", "LOCK", "k", "OWNER", "other", "EX", "30")
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "k", "ALL")
	if got := w.Do("UNLOCK", "k"); !strings.HasPrefix(got, "-NOTHELD ") || !strings.Contains(got, "OWNER") {
		t.Errorf("UNLOCK on a pooled connection that holds nothing: %q", got)
	}
	plain := harness.Dial(t, p.Addr())
	if got := plain.Do("UNLOCK", "k"); !strings.HasPrefix(got, "-NOTHELD ") || strings.Contains(got, "OWNER") {
		t.Errorf("UNLOCK on a connection without a library: %q", got)
	}
}

func TestImplicitReentry(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	for _, c := range []struct {
		setting      string
		plain, named bool // may enter again
	}{{"auto", true, false}, {"always", true, true}, {"never", false, false}} {
		p := harness.StartProxy(t, s.URL(), "--implicit-reentry", c.setting)
		for _, named := range []bool{false, true} {
			w, key, may := harness.Dial(t, p.Addr()), c.setting+strconv.FormatBool(named), c.plain
			if named {
				harness.Expect(t, w, "+OK\r\n", "CLIENT", "SETINFO", "LIB-NAME", "x")
				may = c.named
			}
			harness.Expect(t, w, "+OK\r\n", "LOCK", key)
			if got := w.Do("LOCK", key); may != (got == "+OK\r\n") || !may && !strings.HasPrefix(got, "-OWNERREQUIRED ") {
				t.Errorf("--implicit-reentry %s, library named %v: %q", c.setting, named, got)
			}
			harness.Expect(t, w, "+OK\r\n", "LOCK", key, "SELF")
		}
	}
}

// What a client library that sends again relies on: one hold, and a token that is good from then on, whatever connection it comes from.
func TestOwnerHasOneHold(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	last := int64(0)
	for range 10 {
		w := harness.Dial(t, p.Addr())
		harness.Expect(t, w, "+OK\r\n", "LOCK", "k", "OWNER", "job-7", "EX", "30")
		token := harness.Number(t, w.Do("LOCK", "f", "OWNER", "job-7", "EX", "30", "FENCE", "BLOCK", "30000"))
		if token <= last {
			t.Errorf("token %d after %d", token, last)
		}
		last = token
	}
	for _, key := range []string{"k", "f"} {
		if h := hash(t, s, key); len(h) != 1 || h["job-7"] != "1" {
			t.Errorf("%s after ten times: %v", key, h)
		}
	}
	harness.Expect(t, harness.Dial(t, p.Addr()), ":1\r\n", "UNLOCK", "k", "OWNER", "job-7")
	if got := harness.Dial(t, p.Addr()).Do("UNLOCK", "k", "OWNER", "job-7"); !strings.HasPrefix(got, "-NOTHELD ") {
		t.Errorf("UNLOCK sent again: %q", got) // nothing remembers the first one
	}
	if exists(t, s, "k") {
		t.Error("the lock is still there")
	}
	harness.Expect(t, harness.Dial(t, p.Addr()), "+OK\r\n", "LOCK", "k", "OWNER", "another", "EX", "30")
	if got := harness.Dial(t, p.Addr()).Do("UNLOCK", "k", "OWNER", "third"); !strings.HasPrefix(got, "-NOTHELD ") {
		t.Errorf("UNLOCK by one who never held it: %q", got)
	}
}

// The same at once, before the first proxy's watchdog has looked.
func TestOwnerEndsOnAnotherProxy(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	here, there := harness.Dial3(t, harness.StartProxy(t, s.URL()).Addr()), harness.Dial3(t, harness.StartProxy(t, s.URL()).Addr())
	for _, verb := range [][]string{{"UNLOCK"}, {"RENEW", "EX", "30"}} {
		harness.Expect(t, here, "+OK\r\n", "LOCK", "k", "OWNER", "me", "EX", "30")
		harness.Expect(t, there, ":1\r\n", "UNLOCK", "k", "OWNER", "me")
		if got := here.Do(append([]string{verb[0], "k", "OWNER", "me"}, verb[1:]...)...); !strings.HasPrefix(got, "-NOTHELD ") {
			t.Errorf("%s on the first connection: %q", verb, got)
		}
		if !here.Silent(100 * time.Millisecond) {
			t.Errorf("the first connection got %q", here.Read())
		}
	}
	if exists(t, s, "k") {
		t.Errorf("the lock is still there")
	}
}

// An owner may go on through another proxy; what the first one still believes must not keep the lock alive, nor cry.
func TestOwnerMovesToAnotherProxy(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	two := func(watchdog string) (pair [2]*harness.Proxy) {
		for i := range pair {
			pair[i] = harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", watchdog)
		}
		return pair
	}
	proxies := map[string][2]*harness.Proxy{"6s": two("6s"), "18s": two("18s")}
	tests := map[string]func(*testing.T){}
	for name, c := range map[string]struct {
		watchdog string
		there    [][]string
		gone     time.Duration // not before
	}{
		"UNLOCK there":                      {"6s", [][]string{{"UNLOCK"}}, 0},
		"UNLOCK and LOCK EX 5 there":        {"18s", [][]string{{"UNLOCK"}, {"LOCK", "EX", "5"}}, 5 * time.Second},
		"LOCK EX after a renewal":           {"6s", [][]string{{"UNLOCK"}, {"LOCK", "EX", "3"}}, 3 * time.Second},
		"LOCK PX shorter than the renewal":  {"6s", [][]string{{"UNLOCK"}, {"LOCK", "PX", "500"}}, 500 * time.Millisecond},
		"RENEW EX there":                    {"6s", [][]string{{"RENEW", "EX", "3"}}, 3 * time.Second},
		"RENEW PX shorter than the renewal": {"6s", [][]string{{"RENEW", "PX", "500"}}, 500 * time.Millisecond},
		"LOCK again there, UNLOCK ALL":      {"6s", [][]string{{"LOCK", "EX", "30"}, {"UNLOCK", "ALL"}}, 0},
		"LOCK again there, UNLOCK":          {"6s", [][]string{{"LOCK", "EX", "60"}, {"UNLOCK"}}, 0},
		"LOCK EX again there, UNLOCK":       {"6s", [][]string{{"LOCK", "EX", "30"}, {"UNLOCK"}}, 0},
	} {
		tests[name] = func(t *testing.T) {
			pair := proxies[c.watchdog]
			here, there := harness.Dial3(t, pair[0].Addr()), harness.Dial3(t, pair[1].Addr())
			harness.Expect(t, here, "+OK\r\n", "LOCK", name, "OWNER", "me", "EX", "30")
			began := time.Now()
			for _, args := range c.there {
				got := there.Do(append([]string{args[0], name, "OWNER", "me"}, args[1:]...)...)
				if got[0] == '-' {
					t.Fatalf("%q on the other proxy: %q", args, got)
				}
			}
			harness.Eventually(t, "the lock is gone", func() bool { return !exists(t, s, name) })
			if d := time.Since(began); d < c.gone-10*time.Millisecond {
				t.Errorf("gone after %v", d)
			}
			wait, _ := time.ParseDuration(c.watchdog)
			if !here.Silent(wait/3 + 500*time.Millisecond) {
				t.Errorf("the first connection got %q", here.Read())
			}
			// Sent again on the connection that began: the hold is over, not lost.
			if got := here.Do("UNLOCK", name, "OWNER", "me"); got != ":1\r\n" && !strings.HasPrefix(got, "-NOTHELD ") {
				t.Errorf("UNLOCK on the first connection: %q", got)
			}
			if !there.Silent(time.Millisecond) {
				t.Errorf("the second connection got %q", there.Read())
			}
		}
	}
	sideBySide(t, tests)
}
