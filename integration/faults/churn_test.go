package faults

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// footprint is what a process, and Redis for it, has at one moment.
type footprint struct {
	goroutines, files, clients int
	memory                     int64 // resident; with the race detector, its shadow too
	heap                       int64 // alive at the last collection, of which next_gc is the double
}

func footprintOf(t *testing.T, p *harness.Proxy, server *testredis.Server) footprint {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	list, _ := server.Do(t, "CLIENT", "LIST").([]byte)
	return footprint{int(p.Metric("go_goroutines")), len(open), strings.Count(string(list), "\n"), p.RSS(), int64(p.Metric("go_memstats_next_gc_bytes")) / 2}
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d MB, heap %d MB, %d clients at Redis", f.goroutines, f.files, f.memory>>20, f.heap>>20, f.clients)
}

// collect has clients who read much come one after the other until garbage has been collected twice: what is then alive is what
// nobody uses any more and is kept all the same.
func collect(t *testing.T, p *harness.Proxy) {
	before := p.Metric("go_gc_duration_seconds_count")
	harness.Eventually(t, "garbage is collected", func() bool {
		w := harness.Dial(t, p.Addr())
		defer w.Close()
		if got := w.Do("GET", "large"); len(got) < 2<<20 {
			t.Fatalf("%.100q", got)
		}
		return p.Metric("go_gc_duration_seconds_count") > before+1
	})
}

// visit is one connection's life, short and often rude. On a busy machine Redis' clock may seem to jump, and lock verbs are
// then refused: those are counted.
func visit(t *testing.T, addr string, n int, refused *atomic.Int64) {
	c, err := net.DialTimeout("tcp", addr, harness.Patience)
	if err != nil {
		t.Error(err)
		return
	}
	w := harness.NewWire(t, c)
	defer w.Close()
	key := fmt.Sprint("k", n%1000)
	expect := func(want string, args ...string) bool {
		got, err := w.Try(args...)
		if strings.HasPrefix(got, "-ERR upstream unavailable") {
			refused.Add(1)
			return false
		}
		if err != nil || got != want {
			t.Errorf("%q: %q, %v", args, got, err)
			return false
		}
		return true
	}
	if !expect("+PONG\r\n", "PING") {
		return
	}
	switch n % 5 {
	case 0:
		_ = expect("+OK\r\n", "SET", key, key) && expect(harness.Bulks(key)[0], "GET", key)
	case 1:
		lock := fmt.Sprint("l", n)
		_ = expect("+OK\r\n", "LOCK", lock) && expect(":1\r\n", "UNLOCK", lock)
	case 2: // leaves with its lock
		_ = expect("+OK\r\n", "LOCK", fmt.Sprint("left", n))
	case 3: // cut in the middle of a pipeline, and of a command
		_, _ = c.Write([]byte(strings.Repeat("*2\r\n$3\r\nGET\r\n$5\r\nvalue\r\n", 100) + "*3\r\n$3\r\nSET\r\n$1\r\n"))
		w.Reset()
	case 4: // a value to read, now and then a big one, of which little is read
		if n%100 == 99 {
			_ = w.TrySend("GET", "large")
		} else {
			_ = w.TrySend("GET", "long")
		}
		if n%2 == 0 {
			_, _ = w.R.Peek(1)
			w.Reset()
		}
	}
}

// Thousands of connections at a time that come and go leave nothing behind: no goroutine, descriptor or memory, here or
// at Redis.
func TestComingAndGoing(t *testing.T) {
	const side = 2000
	first, second, most := int64(6000), int64(6000), int64(8<<20) // visits before memory is looked at, and again after it, and what those may leave
	if harness.Long() {
		// What is remembered of locks that have gone is bounded; it is full before the memory is compared.
		first, second, most = 200_000, 1_000_000, 16<<20
	}
	server := testredis.Start(t)
	server.Do(t, "SET", "value", strings.Repeat("v", 1000))
	server.Do(t, "SET", "long", strings.Repeat("v", 50<<10))
	server.Do(t, "SET", "large", strings.Repeat("v", 2<<20))
	p := harness.StartProxy(t, server.URL())
	idle := footprintOf(t, p, server)
	var visits, refused atomic.Int64
	come := func(more int64) footprint {
		last := more + visits.Load()
		harness.Together(side, func(i int) {
			for n := visits.Add(1); n <= last && !t.Failed(); n = visits.Add(1) {
				visit(t, p.Addr(), int(n), &refused)
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			}
		})
		harness.Eventually(t, "all that were there have gone", func() bool {
			f := footprintOf(t, p, server)
			return f.goroutines < idle.goroutines+50 && f.files < idle.files+20 && f.clients < idle.clients+20
		})
		collect(t, p)
		return footprintOf(t, p, server)
	}
	warm, after := come(first), come(second)
	t.Logf("before: %v; after %d visits: %v; after %d more: %v; %d lock verbs refused", idle, first, warm, second, after, refused.Load())
	if harness.Long() && refused.Load() > visits.Load()/100 { // how many depends on how fast the machine is: 741 of 12,000 on a slow one
		t.Error("too many lock verbs were refused")
	}
	if grown := after.heap - warm.heap; grown > most {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	harness.Eventually(t, "the locks of those that left are free", func() bool {
		keys, _ := server.Do(t, "KEYS", "l*").([]any)
		return len(keys) <= 2 // the values
	})
}
