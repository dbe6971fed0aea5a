package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// resident is a client that lives through an outage of Redis, with a lock it took before.
type resident struct {
	w    *harness.Wire
	key  string
	push bool // speaks RESP3
}

// settleIn has clients of every kind take a lock each.
func settleIn(t *testing.T, p *harness.Proxy) (all []*resident) {
	for i := range 12 {
		r := &resident{key: fmt.Sprint("k", i), push: i%2 == 1}
		if r.w = harness.Dial(t, p.Addr()); r.push {
			r.w = harness.DialHearing(t, p.Addr())
		}
		if got := r.w.Do("SET", "x"+r.key, "v"); got != "+OK\r\n" {
			t.Fatal(got)
		}
		if got := r.w.Do("LOCK", r.key); got != "+OK\r\n" {
			t.Fatal(got)
		}
		all = append(all, r)
	}
	return all
}

// unlock gives the lock back; reply only, pushes that come before it are passed over.
func (r *resident) unlock() string { return r.plain("UNLOCK", r.key) }

func (r *resident) plain(args ...string) string {
	r.w.T.Helper()
	r.w.Send(args...)
	for {
		if got := r.w.Read(); got[0] != '>' {
			return got
		}
	}
}

// clear says that an error tells its reader what is the matter, in Redis' style.
func clear(reply string) bool {
	return strings.HasPrefix(reply, "-ERR upstream unavailable: ") && strings.HasSuffix(reply, "\r\n") && len(reply) < 200 ||
		strings.HasPrefix(reply, "-ERR upstream connection lost, the outcome of this command is unknown")
}

// While Redis is dead clients stay, and every command and verb is answered by an error that says so.
func duringOutage(t *testing.T, all []*resident) {
	slowest := time.Duration(0)
	for _, args := range [][]string{
		{"GET", "x"}, {"SET", "x", "v"}, {"LOCK", "new"}, {"LOCK", "new", "BLOCK", "300"}, {"RENEW", "KEY"}, {"UNLOCK", "other", "OWNER", "o"},
		{"LOCKINFO", "KEY"}, {"INFO"}, {"SELECT", "1"}, {"EVAL", "return 1", "0"}, {"NOSUCHCOMMAND"},
	} {
		for _, r := range all {
			words := append([]string(nil), args...)
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "KEY", r.key)
			}
			began := time.Now()
			got := r.w.Do(words...)
			slowest = max(slowest, time.Since(began))
			if !clear(got) {
				t.Errorf("%q without Redis: %q", words, got)
			}
		}
	}
	for _, r := range all {
		if got := r.w.Do("CLIENT", "SETNAME", "n") + r.w.Do("PING"); !strings.HasPrefix(got, "+OK\r\n-ERR upstream unavailable: ") {
			t.Errorf("CLIENT SETNAME and PING without Redis: %q", got)
		}
	}
	t.Logf("without Redis the slowest answer took %v", slowest.Round(time.Millisecond))
}

// backToWork waits until every client is served again and returns how long that took.
func backToWork(t *testing.T, all []*resident) (data, verbs time.Duration) {
	began := time.Now()
	for _, r := range all {
		harness.Eventually(t, "SET works again", func() bool { return r.plain("SET", "x"+r.key, "w") == "+OK\r\n" })
	}
	data = time.Since(began)
	for i, r := range all {
		key := fmt.Sprint("again", i)
		harness.Eventually(t, "LOCK works again", func() bool { return r.plain("LOCK", key) == "+OK\r\n" })
		if got := r.plain("UNLOCK", key); got != ":1\r\n" {
			t.Errorf("UNLOCK after the restart: %q", got)
		}
	}
	return data, time.Since(began)
}

const soon = 2 * time.Second

// Redis is killed and comes back empty: clients stay connected, and who held a lock hears that it is lost.
func TestRedisKilledAndBackEmpty(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL())
	all := settleIn(t, p)
	waiter := harness.Dial(t, p.Addr())
	waiter.Do("CLIENT", "ID")
	waiter.Send("LOCK", all[0].key, "BLOCK", "0")
	harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, all[0].w, all[0].key) == 1 })
	server.Kill()
	time.Sleep(100 * time.Millisecond)
	duringOutage(t, all)
	server.Restart()
	back := time.Now()
	for _, r := range all {
		if !r.push {
			continue
		}
		push, err := r.w.TryRead(harness.Patience)
		want := fmt.Sprintf(">4\r\n$9\r\nlock-lost\r\n$%d\r\n%s\r\n$5\r\nplain\r\n$4\r\ngone\r\n", len(r.key), r.key)
		if push != want {
			t.Errorf("%s: instead of a push %q, %v", r.key, push, err)
		}
	}
	told := time.Since(back)
	data, verbs := backToWork(t, all)
	for _, r := range all {
		if got := r.unlock(); !strings.HasPrefix(got, "-LOCKLOST '"+r.key+"' was lost ") {
			t.Errorf("UNLOCK of the lost %s: %q", r.key, got)
		}
	}
	if got := waiter.Read(); got != "+OK\r\n" {
		t.Errorf("the waiter: %q", got)
	}
	t.Logf("after the restart: pushes within %v, commands served after %v more, locks after %v", told.Round(time.Millisecond), data.Round(time.Millisecond), verbs.Round(time.Millisecond))
	if max(told, data, verbs) > harness.Bound(soon) {
		t.Errorf("longer than %v", soon)
	}
}

// Redis is killed and comes back with its data: the locks are still held, and nobody hears otherwise.
func TestRedisKilledAndBackWithItsData(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--appendonly yes", "--appendfsync always")
	p := harness.StartProxy(t, server.URL())
	all := settleIn(t, p)
	waiter := harness.Dial(t, p.Addr())
	waiter.Do("CLIENT", "ID")
	waiter.Send("LOCK", all[0].key, "BLOCK", "0")
	harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, all[0].w, all[0].key) == 1 })
	server.Kill()
	time.Sleep(100 * time.Millisecond)
	duringOutage(t, all)
	server.Restart()
	data, verbs := backToWork(t, all)
	for _, r := range all {
		if !r.w.Silent(soon / 8) {
			t.Errorf("%s: %q", r.key, r.w.Read())
		}
	}
	for _, r := range all {
		if got := server.Do(t, "EXISTS", r.key); got != int64(1) {
			t.Fatalf("Redis has forgotten %s: the test is void", r.key)
		}
		if got := r.w.Do("RENEW", r.key); got != ":1\r\n" {
			t.Errorf("RENEW %s: %q", r.key, got)
		}
		if got := r.unlock(); got != ":1\r\n" {
			t.Errorf("UNLOCK %s: %q", r.key, got)
		}
	}
	if got := waiter.Read(); got != "+OK\r\n" {
		t.Errorf("the waiter: %q", got)
	}
	t.Logf("commands served %v after the restart, locks %v", data.Round(time.Millisecond), verbs.Round(time.Millisecond))
	if max(data, verbs) > harness.Bound(soon) {
		t.Errorf("longer than %v", soon)
	}
	if strings.Contains(p.Log(), "lock lost") {
		t.Error("a loss was logged")
	}
}

// Redis goes away under clients that hear messages and hold a lock: they are closed at once, and nobody gets their locks before the leases are
// over, which nobody renews.
func TestRedisGoesAwayUnderASubscriber(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	link := testredis.NewProxy(t, s.Addr())
	p := harness.StartProxy(t, "redis://"+link.Addr())
	subscriber, tracker, other := harness.Dial(t, p.Addr()), harness.Dial3(t, p.Addr()), harness.Dial(t, p.Addr())
	for key, holder := range map[string]*harness.Wire{"s": subscriber, "t": tracker} {
		harness.Expect(t, holder, "+OK\r\n", "LOCK", key)
	}
	subscriber.Do("SUBSCRIBE", "news")
	harness.Expect(t, tracker, "+OK\r\n", "CLIENT", "TRACKING", "ON")
	link.Disable()
	if !subscriber.Closed() || !tracker.Closed() {
		t.Error("a client that hears messages stays")
	}
	link.Enable()
	for _, key := range []string{"s", "t"} {
		harness.Eventually(t, "Redis is there", func() bool { return other.Do("LOCK", key)[0] != '-' })
		harness.Expect(t, other, "$-1\r\n", "LOCK", key)
		if left, _ := s.Do(t, "PTTL", key).(int64); left <= 0 || left > 30000 {
			t.Errorf("PTTL %d: its lease is 30 s", left)
		}
		s.Do(t, "PEXPIRE", key, 1000) // which nobody wants to wait for
		harness.Expect(t, other, "+OK\r\n", "LOCK", key, "BLOCK", "60000")
	}
}
