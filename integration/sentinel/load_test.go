package sentinel

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// infoLine is a value of INFO's own section, through the proxy.
func infoLine(w *harness.Wire, name string) string {
	reply, err := w.Try("INFO", "lockproxy")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(reply, "\r\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// acked is a write that was answered with OK.
type acked struct {
	key        string
	sent, came time.Time
}

// writer sets a new key each time, on a connection that is made again when it breaks.
type writer struct {
	id    int
	acked []acked
	other map[string]int // error replies by their first word, and broken connections
}

func (w *writer) run(t *testing.T, addr string, stop *atomic.Bool) {
	w.other = map[string]int{}
	var c *harness.Wire
	for n := 0; !stop.Load(); n++ {
		if c == nil {
			if c = tryDial(t, addr); c == nil {
				continue
			}
		}
		key := fmt.Sprintf("w%d:%d", w.id, n)
		sent := time.Now()
		reply, err := c.Try("SET", key, "x")
		switch {
		case err != nil:
			w.other["broken"]++
			c.Close()
			c = nil
		case reply == "+OK\r\n":
			w.acked = append(w.acked, acked{key, sent, time.Now()})
			time.Sleep(harness.Breath(5 * time.Millisecond))
		default:
			word, _, _ := strings.Cut(strings.TrimSpace(reply), " ")
			w.other[word]++
			time.Sleep(time.Millisecond)
		}
	}
	if c != nil {
		c.Close()
	}
}

// locker takes a lock, adds one to a counter of its own kind of memory, and gives it back.
type locker struct {
	done         atomic.Int64
	lost, failed int
}

func (l *locker) run(t *testing.T, addr string, stop *atomic.Bool, inside *atomic.Int32, twice *atomic.Int64) {
	var c *harness.Wire
	for !stop.Load() {
		if c == nil {
			if c = tryDial(t, addr); c == nil {
				continue
			}
		}
		reply, err := c.Try("LOCK", "shared", "BLOCK", "2000")
		if err == nil && reply != "+OK\r\n" {
			l.failed++
			time.Sleep(time.Millisecond)
			continue
		}
		if err == nil {
			if inside.Add(1) > 1 {
				twice.Add(1) // asynchronous replication may do that around a failover, and only there
			}
			inside.Add(-1)
			reply, err = c.Try("UNLOCK", "shared")
		}
		switch {
		case err != nil:
			c.Close()
			c = nil
		case reply == ":1\r\n":
			l.done.Add(1)
			time.Sleep(harness.Breath(5 * time.Millisecond))
		case strings.HasPrefix(reply, "-LOCKLOST "):
			l.lost++
		default: // it may still hold the lock, and its next LOCK would enter it once more: its end gives that back
			l.failed++
			c.Close()
			c = nil
		}
	}
	if c != nil {
		c.Close()
	}
}

func tryDial(t *testing.T, addr string) *harness.Wire {
	c, err := harness.Connect(addr)
	if err != nil {
		time.Sleep(time.Millisecond)
		return nil
	}
	return harness.NewWire(t, c)
}

// failovers is how often each kind is done, and after which silence: TESTS_FAILOVERS=10 is for measuring outages, on
// an idle machine; a busy one has pauses that the Sentinels would take for deaths.
func failovers() (n int, downAfter time.Duration) {
	if n, err := strconv.Atoi(os.Getenv("TESTS_FAILOVERS")); err == nil {
		return n, time.Second
	}
	return 1, 3 * time.Second
}

// TestSentinelFailoverUnderLoad: whatever ends a master, the writes that are answered with OK after the switch are on the
// new one, nothing goes to the old one when it is back, and locks are taken and given back again.
func TestSentinelFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	times, downAfter := failovers()
	for name, end := range map[string]func(g *testredis.Group, master *testredis.Server) (back func()){
		"command": func(g *testredis.Group, _ *testredis.Server) func() { g.Failover(); return func() {} },
		"kill":    func(_ *testredis.Group, master *testredis.Server) func() { master.Kill(); return master.Restart },
		"freeze":  func(_ *testredis.Group, master *testredis.Server) func() { master.Stop(); return master.Cont },
	} {
		t.Run(name, func(t *testing.T) {
			if times == 1 {
				t.Parallel()
			}
			g := testredis.StartGroup(t, testredis.GroupOptions{DownAfter: downAfter})
			p := harness.StartProxy(t, g.URL())
			var gaps []time.Duration
			for done, tries := 0, 0; done < times; tries++ {
				if tries == 3*times {
					t.Fatal("the Sentinels keep changing the master")
				}
				if more, ok := failOver(t, g, p, name, end); ok {
					gaps, done = append(gaps, more...), done+1
				}
			}
			slices.Sort(gaps)
			t.Logf("%d writers' outages: p50 %v, p99 %v, longest %v", len(gaps),
				gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)*99/100].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond))
		})
	}
}

// failOver is one of them; ok is false when the Sentinels changed the master twice, which says nothing of writes.
func failOver(t *testing.T, g *testredis.Group, p *harness.Proxy, name string, end func(*testredis.Group, *testredis.Server) func()) (gaps []time.Duration, ok bool) {
	t.Helper()
	g.AwaitWhole()
	old := g.Master()
	w := harness.Dial(t, p.Addr())
	harness.Eventually(t, "the proxy is where the master is", func() bool { return infoLine(w, "lockproxy_upstream_addr") == old.Addr() })
	before := infoLine(w, "lockproxy_upstream_switches")

	var stop atomic.Bool
	var load sync.WaitGroup
	var inside atomic.Int32
	var twice atomic.Int64
	writers, lockers := make([]writer, 4), make([]locker, 3)
	for i := range writers {
		writers[i].id = i
		load.Go(func() { writers[i].run(t, p.Addr(), &stop) })
	}
	for i := range lockers {
		load.Go(func() { lockers[i].run(t, p.Addr(), &stop, &inside, &twice) })
	}
	time.Sleep(300 * time.Millisecond)
	began := time.Now()
	back := end(g, old)
	master := g.AwaitSwitch(old)
	// A new connection each time: those of before end with the former master.
	harness.Eventually(t, "the proxy has switched", func() bool {
		c := harness.Dial(t, p.Addr())
		defer c.Close()
		now := infoLine(c, "lockproxy_upstream_switches")
		return now != "" && now != before
	})
	switched := time.Now()
	count := func() string {
		c := harness.Dial(t, p.Addr())
		defer c.Close()
		return infoLine(c, "lockproxy_upstream_switches")
	}
	after := count()
	time.Sleep(500 * time.Millisecond)
	back()
	time.Sleep(time.Second) // in which the old master, when it was restarted, still takes itself for one
	clean(t, g, old)
	g.AwaitWhole()
	clean(t, g, old)
	locks := func() (done int64) {
		for i := range lockers {
			done += lockers[i].done.Load()
		}
		return done
	}
	taken := locks()
	harness.Eventually(t, name+": locks can be taken and given back", func() bool { return locks() > taken })
	stop.Store(true)
	load.Wait()
	defer func() { _, _ = harness.Dial(t, p.Addr()).Try("FLUSHALL") }() // to keep the next ones quick
	if count() != after || g.Master() != master {
		t.Logf("%s: the master changed twice", name)
		return nil, false
	}
	written := 0
	for i := range writers {
		written += writers[i].judge(t, master, switched)
		gaps = append(gaps, writers[i].longest(began))
	}
	lost := 0
	for i := range lockers {
		lost += lockers[i].lost
	}
	if written == 0 {
		t.Errorf("%s: nothing was written after the switch", name)
	}
	t.Logf("%s: known by the proxy after %v; %d writes after it, all there; others %v; locks: %d done, %d lost, %d twice",
		name, switched.Sub(began).Round(time.Millisecond), written, writers[0].other, locks(), lost, twice.Load())
	return gaps, true
}

// judge counts the writes sent after the switch; each must be there.
func (w *writer) judge(t *testing.T, master *testredis.Server, switched time.Time) (after int) {
	c := master.Dial(t)
	defer c.Close()
	for _, a := range w.acked {
		if a.sent.Before(switched) {
			continue
		}
		after++
		_ = c.Send("EXISTS", a.key)
	}
	_ = c.Flush()
	missing := 0
	for range after {
		if there, err := redis.Int(c.Receive()); err != nil || there != 1 {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("of %d writes that were acknowledged after the switch %d are missing", after, missing)
	}
	return after
}

// longest is the longest time between two successes that ended after began.
func (w *writer) longest(began time.Time) (gap time.Duration) {
	last := began
	for _, a := range w.acked {
		if a.came.Before(began) {
			continue
		}
		gap, last = max(gap, a.came.Sub(last)), a.came
	}
	return gap
}

// proxysOwn are commands that the proxy sends, and neither Sentinels nor replicas nor this test do.
var proxysOwn = regexp.MustCompile(`cmd=(set|evalsha|eval|time|role|select|hello|client\|id) `)

// clean says that nothing of the proxy is connected to a former master, which may be late to see that a connection was closed.
func clean(t *testing.T, g *testredis.Group, s *testredis.Server) {
	t.Helper()
	for end := time.Now().Add(harness.Bound(0)); ; time.Sleep(20 * time.Millisecond) {
		if g.Master() == s {
			return // again
		}
		list, err := redis.String(s.Do(t, "CLIENT", "LIST"), nil)
		if err != nil {
			t.Fatal(err)
		}
		connected := ""
		for line := range strings.Lines(list) {
			if proxysOwn.MatchString(line) && !strings.Contains(line, "flags=M") { // the stream of its master says the same
				connected += line
			}
		}
		if connected == "" {
			return
		}
		if time.Now().After(end) {
			t.Errorf("connected to a former master: %s", connected)
			return
		}
	}
}
