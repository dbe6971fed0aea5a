package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// oddReplies are scripts whose replies others have stumbled over.
var oddReplies = []string{
	"return redis.error_reply('MOVED 1 127.0.0.1:1')",
	"return redis.error_reply('ASK 1 127.0.0.1:1')",
	"return redis.error_reply('MOVED')",
	"return redis.error_reply('NOAUTH Authentication required.')",
	"return redis.error_reply('LOADING soon')",
	"return redis.error_reply('NOSCRIPT none')",
	"return redis.error_reply('a\\r\\n+OK')",
	"return redis.error_reply('')",
	"return {err='odd\\n$1'}",
	"return {ok='fine\\r\\n+more'}",
	"return {ok=''}",
	"return {{}, {{}}, {{{}}}, '', 1, false, {ok='x'}, {err='inside'}}",
	"return {1, nil, 3}",
	"return false",
	"return {double=3.25}",
	"redis.setresp(3); return {map={a=1, b={set={x=true}}}}",
	"redis.setresp(3); return {big_number='12345678901234567890'}",
	"redis.setresp(3); return {verbatim_string={format='txt', string='a\\r\\nb'}}",
	"redis.setresp(3); return {big_number='1\\r\\n+2'}",
	"redis.setresp(3); return true",
	"return '$-1\\r\\n*1\\r\\n'",
	"local t = {} for i = 1, 100 do t = {t} end return t",
	"local t = {} for i = 1, 500 do t = {t} end return t",
	"local t = {} for i = 1, 600 do t = {t} end return t",
	"local t = {} for i = 1, 7000 do t = {t} end return t",
	"local t = {} for i = 1, 20000 do t[i] = {} end return t",
	"return string.rep('x', 3000000)",
}

// Whatever a script returns comes through as Redis says it, to its caller only.
func TestScriptsWithOddReplies(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL())
	watch := watchOver(t, p.Addr())
	for _, hello := range []string{"2", "3"} {
		direct := harness.Dial(t, server.Addr())
		direct.Do("HELLO", hello)
		for _, script := range oddReplies {
			w := harness.Dial(t, p.Addr())
			w.Do("HELLO", hello)
			want := direct.Do("EVAL", script, "0")
			if got, err := w.Try("EVAL", script, "0"); got != want {
				t.Errorf("RESP%s %s: got %.60q (%d bytes), %v; want %.60q (%d bytes)", hello, script, got, len(got), err, want, len(want))
				continue
			}
			if got, err := w.Try("ECHO", "after"); got != "$5\r\nafter\r\n" {
				t.Errorf("RESP%s after %s: %.60q, %v", hello, script, got, err)
			}
			w.Close()
		}
	}
	n, median, longest := watch.finish()
	t.Logf("%d scripts in two protocols; %d commands of bystanders, median %v, longest %v", len(oddReplies), n, median, longest)
}

// refusing checks that every write and lock verb is answered by Redis' own error, and that nothing changes. again begins the answer to
// LOCK by who has the lock already, for which a full Redis needs no memory.
func refusing(t *testing.T, server *testredis.Server, p *harness.Proxy, code, again string, refuse, allow func()) {
	w, other := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	for _, verb := range []string{"LOCK held", "LOCK twice SELF", "LOCK twice SELF", "LOCK owned OWNER o EX 30", "LOCK free", "LOCK fenced FENCE"} {
		if got := w.Do(strings.Fields(verb)...); got[0] == '-' {
			t.Fatal(got)
		}
	}
	for _, verb := range []string{"UNLOCK free", "UNLOCK fenced"} {
		w.Do(strings.Fields(verb)...)
	}
	refuse()
	before := lockState(t, server)
	for _, line := range []string{
		"SET x 1", "LOCK free", "LOCK free OWNER p EX 30", "LOCK fenced FENCE", "LOCK free BLOCK 50",
	} {
		if got := w.Do(strings.Fields(line)...); !strings.HasPrefix(got, "-"+code+" ") || strings.Contains(got, "script") {
			t.Errorf("%s: %q", line, got)
		}
	}
	if got := w.Do("LOCK", "owned", "OWNER", "o", "EX", "30"); !strings.HasPrefix(got, again) {
		t.Errorf("LOCK said again: %q", got)
	}
	if got := w.Do("LOCK", "held", "SELF"); !strings.HasPrefix(got, again) {
		t.Errorf("LOCK once more: %q", got)
	} else if strings.HasPrefix(ok, again) {
		if got := w.Do("UNLOCK", "held"); got != ":0\r\n" {
			t.Errorf("UNLOCK of that: %q", got)
		}
	}
	if got := other.Do("LOCK", "held"); got != "$-1\r\n" {
		t.Errorf("LOCK of a lock that is held: %q", got)
	}
	if after := lockState(t, server); after != before {
		t.Errorf("Redis had %s, now it has %s", before, after)
	}
	twice := w.Do("UNLOCK", "twice")
	t.Logf("UNLOCK of the second hold meanwhile: %q", twice)
	allow()
	for _, line := range []string{"UNLOCK held", "UNLOCK twice ALL", "UNLOCK owned OWNER o", "LOCK free", "UNLOCK free"} {
		want := ":1\r\n"
		if strings.HasPrefix(line, "LOCK") {
			want = "+OK\r\n"
		}
		if got := w.Do(strings.Fields(line)...); got != want {
			t.Errorf("afterwards %s: %q", line, got)
		}
	}
}

func lockState(t *testing.T, server *testredis.Server) string {
	state := ""
	for _, key := range []string{"held", "twice", "owned", "free", "fenced"} {
		state += fmt.Sprintf("%s %s; ", key, server.Do(t, "HGETALL", key))
	}
	return state + fmt.Sprintf("%v", server.Do(t, "GET", "redisson_lock_token:{fenced}"))
}

func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL(), "--lock-watchdog-timeout", "8s")
	refusing(t, server, p, "OOM", "+OK", func() {
		server.Do(t, "CONFIG", "SET", "maxmemory", "1")
		time.Sleep(9 * time.Second) // renewals go on: a lease passes
	}, func() { server.Do(t, "CONFIG", "SET", "maxmemory", "0") })
}

func TestRedisThatCannotSave(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--enable-protected-configs yes")
	p := harness.StartProxy(t, server.URL())
	gone := filepath.Join(t.TempDir(), "gone")
	refusing(t, server, p, "MISCONF", "-MISCONF ", func() {
		if err := os.Mkdir(gone, 0o755); err != nil {
			t.Fatal(err)
		}
		server.Do(t, "CONFIG", "SET", "dir", gone)
		if err := os.Remove(gone); err != nil {
			t.Fatal(err)
		}
		server.Do(t, "CONFIG", "SET", "save", "3600 1")
		server.Do(t, "BGSAVE")
		harness.Eventually(t, "the save has failed", func() bool {
			return strings.Contains(string(server.Do(t, "INFO", "persistence").([]byte)), "rdb_last_bgsave_status:err")
		})
	}, func() { server.Do(t, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no") })
}
