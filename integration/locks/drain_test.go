package locks

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		idle, holder, owner := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr()), harness.Dial3(t, p.Addr())
		waiter, waiting := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
		harness.Expect(t, idle, "+OK\r\n", "SET", "x", "1")
		harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
		harness.Expect(t, owner, "+OK\r\n", "LOCK", "o", "OWNER", "me", "EX", "30")
		waiter.Send("LOCK", "k", "BLOCK", "0") // holds nothing
		harness.Expect(t, waiting, "+OK\r\n", "LOCK", "w")
		waiting.Send("LOCK", "k", "BLOCK", "0") // and this one does
		harness.Eventually(t, "two wait", func() bool { return harness.WaitingHere(t, holder, "k") == 2 })

		p.Signal(syscall.SIGTERM)
		if !idle.Closed() {
			t.Error("an idle client is not closed")
		}
		for name, w := range map[string]*harness.Wire{"holding nothing": waiter, "holding another": waiting} {
			if got := w.Read(); !strings.HasPrefix(got, "-DRAINING ") {
				t.Errorf("a waiter %s got %q", name, got)
			}
		}
		if !owner.Closed() {
			t.Error("a client that named an owner is not closed, though the lease may be renewed over any proxy")
		}
		if !waiter.Closed() {
			t.Error("a waiter that holds nothing is not closed")
		}
		if c, err := net.Dial("tcp", p.Addr()); err == nil {
			_ = c.Close()
			t.Error("a new connection is let in")
		}
		for _, args := range [][]string{{"LOCK", "new"}, {"LOCK", "new", "BLOCK", "0"}, {"LOCK", "o", "OWNER", "other", "EX", "30"}} {
			if got := holder.Do(args...); !strings.HasPrefix(got, "-DRAINING ") {
				t.Errorf("%q in a drain: %q", args, got)
			}
		}
		// The holder works on, enters again, and is closed after its last UNLOCK only.
		harness.Expect(t, holder, "$1\r\n1\r\n", "GET", "x")
		harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
		harness.Expect(t, holder, ":0\r\n", "UNLOCK", "k")
		harness.Expect(t, holder, ":1\r\n", "RENEW", "k")
		if !holder.Silent(200 * time.Millisecond) {
			t.Error("the holder was sent something")
		}
		harness.Expect(t, holder, ":1\r\n", "UNLOCK", "k")
		if !holder.Closed() {
			t.Error("the holder is not closed after its UNLOCK")
		}
		harness.Expect(t, waiting, ":1\r\n", "UNLOCK", "w")
		if code := p.Exit(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--drain-timeout", "700ms", "--lock-watchdog-timeout", "8s")
	holder, owner := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
	harness.Expect(t, owner, "+OK\r\n", "LOCK", "o", "OWNER", "me", "EX", "8")
	began := time.Now()
	if code := p.Term(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	ended := time.Now()
	if took := ended.Sub(began); took < 600*time.Millisecond {
		t.Errorf("it ended after %v, with holders and a drain timeout of 700 ms", took)
	}
	if !holder.Closed() || !owner.Closed() {
		t.Error("holders are not closed")
	}
	for _, key := range []string{"k", "o"} {
		if left := pttl(t, s, key); left <= 0 || left > 8000 {
			t.Errorf("%s: PTTL %d after the drain's end, want it to run out", key, left)
		}
	}
	harness.Eventually(t, "the locks run out", func() bool { return !exists(t, s, "k") && !exists(t, s, "o") })
	t.Logf("ended %v after SIGTERM; its locks ran out %v later", ended.Sub(began).Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
}
