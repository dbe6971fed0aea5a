package locks

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// errReply is a reply that a load did not expect.
func errReply(what, got string) error { return fmt.Errorf("%s: %q", what, got) }

// addOne adds one to a plain counter under a lock, in a way that loses counts without one.
func addOne(w *harness.Wire) error {
	if got, err := w.Try("LOCK", "l", "BLOCK", "0"); err != nil || got != "+OK\r\n" {
		return errors.Join(err, errReply("LOCK", got))
	}
	got, err := w.Try("GET", "counter")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(bulk(got))
	if err != nil {
		return errReply("GET", got)
	}
	if got, err := w.Try("SET", "counter", strconv.Itoa(n+1)); err != nil || got != "+OK\r\n" {
		return errors.Join(err, errReply("SET", got))
	}
	if got, err := w.Try("UNLOCK", "l"); err != nil || got != ":1\r\n" {
		return errors.Join(err, errReply("UNLOCK", got))
	}
	return nil
}

var bulkReply = regexp.MustCompile(`(?s)^\$[0-9]+\r\n(.*)\r\n$`)

// bulk is the text of a bulk reply, "" for anything else.
func bulk(reply string) string {
	if m := bulkReply.FindStringSubmatch(reply); m != nil {
		return m[1]
	}
	return ""
}

func TestMutualExclusion(t *testing.T) {
	t.Parallel()
	const connections, proxies = 64, 2
	increments := int64(1000)
	if harness.Long() {
		increments = 20000
	}
	s := testredis.Start(t)
	s.Do(t, "SET", "counter", 0)
	var wires [connections]*harness.Wire
	for i := range proxies {
		p := harness.StartProxy(t, s.URL())
		for j := i; j < connections; j += proxies {
			wires[j] = harness.Dial(t, p.Addr())
		}
	}
	var todo atomic.Int64
	var failed error
	var once sync.Once
	began := time.Now()
	harness.Together(connections, func(i int) {
		for todo.Add(1) <= increments {
			if err := addOne(wires[i]); err != nil {
				once.Do(func() { failed = err })
				return
			}
		}
	})
	took := time.Since(began)
	if failed != nil {
		t.Fatal(failed)
	}
	if got, _ := redis.Int64(s.Do(t, "GET", "counter"), nil); got != increments {
		t.Errorf("the counter is %d after %d increments", got, increments)
	}
	if got := harness.Keys(t, s); len(got) != 1 {
		t.Errorf("keys %q are left", got)
	}
	t.Logf("%d increments by %d connections through %d proxies: exact, %.0f a second", increments, connections, proxies,
		float64(increments)/took.Seconds())
}

var calls = regexp.MustCompile(`cmdstat_(eval|evalsha):calls=([0-9]+)`)

// scriptCalls is how many scripts Redis has run, by its own count.
func scriptCalls(t testing.TB, s *testredis.Server) int {
	t.Helper()
	info, err := redis.String(s.Do(t, "INFO", "commandstats"), nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, m := range calls.FindAllStringSubmatch(info, -1) {
		n, _ := strconv.Atoi(m[2])
		sum += n
	}
	return sum
}

func TestThousandWaiters(t *testing.T) {
	const waiters = 1000
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	holder := harness.Dial(t, p.Addr())
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "k")
	wires := make([]*harness.Wire, waiters)
	for i := range wires {
		wires[i] = harness.Dial(t, p.Addr())
	}
	before := scriptCalls(t, s)
	for _, w := range wires {
		w.Send("LOCK", "k", "BLOCK", "0")
	}
	harness.Eventually(t, "all wait", func() bool { return harness.WaitingHere(t, holder, "k") == waiters })
	looks := scriptCalls(t, s)
	var inside atomic.Int32
	var failures atomic.Int32
	harness.Expect(t, holder, ":1\r\n", "UNLOCK", "k")
	began := time.Now()
	harness.Together(waiters, func(i int) {
		got, err := wires[i].TryRead(3 * harness.Patience)
		if err != nil || got != "+OK\r\n" || inside.Add(1) != 1 {
			failures.Add(1)
			return
		}
		inside.Add(-1)
		if got, err := wires[i].Try("UNLOCK", "k"); err != nil || got != ":1\r\n" {
			failures.Add(1)
		}
	})
	took := time.Since(began)
	after := scriptCalls(t, s)
	if n := failures.Load(); n != 0 {
		t.Fatalf("%d of %d waiters failed", n, waiters)
	}
	perGrant := float64(after-looks) / waiters
	t.Logf("%d waiters on one key: %d script calls while they came, then %.3f a grant (UNLOCK included), %v a grant", waiters,
		looks-before, perGrant, (took / waiters).Round(time.Microsecond))
	if perGrant > 3 {
		t.Errorf("%.2f script calls a grant", perGrant)
	}
}
