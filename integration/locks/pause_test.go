package locks

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// paused is a proxy whose default user is an operator.
type paused struct {
	*testing.T
	redis *testredis.Server
	proxy *harness.Proxy
	ops   *harness.Wire
}

func startPaused(t *testing.T, args ...string) *paused {
	redis := testredis.Start(t)
	p := harness.StartProxy(t, redis.URL(), append([]string{"--operators", "default"}, args...)...)
	p.AwaitProbe(1)
	return &paused{t, redis, p, harness.Dial(t, p.Addr())}
}

func (p *paused) stats() map[string]any {
	p.Helper()
	return harness.Object(p.T, harness.Decode(p.T, p.ops.Do("LOCKPROXY", "STATS")))
}

// held sends a command on a connection of its own, and waits until so many clients are held back.
func (p *paused) held(n int64, words ...string) *harness.Wire {
	p.Helper()
	w := harness.Dial(p.T, p.proxy.Addr())
	w.Send(words...)
	p.holds(n)
	return w
}

func (p *paused) holds(n int64) {
	p.Helper()
	harness.Eventually(p.T, "clients are held back", func() bool { return p.stats()["pause_held_clients"] == n })
}

func (p *paused) expect(want string, words ...string) {
	p.Helper()
	harness.Expect(p.T, p.ops, want, words...)
}

// An operator holds back what clients send. Locks are given back, handed on and renewed meanwhile.
func TestPause(t *testing.T) {
	t.Parallel()
	p := startPaused(t, "--lock-watchdog-timeout", "4s")
	holder, waiter, keeper := harness.Dial(t, p.proxy.Addr()), harness.Dial(t, p.proxy.Addr()), harness.Dial(t, p.proxy.Addr())
	for lock, w := range map[string]*harness.Wire{"free": holder, "kept": keeper} {
		harness.Expect(t, w, "+OK\r\n", "LOCK", lock)
	}
	waiter.Send("LOCK", "free", "BLOCK", "0")
	harness.Eventually(t, "it waits", func() bool { return p.stats()["locks_waiting"] == int64(1) })

	p.expect("+OK\r\n", "LOCKPROXY", "PAUSE", "300000")
	sets := p.held(1, "SET", "k", "v")
	gets := p.held(2, "GET", "k")
	locks := p.held(3, "LOCK", "new")
	harness.Expect(t, holder, ":1\r\n", "UNLOCK", "free")
	if got := waiter.Read(); got != "+OK\r\n" {
		t.Errorf("a lock that was waited for: %q", got)
	}
	harness.Expect(t, keeper, ":1\r\n", "RENEW", "kept")
	renewed := p.stats()["locks_renewed"].(int64)
	harness.Eventually(t, "locks are renewed", func() bool { return p.stats()["locks_renewed"].(int64) > renewed })
	gone := p.held(4, "SET", "gone", "v")
	gone.Close()
	p.holds(3)
	if n := p.redis.Do(t, "EXISTS", "k", "new", "gone"); n != int64(0) {
		t.Errorf("%v of what was held back is there", n)
	}
	if s := p.stats(); s["pause"] != "all" || s["pause_left_ms"].(int64) < 200000 {
		t.Errorf("STATS: %v", s)
	}

	p.expect("+OK\r\n", "LOCKPROXY", "PAUSE", "300000", "write")
	if got := gets.Read(); got != "$-1\r\n" {
		t.Errorf("a read that was held back before: %q", got)
	}
	p.expect("$-1\r\n", "GET", "k")
	p.expect("+PONG\r\n", "PING")
	scripts := p.held(3, "EVAL", "return 1", "0")
	publishes := p.held(4, "PUBLISH", "c", "m")
	transaction := harness.Dial(t, p.proxy.Addr())
	transaction.Do("MULTI")
	harness.Expect(t, transaction, "+QUEUED\r\n", "GET", "k")
	transaction.Send("EXEC")
	p.holds(5)

	p.expect("+OK\r\n", "LOCKPROXY", "RESUME")
	for want, w := range map[string]*harness.Wire{":1\r\n": scripts, ":0\r\n": publishes, "*1\r\n": transaction} {
		if got := w.Read(); got[:len(want)] != want {
			t.Errorf("after RESUME: %q, want %q", got, want)
		}
	}
	for _, w := range []*harness.Wire{sets, locks} {
		if got := w.Read(); got != "+OK\r\n" {
			t.Errorf("after RESUME: %q", got)
		}
	}
	if n := p.redis.Do(t, "EXISTS", "k", "new", "gone", "kept", "free"); n != int64(4) {
		t.Errorf("%v of four keys are there", n)
	}
	if s := p.stats(); s["pause"] != "off" || s["pause_left_ms"] != int64(0) || s["pause_held_clients"] != int64(0) {
		t.Errorf("STATS: %v", s)
	}
	p.expect("+OK\r\n", "LOCKPROXY", "RESUME") // it does no harm
}

// A pause ends by itself, and before a drain, and a bad one changes nothing.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	p := startPaused(t, "--drain-timeout", "600s")
	for _, bad := range [][2]string{
		{"x", "-ERR timeout is not an integer or out of range\r\n"}, {"1.5", "-ERR timeout is not an integer or out of range\r\n"},
		{"-1", "-ERR timeout is out of range, must be between 1 and 300000\r\n"}, {"0", "-ERR timeout is out of range, must be between 1 and 300000\r\n"},
		{"300001", "-ERR timeout is out of range, must be between 1 and 300000\r\n"}, {"9223372036854775807", "-ERR timeout is out of range, must be between 1 and 300000\r\n"},
	} {
		p.expect(bad[1], "LOCKPROXY", "PAUSE", bad[0])
	}
	p.expect("-ERR PAUSE mode must be WRITE or ALL\r\n", "LOCKPROXY", "PAUSE", "1000", "READ")
	p.expect("-ERR wrong number of arguments for 'lockproxy|pause' command\r\n", "LOCKPROXY", "PAUSE")
	p.expect("-ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try LOCKPROXY HELP.\r\n", "LOCKPROXY", "PAUSE", "1", "ALL", "x")
	if s := p.stats(); s["pause"] != "off" {
		t.Errorf("STATS: %v", s)
	}
	p.expect("+OK\r\n", "LOCKPROXY", "PAUSE", "50", "ALL")
	p.expect("+OK\r\n", "SET", "k", "v")
	if s := p.stats(); s["pause"] != "off" {
		t.Errorf("STATS: %v", s)
	}
	p.expect("+OK\r\n", "LOCKPROXY", "PAUSE", "300000")
	w := p.held(1, "GET", "k")
	go p.proxy.Term()
	if got := w.Read(); got != "$1\r\nv\r\n" {
		t.Errorf("held back when the drain began: %q", got)
	}
}
