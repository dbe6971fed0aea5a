package locks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

// monitor is a connection that sees every command of a Redis; label names the lines that count.
type monitor struct {
	w     *harness.Wire
	label func(line string) string
	seen  []string
}

func startMonitor(t testing.TB, s *testredis.Server, label func(string) string) *monitor {
	t.Helper()
	m := &monitor{w: harness.Dial(t, s.Addr()), label: label}
	harness.Expect(t, m.w, "+OK\r\n", "MONITOR")
	return m
}

// until reads on until step has been seen n times in all.
func (m *monitor) until(step string, n int) {
	m.w.T.Helper()
	for _, s := range m.seen {
		if s == step {
			n--
		}
	}
	for end := time.Now().Add(harness.Patience); n > 0; {
		line, err := m.w.TryRead(time.Until(end)) // other commands are shown for ever
		if err != nil {
			m.w.T.Fatalf("MONITOR never showed %q again, only\n%s", step, strings.Join(m.seen, "\n"))
		}
		name := m.label(line)
		if name != "" {
			m.seen = append(m.seen, name)
		}
		if name == step {
			n--
		}
	}
}

// owned says which of the owners a line of MONITOR names.
func owned(line string, owners map[string]string) string {
	for name, owner := range owners {
		if strings.Contains(line, `"`+owner+`"`) {
			return name
		}
	}
	return "?"
}

// labels names the lines of MONITOR that speak of the lock: calls of scripts, what they do, and subscriptions.
func labels(key string, owners map[string]string) func(string) string {
	return func(line string) string {
		if !strings.Contains(line, key) {
			return ""
		}
		_, command, _ := strings.Cut(line, "] ")
		words := strings.Split(strings.TrimSpace(command), " ")
		verb := strings.ToLower(strings.Trim(words[0], `"`))
		inside := strings.Contains(line, " lua] ")
		switch {
		case verb == "evalsha" && strings.Contains(line, scripts.Acquire.SHA):
			return owned(line, owners) + " acquire"
		case verb == "evalsha" && strings.Contains(line, scripts.Release.SHA):
			return owned(line, owners) + " release"
		case verb == "evalsha" || verb == "eval":
			return "another script: " + line
		case inside && (verb == "exists" || verb == "hmget" || verb == "hget" || verb == "hexists" || verb == "lindex" || verb == "pttl"):
			return ""
		case inside && verb == "hset":
			return "  hset " + owned(line, owners) + " " + strings.Trim(words[len(words)-1], `"`)
		case inside && verb == "publish":
			return "  publish " + strings.Trim(words[1], `"`) + " " + strings.Trim(words[2], `"`)
		case inside:
			return "  " + verb
		case verb == "subscribe" || verb == "unsubscribe":
			return verb + " " + strings.Trim(words[1], `"`)
		}
		return ""
	}
}

// Two proxies before one Redis: MONITOR shows Redisson's own sequence of steps, but that the proxy that waits is told on a channel of its own.
func TestMonitorShowsRedissonsSequence(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	var wires [2]*harness.Wire
	for i := range wires {
		p := harness.StartProxy(t, s.URL(), "--wait-poll", "60s")
		wires[i] = harness.Dial(t, p.Addr())
	}
	a, b := wires[0], wires[1]
	owners := map[string]string{}
	for i, w := range wires { // Redis knows the scripts from now on, and we know the owners
		harness.Expect(t, w, "+OK\r\n", "LOCK", "x")
		owners[string(rune('A'+i))] = onlyOwner(t, s, "x")
		harness.Expect(t, w, ":1\r\n", "UNLOCK", "x")
	}
	const channel = "redisson_lock__channel:{orders}"
	m := startMonitor(t, s, labels("orders", owners))
	harness.Expect(t, a, "+OK\r\n", "LOCK", "orders")
	b.Send("LOCK", "orders", "BLOCK", "60000")
	m.until("B acquire", 2)
	if !b.Silent(50 * time.Millisecond) {
		t.Fatalf("granted while A holds it: %q", b.Read())
	}
	harness.Expect(t, a, ":1\r\n", "UNLOCK", "orders")
	if got := b.Read(); got != "+OK\r\n" {
		t.Fatal(got)
	}
	harness.Expect(t, b, ":1\r\n", "UNLOCK", "orders")
	m.until("unsubscribe "+channel, 1)
	m.until("  del", 2)

	first := []string{"A acquire", "  hset A 1", "  pexpire"}
	uuid, _, _ := strings.Cut(owners["B"], ":")
	enters := []string{"B acquire", "  hdel", "  zscore", "  zadd", "  pexpire", "  pubsub"} // B's proxy is the first that is to be told
	again := []string{"B acquire", "  hdel", "  zrank", "  zadd", "  pexpire", "  pubsub"}
	handed := []string{"A release", "  zrange", "  publish " + channel + ":" + uuid + " 0", "  pubsub", "  zadd", "  zcard", "  pubsub", "  del",
		"B acquire", "  zrem", "  hset B 1", "  pexpire"}
	want := slices.Concat(first, enters, []string{"subscribe " + channel}, again, handed,
		[]string{"B release", "  publish " + channel + " 0", "  del"})
	m.seen = slices.DeleteFunc(m.seen, func(line string) bool { return line == "unsubscribe "+channel }) // at any time after the grant
	if !slices.Equal(m.seen, want) {
		t.Errorf("MONITOR showed\n%s\nwant\n%s", strings.Join(m.seen, "\n"), strings.Join(want, "\n"))
	}
}
