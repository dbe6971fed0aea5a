package locks

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func exists(t testing.TB, s *testredis.Server, key string) bool {
	t.Helper()
	n, err := redis.Int(s.Do(t, "EXISTS", key), nil)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func TestWatchdogKeepsAndLetsGo(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // longer than a machine stalls
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", lease.String())
	other := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", lease.String())
	w, rival := harness.Dial(t, p.Addr()), harness.Dial(t, other.Addr())
	harness.Expect(t, w, "+OK\r\n", "LOCK", "implicit")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "explicit", "SELF")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "timed", "PX", "4000")
	lowest := lease.Milliseconds()
	for end := time.Now().Add(lease * 4 / 3); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, key := range []string{"implicit", "explicit"} {
			left := pttl(t, s, key)
			if left <= 0 || left > lease.Milliseconds() {
				t.Fatalf("%s: PTTL %d while it is held", key, left)
			}
			lowest = min(lowest, left)
		}
	}
	if exists(t, s, "timed") {
		t.Error("a lock taken with PX was renewed")
	}
	t.Logf("held for longer than a lease of %v; the least time left seen was %d ms", lease, lowest)

	rival.Send("LOCK", "implicit", "BLOCK", "60000")
	p.Kill() // w's socket stays open on our side
	killed := time.Now()
	last := int64(1 << 40)
	for exists(t, s, "explicit") {
		if left := pttl(t, s, "explicit"); left > last {
			t.Fatal("somebody renews the lock of a dead proxy")
		} else {
			last = left
		}
		time.Sleep(10 * time.Millisecond)
	}
	died := time.Since(killed)
	if got := rival.Read(); got != "+OK\r\n" {
		t.Fatalf("the waiter on the other proxy got %q", got)
	}
	if died > harness.Bound(lease+3*time.Second) {
		t.Errorf("the lock of a dead proxy lived for %v", died)
	}
	t.Logf("after kill -9 of its proxy a lock lived %v; a waiter elsewhere had the other %v after the kill", died.Round(time.Millisecond),
		time.Since(killed).Round(time.Millisecond))
}

// lostPush is the frame that tells a RESP3 client of a loss.
func lostPush(key, reason string) string {
	b := func(s string) string { return "$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n" }
	return ">4\r\n" + b("lock-lost") + b(key) + b("plain") + b(reason)
}

func TestLossIsReported(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "4s")
	old, modern := harness.Dial(t, p.Addr()), harness.DialHearing(t, p.Addr())
	other := harness.Dial(t, p.Addr())
	for _, c := range []struct {
		name   string
		take   []string
		reason string
		lose   func(key string)
	}{
		{"deleted", nil, "gone", func(key string) { s.Do(t, "DEL", key) }},
		{"taken by another past the proxy", nil, "gone", func(key string) {
			s.Do(t, "DEL", key)
			s.Do(t, "HSET", key, "0f8fad5b-d9cb-469f-a165-70867728950e:1", 1)
			s.Do(t, "PEXPIRE", key, 5000)
		}},
		{"overwritten by a string", nil, "gone", func(key string) { s.Do(t, "SET", key, "x") }},
		{"everything flushed", nil, "gone", func(string) { s.Do(t, "FLUSHALL") }},
		{"freed by force", nil, "forced", func(key string) { harness.Expect(t, other, ":1\r\n", "UNLOCK", key, "FORCE") }},
		{"not released in time", []string{"PX", "3000"}, "expired", func(string) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, w := range []*harness.Wire{old, modern} {
				key := "l" + strconv.Itoa(i)
				harness.Expect(t, w, "+OK\r\n", append([]string{"LOCK", key}, c.take...)...)
				c.lose(key)
				if w == modern {
					if got, want := w.Read(), lostPush(key, c.reason); got != want {
						t.Fatalf("pushed %q, want %q", got, want)
					}
				} else {
					harness.Eventually(t, "the proxy knows of the loss", func() bool { return !strings.Contains(w.Do("LOCKLIST"), key) })
				}
				for n, verb := range []string{"UNLOCK", "RENEW"} {
					got := w.Do(verb, key)
					if n == 1 { // it has been told
						if !strings.HasPrefix(got, "-NOTHELD ") {
							t.Errorf("%s after the loss was told: %q", verb, got)
						}
						continue
					}
					if c.name == "overwritten by a string" {
						if !strings.HasPrefix(got, "-WRONGTYPE ") && !strings.HasPrefix(got, "-LOCKLOST ") {
							t.Errorf("%s: %q", verb, got)
						}
					} else if !strings.HasPrefix(got, "-LOCKLOST ") || !strings.Contains(got, "("+c.reason+")") {
						t.Errorf("%s of a lost lock: %q", verb, got)
					}
				}
				if !w.Silent(10 * time.Millisecond) {
					t.Errorf("something more came: %q", w.Read())
				}
				s.Do(t, "DEL", key)
				harness.Expect(t, w, "+OK\r\n", "LOCK", key)
				harness.Expect(t, w, ":1\r\n", "UNLOCK", key)
			}
		})
	}
}

// UNLOCK that comes before the watchdog has noticed says the same.
func TestLossNoticedByUnlock(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k")
	s.Do(t, "DEL", "k")
	if got := w.Do("UNLOCK", "k"); !strings.HasPrefix(got, "-LOCKLOST ") {
		t.Errorf("UNLOCK of a deleted lock: %q", got)
	}
	if got := w.Do("UNLOCK", "never"); !strings.HasPrefix(got, "-NOTHELD ") {
		t.Errorf("UNLOCK of a lock never held: %q", got)
	}
	// A named owner's loss is not remembered.
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k", "OWNER", "me", "EX", "30")
	s.Do(t, "DEL", "k")
	harness.Expect(t, harness.Dial(t, p.Addr()), "+OK\r\n", "LOCK", "k")
	if got := w.Do("UNLOCK", "k", "OWNER", "me"); !strings.HasPrefix(got, "-NOTHELD ") {
		t.Errorf("UNLOCK of a lock that another has now: %q", got)
	}
}

func TestMaxHold(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "4s", "--max-hold", "5s")
	w := harness.DialHearing(t, p.Addr())
	asked := time.Now() // the hold begins after this and before its reply
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k")
	if got, want := w.Read(), lostPush("k", "max-hold"); got != want {
		t.Fatalf("pushed %q, want %q", got, want)
	}
	if held := time.Since(asked); held < 5*time.Second {
		t.Errorf("max-hold ended it after %v", held)
	}
	harness.Eventually(t, "the lock runs out", func() bool { return !exists(t, s, "k") })
	if got := w.Do("UNLOCK", "k"); !strings.HasPrefix(got, "-LOCKLOST ") || !strings.Contains(got, "max-hold") {
		t.Errorf("UNLOCK: %q", got)
	}
}

// However the connection ends, its own locks are free at once, and nobody else's.
func TestDisconnectReleases(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		for name, end := range map[string]func(*harness.Wire){
			"FIN":   (*harness.Wire).Close,
			"RST":   (*harness.Wire).Reset,
			"QUIT":  func(w *harness.Wire) { w.Do("QUIT") },
			"RESET": func(w *harness.Wire) { w.Do("RESET") },
			"reset while it waits for another lock": func(w *harness.Wire) {
				w.Send("LOCK", "others", "BLOCK", "0")
				time.Sleep(20 * time.Millisecond)
				w.Reset()
			},
		} {
			t.Run(name, func(t *testing.T) {
				w, next, others := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
				// The test before has just hung up.
				harness.Expect(t, others, "+OK\r\n", "LOCK", "others", "BLOCK", "20000")
				harness.Expect(t, w, "+OK\r\n", "LOCK", "k", "BLOCK", "20000")
				harness.Expect(t, w, "+OK\r\n", "LOCK", "k", "SELF")
				harness.Expect(t, w, "+OK\r\n", "LOCK", "mine", "OWNER", "me", "EX", "30")
				next.Send("LOCK", "k", "BLOCK", "0")
				time.Sleep(20 * time.Millisecond)
				end(w)
				if got := next.Read(); got != "+OK\r\n" {
					t.Fatal(got)
				}
				harness.Expect(t, next, "$-1\r\n", "LOCK", "others", "BLOCK", "50")
				harness.Expect(t, next, "$-1\r\n", "LOCK", "mine")
				harness.Expect(t, next, ":1\r\n", "UNLOCK", "mine", "OWNER", "me")
				harness.Expect(t, others, ":1\r\n", "UNLOCK", "others")
				// Nobody is left behind that takes what its client cannot hear of.
				harness.Expect(t, next, "+OK\r\n", "LOCK", "others")
				next.Do("QUIT")
			})
		}
	})
}
