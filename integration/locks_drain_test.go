package integration

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := startProxy(t, upstream)
		idle, holder, owner := dial(t, p.Addr()), dial(t, p.Addr()), dial3(t, p.Addr())
		waiter, waiting := dial(t, p.Addr()), dial(t, p.Addr())
		expect(t, idle, "+OK\r\n", "SET", "x", "1")
		expect(t, holder, "+OK\r\n", "LOCK", "k")
		expect(t, owner, "+OK\r\n", "LOCK", "o", "OWNER", "me")
		waiter.send("LOCK", "k", "BLOCK", "0") // holds nothing
		expect(t, waiting, "+OK\r\n", "LOCK", "w")
		waiting.send("LOCK", "k", "BLOCK", "0") // and this one does
		eventually(t, "two wait", func() bool { return waitingHere(t, holder, "k") == 2 })

		p.signal(syscall.SIGTERM)
		if !idle.closed() {
			t.Error("an idle client is not closed")
		}
		for name, w := range map[string]*wire{"holding nothing": waiter, "holding another": waiting} {
			if got := w.read(); !strings.HasPrefix(got, "-DRAINING ") {
				t.Errorf("a waiter %s got %q", name, got)
			}
		}
		if !waiter.closed() {
			t.Error("a waiter that holds nothing is not closed")
		}
		if c, err := net.Dial("tcp", p.Addr()); err == nil {
			_ = c.Close()
			t.Error("a new connection is let in")
		}
		for _, args := range [][]string{{"LOCK", "new"}, {"LOCK", "new", "BLOCK", "0"}, {"LOCK", "o", "OWNER", "other"}} {
			if got := holder.do(args...); !strings.HasPrefix(got, "-DRAINING ") {
				t.Errorf("%q in a drain: %q", args, got)
			}
		}
		// The holder works on, enters again, and is closed after its last UNLOCK only.
		expect(t, holder, "$1\r\n1\r\n", "GET", "x")
		expect(t, holder, "+OK\r\n", "LOCK", "k")
		expect(t, holder, ":0\r\n", "UNLOCK", "k")
		expect(t, holder, ":1\r\n", "RENEW", "k")
		if !holder.silent(200 * time.Millisecond) {
			t.Error("the holder was sent something")
		}
		expect(t, holder, ":1\r\n", "UNLOCK", "k")
		if !holder.closed() {
			t.Error("the holder is not closed after its UNLOCK")
		}
		expect(t, owner, ":1\r\n", "UNLOCK", "o", "OWNER", "me")
		if !owner.closed() {
			t.Error("the holder under a name is not closed after its UNLOCK")
		}
		expect(t, waiting, ":1\r\n", "UNLOCK", "w")
		if code := p.exit(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := startProxy(t, s.URL(), "--drain-timeout", "700ms", "--lock-watchdog-timeout", "3s")
	holder, owner := dial(t, p.Addr()), dial(t, p.Addr())
	expect(t, holder, "+OK\r\n", "LOCK", "k")
	expect(t, owner, "+OK\r\n", "LOCK", "o", "OWNER", "me")
	began := time.Now()
	if code := p.Term(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	ended := time.Now()
	if took := ended.Sub(began); took < 600*time.Millisecond {
		t.Errorf("it ended after %v, with holders and a drain timeout of 700 ms", took)
	}
	if !holder.closed() || !owner.closed() {
		t.Error("holders are not closed")
	}
	for _, key := range []string{"k", "o"} {
		if left := pttl(t, s, key); left <= 0 || left > 3000 {
			t.Errorf("%s: PTTL %d after the drain's end, want it to run out", key, left)
		}
	}
	eventually(t, "the locks run out", func() bool { return !exists(t, s, "k") && !exists(t, s, "o") })
	t.Logf("ended %v after SIGTERM; its locks ran out %v later", ended.Sub(began).Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
}
