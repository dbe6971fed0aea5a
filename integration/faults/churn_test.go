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
	lasts := 20 * time.Second
	if harness.Long() {
		lasts = 10 * time.Minute
	}
	server := testredis.Start(t)
	server.Do(t, "SET", "value", strings.Repeat("v", 1000))
	server.Do(t, "SET", "long", strings.Repeat("v", 50<<10))
	server.Do(t, "SET", "large", strings.Repeat("v", 2<<20))
	p := harness.StartProxy(t, server.URL())
	first := footprintOf(t, p, server)
	var visits, refused atomic.Int64
	come := func(lasts time.Duration, least int64) footprint {
		end, from := time.Now().Add(lasts), visits.Load()
		harness.Together(side, func(i int) {
			for (time.Now().Before(end) || visits.Load() < from+least) && !t.Failed() {
				visit(t, p.Addr(), int(visits.Add(1)), &refused)
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			}
		})
		harness.Eventually(t, "all that were there have gone", func() bool {
			f := footprintOf(t, p, server)
			return f.goroutines < first.goroutines+50 && f.files < first.files+20 && f.clients < first.clients+20
		})
		return footprintOf(t, p, server)
	}
	// What is remembered of locks that have gone is bounded; it is full before the memory is compared.
	warm := come(lasts/4, 60000)
	began := visits.Load()
	after := come(lasts-lasts/4, 0)
	t.Logf("before: %v; after %d visits: %v; after %d more: %v; %d lock verbs refused", first, began, warm, visits.Load()-began, after, refused.Load())
	if refused.Load() > visits.Load()/100 {
		t.Error("too many lock verbs were refused")
	}
	if grown := after.heap - warm.heap; grown > max(warm.heap/2, 50<<20) {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	harness.Eventually(t, "the locks of those that left are free", func() bool {
		keys, _ := server.Do(t, "KEYS", "l*").([]any)
		return len(keys) <= 2 // the values
	})
}
