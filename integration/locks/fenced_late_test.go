package locks

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Late writers: they read a value under a lock, stand still for longer than their lease, while others take the lock and
// write, and then send what they had worked out. With FENCED Redis refuses it, without it the others' updates are lost.

const lateWriters = 200

// elapsed is what redis-cli prints behind the reply to a command that took long.
var elapsed = regexp.MustCompile(`^\([0-9.]+s\)$`)

func lateRounds() int {
	if harness.Long() {
		return 5
	}
	return 1
}

// late is one late writer's turn.
type late struct {
	lock, counter string
	before        int
}

func newLate(server *testredis.Server, t *testing.T, i int) late {
	l := late{fmt.Sprint("lock:", i), fmt.Sprint("n:", i), rand.IntN(1000)}
	server.Do(t, "SET", l.counter, strconv.Itoa(l.before))
	return l
}

// write is what the late writer sends: one more than it has read.
func (l late) write(fenced bool, owner ...string) []string {
	set := []string{"SET", l.counter, strconv.Itoa(l.before + 1)}
	if !fenced {
		return set
	}
	return append(append([]string{"FENCED", l.lock}, owner...), set...)
}

// overtake has somebody else take every lock when it is free, and add ten.
func overtake(t *testing.T, w *harness.Wire, all []late) {
	t.Helper()
	for _, l := range all {
		harness.Expect(t, w, "+OK\r\n", "LOCK", l.lock, "BLOCK", "20000")
		harness.Expect(t, w, fmt.Sprintf(":%d\r\n", l.before+10), "INCRBY", l.counter, "10")
		harness.Expect(t, w, ":1\r\n", "UNLOCK", l.lock)
	}
}

// judge compares what the counters say with the answers that the late writers got.
func judge(t *testing.T, server *testredis.Server, all []late, refused int, fenced bool) {
	t.Helper()
	lost := 0
	for _, l := range all {
		if got := server.Do(t, "GET", l.counter); fmt.Sprintf("%s", got) != strconv.Itoa(l.before+10) {
			lost++
		}
	}
	t.Logf("fenced %v: of %d late writes %d refused, %d updates of others lost", fenced, len(all), refused, lost)
	switch {
	case fenced && (refused != len(all) || lost > 0):
		t.Errorf("only %d of %d late writes were refused, %d updates were lost", refused, len(all), lost)
	case !fenced && lost != len(all):
		t.Errorf("without FENCED only %d updates of %d were lost: the test has no teeth", lost, len(all))
	}
}

func isRefused(answer string) bool {
	return strings.Contains(answer, "NOTHELD ") || strings.Contains(answer, "LOCKLOST ")
}

// The client is a process that is stopped past its lease of 500 ms, with its writes already on their way to it.
func TestFencedClientStoppedPastItsLease(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		for range lateRounds() {
			server := testredis.Start(t)
			p := harness.StartProxy(t, server.URL())
			c := startCli(t, p)
			var all []late
			for i := range lateWriters {
				l := newLate(server, t, i)
				all = append(all, l)
				harness.Eventually(t, "it is granted", func() bool { // nil, when a busy machine takes a lease for the answer
					c.typed("LOCK " + l.lock + " PX 500")
					return c.next() == "OK"
				})
				c.expect("GET "+l.counter, fmt.Sprintf("%q", strconv.Itoa(l.before)))
			}
			if err := c.child.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			for _, l := range all {
				c.typed(strings.Join(l.write(fenced), " "))
			}
			overtake(t, harness.Dial(t, p.Addr()), all)
			if err := c.child.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			refused := 0
			for range all {
				answer := c.next()
				for elapsed.MatchString(answer) {
					answer = c.next()
				}
				if isRefused(answer) {
					refused++
				} else if fenced {
					t.Errorf("a late write was answered %q", answer)
				}
			}
			judge(t, server, all, refused, fenced)
			c.child.Kill()
			p.Kill()
		}
	}
}

// A proxy is stopped past the leases, with the writes in its sockets; the others are clients of another.
func TestFencedProxyStoppedPastItsLease(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		for range lateRounds() {
			server := testredis.Start(t)
			p := harness.StartProxy(t, server.URL(), "--lock-watchdog-timeout", "1s")
			healthy := harness.StartProxy(t, server.URL())
			var all []late
			var clients []*harness.Wire
			for i := range lateWriters {
				l := newLate(server, t, i)
				all = append(all, l)
				if i%10 == 0 {
					clients = append(clients, harness.Dial(t, p.Addr()))
				}
				harness.Eventually(t, "it is granted", func() bool { // nil, when a busy machine takes a lease for the answer
					return clients[i/10].Do(append([]string{"LOCK", l.lock, "PX", "1000"}, lateOwner(i)...)...) == "+OK\r\n"
				})
			}
			p.Stop()
			for i, l := range all {
				clients[i/10].Send(l.write(fenced, lateOwner(i)...)...)
			}
			overtake(t, harness.Dial(t, healthy.Addr()), all)
			p.Cont()
			refused := 0
			for i := range all {
				if answer := clients[i/10].Read(); isRefused(answer) {
					refused++
				} else if fenced {
					t.Errorf("a late write was answered %q", answer)
				}
			}
			judge(t, server, all, refused, fenced)
			p.Kill()
			healthy.Kill()
		}
	}
}

// lateOwner names an owner for every other late writer.
func lateOwner(i int) []string {
	if i%2 == 0 {
		return nil
	}
	return []string{"OWNER", fmt.Sprint("late-", i)}
}

// Leases run out all the time, in the middle of the work: the counter is what was answered OK all the same.
func TestFencedCounterIsExact(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxies := []*harness.Proxy{harness.StartProxy(t, server.URL()), harness.StartProxy(t, server.URL())}
	server.Do(t, "SET", "n", "0")
	var done, refused, busy atomic.Int64
	began := time.Now()
	// On a busy machine each write may take longer than a lease, for a while.
	goesOn := func() bool {
		took := time.Since(began)
		return took < 4*time.Second || took < harness.Patience && (done.Load() == 0 || refused.Load() == 0)
	}
	harness.Together(8, func(i int) {
		w := harness.Dial(t, proxies[i%2].Addr())
		for turn := 0; goesOn(); turn++ {
			owner := fmt.Sprint("worker-", i, "-", turn)
			if got, err := w.Try("LOCK", "l", "BLOCK", "1000", "PX", strconv.Itoa(15<<(turn%4)), "OWNER", owner); err != nil || got != "+OK\r\n" {
				continue
			}
			got, err := w.Try("FENCED", "l", "OWNER", owner, "GET", "n")
			if err != nil || got[0] != '$' {
				continue
			}
			_, text, _ := strings.Cut(got, "\r\n")
			n, _ := strconv.Atoi(strings.TrimSpace(text))
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			switch got, err = w.Try("FENCED", "l", "OWNER", owner, "SET", "n", strconv.Itoa(n+1)); {
			case err == nil && got == "+OK\r\n":
				done.Add(1)
			case err == nil && isRefused(got):
				refused.Add(1)
			default:
				busy.Add(1)
			}
			_, _ = w.Try("UNLOCK", "l", "OWNER", owner)
		}
	})
	got := fmt.Sprintf("%s", server.Do(t, "GET", "n"))
	t.Logf("%d writes done, %d refused, %d other answers; the counter is %s", done.Load(), refused.Load(), busy.Load(), got)
	if got != strconv.FormatInt(done.Load(), 10) || done.Load() == 0 || refused.Load() == 0 || busy.Load() > 0 {
		t.Error("not exact, or nothing was put to the test")
	}
}

// What FENCED says of a lock that is not held is what UNLOCK says: lost here, or ended elsewhere, or never held.
func TestFencedTellsHowALockEnded(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	here, there := harness.Dial(t, harness.StartProxy(t, server.URL()).Addr()), harness.Dial(t, harness.StartProxy(t, server.URL()).Addr())
	const notHeld, lost = "-NOTHELD ", "-LOCKLOST "
	for _, c := range []struct {
		name, owner, want string
		end               func(key string)
	}{
		{"deleted", "", lost, func(key string) { server.Do(t, "DEL", key) }},
		{"deleted, of an owner with a name", "o", notHeld, func(key string) { server.Do(t, "DEL", key) }},
		{"forced", "o", notHeld, func(key string) { harness.Expect(t, there, ":1\r\n", "UNLOCK", key, "FORCE") }},
		{"unlocked here", "", notHeld, func(key string) { harness.Expect(t, here, ":1\r\n", "UNLOCK", key) }},
		{"unlocked there", "o", notHeld, func(key string) { harness.Expect(t, there, ":1\r\n", "UNLOCK", key, "OWNER", "o") }},
		{"deleted and taken by another", "", lost, func(key string) {
			server.Do(t, "DEL", key)
			harness.Expect(t, there, "+OK\r\n", "LOCK", key)
		}},
	} {
		var owner []string
		if c.owner != "" {
			owner = []string{"OWNER", c.owner}
		}
		fenced := append(append([]string{"FENCED", c.name}, owner...), "INCR", "n:"+c.name)
		harness.Expect(t, here, "+OK\r\n", append([]string{"LOCK", c.name, "EX", "30"}, owner...)...)
		harness.Expect(t, here, ":1\r\n", fenced...)
		c.end(c.name)
		for _, want := range []string{c.want, notHeld} { // a loss is told once
			if got := here.Do(fenced...); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", c.name, got, want)
			}
		}
		harness.Expect(t, here, "$1\r\n1\r\n", "GET", "n:"+c.name)
	}
}

// The sides of a read/write lock, in Redisson's bytes.
func TestFencedSides(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	w := harness.Dial(t, harness.StartProxy(t, server.URL()).Addr())
	server.Do(t, "HSET", "r", "mode", "read", "reader", "1", "other", "1", "over", "1", "nested", "3", "ended", "2")
	server.Do(t, "SET", "{r}:nested:rwlock_timeout:1", "1") // what it read for besides was shorter
	server.Do(t, "SET", "{r}:reader:rwlock_timeout:1", "1") // of "over" the hash alone tells: its lease has ended while others read
	server.Do(t, "HSET", "w", "mode", "write", "writer:write", "1")
	for line, want := range map[string]string{
		"r reader": "+PONG\r\n", "r READ reader": "+PONG\r\n", "r WRITE reader": "-NOTHELD", "r writer": "-NOTHELD",
		"r over": "-NOTHELD", "r READ over": "-NOTHELD",
		"r nested": "+PONG\r\n", "r READ nested": "+PONG\r\n", "r WRITE nested": "-NOTHELD", "r ended": "-NOTHELD",
		"w writer": "+PONG\r\n", "w WRITE writer": "+PONG\r\n", "w READ writer": "-NOTHELD", "w reader": "-NOTHELD",
	} {
		words := strings.Fields(line)
		call := append([]string{"FENCED"}, words[:len(words)-1]...)
		if got := w.Do(append(call, "OWNER", words[len(words)-1], "PING")...); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// Of a read/write lock, too: a side that is named is the one that counts.
func TestFencedReadersAndWriters(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	w := harness.Dial(t, harness.StartProxy(t, server.URL()).Addr())
	for line, want := range map[string]string{"RLOCK r": "READ", "WLOCK w": "WRITE"} {
		key := strings.Fields(line)[1]
		harness.Expect(t, w, "+OK\r\n", strings.Fields(line)...)
		for _, side := range []string{"READ", "WRITE"} {
			got := w.Do("FENCED", key, side, "INCR", "n")
			if (got[0] == ':') != (side == want) || got[0] == '-' && !strings.HasPrefix(got, "-NOTHELD ") {
				t.Errorf("%s, FENCED %s: %q", line, side, got)
			}
		}
		if got := w.Do("FENCED", key, "INCR", "n"); got[0] != ':' {
			t.Errorf("%s, FENCED: %q", line, got)
		}
		server.Do(t, "DEL", key)
		for i, call := range [][]string{{"FENCED", key, want, "INCR", "n"}, {"FENCED", key, "INCR", "n"}} {
			if got := w.Do(call...); !strings.HasPrefix(got, []string{"-LOCKLOST ", "-NOTHELD "}[i]) { // it is told once
				t.Errorf("%s, deleted, %q: %q", line, call, got)
			}
		}
	}
	harness.Expect(t, w, "+OK\r\n", "LOCK", "p")
	harness.Expect(t, w, "-LOCKKIND 'p' holds a lock of another kind\r\n", "FENCED", "p", "WRITE", "INCR", "n")
}
