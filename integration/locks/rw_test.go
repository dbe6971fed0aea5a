package locks

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestTwentyReadersBehindAWriter is testWriteRead: all finish soon after the writer, since they read together. And a downgrade
// wakes those who wait, though the former writer still reads.
func TestTwentyReadersBehindAWriter(t *testing.T) {
	t.Parallel()
	const readers = 20
	for _, downgrade := range []bool{false, true} {
		s := testredis.Start(t)
		p, other := harness.StartProxy(t, s.URL(), "--wait-poll", "60s"), harness.StartProxy(t, s.URL(), "--wait-poll", "60s")
		w := harness.Dial(t, p.Addr())
		harness.Expect(t, w, ok, "WLOCK", "k")
		wires := make([]*harness.Wire, readers)
		for i := range wires {
			wires[i] = harness.Dial(t, []*harness.Proxy{p, other}[i%2].Addr())
			wires[i].Send("RLOCK", "k", "BLOCK", "0")
		}
		elsewhere := harness.Dial(t, other.Addr())
		harness.Eventually(t, "all wait", func() bool { return harness.WaitingHere(t, w, "k")+harness.WaitingHere(t, elsewhere, "k") == readers })
		harness.Eventually(t, "both listen", func() bool { return listeners(t, s, "redisson_rwlock:{k}") == 2 })
		heard := listen(t, s, "redisson_rwlock:{k}")
		if downgrade {
			harness.Expect(t, w, ok, "RLOCK", "k")
		}
		before := scriptCalls(t, s)
		harness.Expect(t, w, yes, "UNLOCK", "k", "WRITE")
		began := time.Now()
		expectHeard(t, heard, "redisson_rwlock:{k} 1")
		for _, r := range wires {
			if got := r.Read(); got != ok {
				t.Fatal(got)
			}
		}
		took, scripts := time.Since(began), scriptCalls(t, s)-before
		t.Logf("%d readers read %v after the writer, %d scripts", readers, took.Round(time.Microsecond), scripts)
		if scripts > readers+6+4*int(took/time.Second) { // who waits for long looks by itself
			t.Errorf("%d scripts", scripts)
		}
		for _, r := range wires {
			harness.Expect(t, r, yes, "UNLOCK", "k")
		}
		if downgrade {
			harness.Expect(t, w, yes, "UNLOCK", "k")
		}
		expectHeard(t, heard, "redisson_rwlock:{k} 0")
	}
}

// TestReadersAndWriters has 64 connections through two proxies read and write: writers alone, readers never beside one.
func TestReadersAndWriters(t *testing.T) {
	t.Parallel()
	const connections, proxies = 64, 2
	sections := int64(2000)
	if harness.Long() {
		sections = 10000
	}
	s := testredis.Start(t)
	s.Do(t, "MSET", "counter", 0, "twin", 0)
	var wires [connections]*harness.Wire
	for i := range proxies {
		p := harness.StartProxy(t, s.URL())
		for j := i; j < connections; j += proxies {
			wires[j] = harness.Dial(t, p.Addr())
		}
	}
	var todo, writes, most atomic.Int64
	var failed error
	var once sync.Once
	before := scriptCalls(t, s)
	began := time.Now()
	harness.Together(connections, func(i int) {
		for {
			n := todo.Add(1)
			if n > sections {
				return
			}
			section := readTwins
			if (n*2654435761>>7)%4 == 0 {
				section = writeTwins
				writes.Add(1)
			}
			if err := section(wires[i], &most); err != nil {
				once.Do(func() { failed = err })
				return
			}
		}
	})
	took := time.Since(began)
	if failed != nil {
		t.Fatal(failed)
	}
	if got, _ := redis.Int64(s.Do(t, "GET", "counter"), nil); got != writes.Load() {
		t.Errorf("the counter is %d after %d writes", got, writes.Load())
	}
	if got := harness.Keys(t, s); len(got) != 2 {
		t.Errorf("keys %q are left", got)
	}
	perSection := float64(scriptCalls(t, s)-before) / float64(sections)
	t.Logf("%d sections, %d of them writing, exact, %.0f a second; %.2f scripts a section; up to %d read together", sections, writes.Load(),
		float64(sections)/took.Seconds(), perSection, most.Load())
	if perSection > 4 {
		t.Errorf("%.2f scripts a section", perSection)
	}
	if most.Load() < 2 {
		t.Error("readers never read together")
	}
}

var reading atomic.Int64

// readTwins finds both counters equal, which they are not within a write.
func readTwins(w *harness.Wire, most *atomic.Int64) error {
	if got, err := w.Try("RLOCK", "l", "BLOCK", "0"); err != nil || got != ok {
		return errors.Join(err, errReply("RLOCK", got))
	}
	most.Store(max(most.Load(), reading.Add(1)))
	defer reading.Add(-1)
	one, err := w.Try("GET", "counter")
	if err != nil {
		return err
	}
	if two, err := w.Try("GET", "twin"); err != nil || two != one {
		return errors.Join(err, errReply("a reader saw "+one, two))
	}
	if got, err := w.Try("UNLOCK", "l"); err != nil || got != yes {
		return errors.Join(err, errReply("UNLOCK", got))
	}
	return nil
}

// writeTwins adds one to both counters in a way that loses counts beside another writer.
func writeTwins(w *harness.Wire, _ *atomic.Int64) error {
	if got, err := w.Try("WLOCK", "l", "BLOCK", "0"); err != nil || got != ok {
		return errors.Join(err, errReply("WLOCK", got))
	}
	got, err := w.Try("GET", "counter")
	n := 0
	if _, scan := fmt.Sscan(bulk(got), &n); err != nil || scan != nil {
		return errors.Join(err, scan)
	}
	for _, key := range []string{"counter", "twin"} {
		if got, err := w.Try("SET", key, fmt.Sprint(n+1)); err != nil || got != ok {
			return errors.Join(err, errReply("SET", got))
		}
	}
	if got, err := w.Try("UNLOCK", "l"); err != nil || got != yes {
		return errors.Join(err, errReply("UNLOCK", got))
	}
	return nil
}

// TestRWOptions has what the options say on both sides: owners across proxies, FENCE, losses.
func TestRWOptions(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p, other := harness.StartProxy(t, s.URL()), harness.StartProxy(t, s.URL())
	w, w3 := harness.Dial(t, p.Addr()), harness.DialHearing(t, other.Addr())
	for range 3 {
		harness.Expect(t, w, ok, "RLOCK", "k", "OWNER", "o", "EX", "30")
		harness.Expect(t, w3, ok, "RLOCK", "k", "OWNER", "o", "EX", "30")
	}
	if h := hash(t, s, "k"); h["o"] != "1" || h["mode"] != "read" {
		t.Error(h)
	}
	if pttl(t, s, "{k}:o:rwlock_timeout:1") <= 0 {
		t.Error(harness.Keys(t, s))
	}
	harness.Expect(t, w, yes, "UNLOCK", "k", "OWNER", "o")
	harness.Expect(t, w3, "-NOTHELD this owner does not hold 'k'\r\n", "UNLOCK", "k", "OWNER", "o", "READ")
	first := harness.Number(t, w.Do("WLOCK", "k", "OWNER", "o", "EX", "30", "FENCE"))
	if second := harness.Number(t, w3.Do("WLOCK", "k", "OWNER", "o", "EX", "30", "FENCE")); second <= first {
		t.Error(first, second)
	}
	harness.Expect(t, w, yes, "UNLOCK", "k", "OWNER", "o", "ALL")
	if got := w.Do("UNLOCK", "k", "OWNER", "nobody"); !strings.HasPrefix(got, rwNotHeld) {
		t.Error(got)
	}
	pooled := harness.Dial(t, p.Addr())
	harness.Expect(t, pooled, ok, "CLIENT", "SETINFO", "LIB-NAME", "x")
	harness.Expect(t, pooled, ok, "RLOCK", "p")
	for _, verb := range []string{"RLOCK", "WLOCK"} {
		if got := pooled.Do(verb, "p"); !strings.HasPrefix(got, "-OWNERREQUIRED ") {
			t.Error(got)
		}
	}
	harness.Expect(t, pooled, ok, "RLOCK", "p", "SELF")
	entry := harness.Objects(t, harness.Decode(t, pooled.Do("LOCKLIST")))
	if len(entry) != 1 || entry[0]["kind"] != "read" || entry[0]["holds"] != int64(2) {
		t.Error(entry)
	}
	harness.Eventually(t, "a lock that is granted before its lease is over", func() bool { return w3.Do("WLOCK", "lost", "PX", "200") == "+OK\r\n" })
	want := strings.Replace(lostPush("lost", "expired"), "$5\r\nplain", "$5\r\nwrite", 1)
	if got := w3.Read(); got != want {
		t.Errorf("pushed %q", got)
	}
}
