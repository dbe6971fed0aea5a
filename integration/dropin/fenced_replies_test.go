package dropin

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// notFenced are the generator's commands that FENCED refuses, since they are not Redis' to answer or wait.
var notFenced = []string{"SELECT", "CLIENT", "CLUSTER", "COMMAND", "HELLO", "INFO", "READONLY", "READWRITE", "RESET", "QUIT", "DEBUG", "MULTI", "EXEC",
	"DISCARD", "WATCH", "UNWATCH", "WAIT", "MONITOR", "AUTH", "LOCK"}

// renewing lengthens the lock's lease all the time, as a watchdog in a hurry would; end it with the function returned.
func renewing(t *testing.T, s *testredis.Server, key string, pause time.Duration) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	w := harness.Dial(t, s.Addr())
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			if _, err := w.Try("PEXPIRE", key, strconv.Itoa(600_000+n)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// Random commands within FENCED, while the lock is renewed: every reply is what Redis answers to the command alone.
func TestFencedRandomCommands(t *testing.T) {
	t.Parallel()
	harness.Protocols(t, func(t *testing.T, proto int) {
		g := newGenerator(seed(t), harness.Long())
		p := startPair(t)
		direct, through := p.dialsWarm(t, proto)
		defer renewing(t, p.behind, "held", 3*time.Millisecond)()
		kinds := map[byte]int{}
		refused, again := 0, 0
		for n := range 600 {
			args := g.next()
			for _, w := range []*harness.Wire{direct, harness.Dial(t, p.behind.Addr())} { // FLUSHDB and SWAPDB take it away
				w.Do("HSETNX", "held", "me", "1")
				w.Do("PEXPIRE", "held", "600000")
				if w != direct {
					w.Close()
				}
			}
			fenced := append([]string{"FENCED", "held", "OWNER", "me"}, args...)
			if slices.Contains(notFenced, strings.ToUpper(args[0])) {
				if got := through.Do(fenced...); !strings.HasPrefix(got, "-ERR '") {
					t.Errorf("%q: %q", fenced, got)
				}
				refused++
				continue
			}
			got := through.Do(fenced...)
			for ; strings.HasPrefix(got, "-ERR nothing was run: "); again++ {
				got = through.Do(fenced...)
			}
			if strings.Contains(got, "' cannot be run by FENCED: it is lockproxy that answers it\r\n") { // SCRIPT KILL and its like
				refused++
				continue
			}
			want := direct.Do(args...)
			p.check(t, n, fenced, want, got, alike(args, want, got))
			kinds[want[0]]++
		}
		if !plainPair() {
			p.direct.Do(t, "DEL", "held")
			p.behind.Do(t, "DEL", "held")
			p.mustEqual(t)
		}
		t.Logf("%d commands refused, %d asked again since the lock was changed 5 times; replies by kind: %s", refused, again, counts(kinds))
	})
}

// Renewals one behind the other: the command is tried again, and when that does not help it was not run. The counter says
// what was run.
func TestFencedWhileRenewedAllTheTime(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL())
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "LOCK", "held")
	stops := []func(){renewing(t, server, "held", 0), renewing(t, server, "held", 0)}
	ran, given := 0, 0
	for range 1000 {
		switch got := w.Do("FENCED", "held", "INCR", "n"); {
		case got[0] == ':':
			if ran++; got != ":"+strconv.Itoa(ran)+"\r\n" {
				t.Fatalf("%q at the run no. %d", got, ran)
			}
		case strings.HasPrefix(got, "-ERR nothing was run: "):
			given++
		default:
			t.Fatal(got)
		}
	}
	for _, stop := range stops {
		stop()
	}
	harness.Expect(t, w, ":"+strconv.Itoa(ran+1)+"\r\n", "FENCED", "held", "INCR", "n")
	t.Logf("%d run, %d given up", ran, given)
	if ran == 0 {
		t.Error("none was run")
	}
}

// What the server has against any write is said in its own words, wherever in the transaction it says so.
func TestFencedErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	harness.Protocols(t, func(t *testing.T, proto int) {
		server := testredis.Start(t)
		direct, through := (&pair{direct: server, proxy: harness.StartProxy(t, server.URL())}).dials(t, proto)
		direct.Do("HSET", "held", "me", "1")
		for _, c := range []struct {
			set   []string
			code  string
			reset []string
		}{
			{[]string{"CONFIG", "SET", "maxmemory", "1"}, "OOM", []string{"CONFIG", "SET", "maxmemory", "0"}},
			{[]string{"CONFIG", "SET", "min-replicas-to-write", "1"}, "NOREPLICAS", []string{"CONFIG", "SET", "min-replicas-to-write", "0"}},
			{[]string{"REPLICAOF", "127.0.0.1", "1"}, "READONLY", []string{"REPLICAOF", "NO", "ONE"}},
		} {
			harness.Expect(t, direct, "+OK\r\n", c.set...)
			for _, args := range [][]string{{"SET", "a", "1"}, {"GET", "a"}, {"EVAL", "return redis.call('SET', KEYS[1], 1)", "1", "a"}, {"PING"}} {
				want := direct.Do(args...)
				harness.Expect(t, direct, "+OK\r\n", "MULTI")
				if queued := direct.Do(args...); harness.IsErrorFrame(queued) { // up to 7.0 a full Redis takes nothing at all into a transaction
					want = queued
				}
				direct.Do("DISCARD")
				got := through.Do(append([]string{"FENCED", "held", "OWNER", "me"}, args...)...)
				if got != want {
					t.Errorf("%q after %q: %q, want %q", args, c.set, got, want)
				}
				if args[0] == "SET" && !strings.HasPrefix(want, "-"+c.code) {
					t.Errorf("%q does not make Redis answer %s: %q", c.set, c.code, want)
				}
			}
			harness.Expect(t, direct, "+OK\r\n", c.reset...)
		}
		// The proxy may have seen that it led to a replica: then it makes no connection there until it has looked again.
		harness.Eventually(t, "the master is written to again", func() bool {
			return through.Do("FENCED", "held", "OWNER", "me", "SET", "a", "1") == "+OK\r\n"
		})
	})
}
