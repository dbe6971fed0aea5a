package cluster

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// framed is s as Redis sends it.
func framed(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// moreMemory is how much more memory the race detector takes.
func moreMemory() int64 {
	if harness.RaceEnabled {
		return 4
	}
	return 1
}

// Values on both sides of every threshold, both ways, in a pipeline over several nodes, and what that takes of memory.
func TestClusterBigValues(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	harness.Protocols(t, func(t *testing.T, proto int) {
		w := harness.Dial(t, p.Addr())
		w.Do("HELLO", fmt.Sprint(proto))
		for _, n := range []int{64<<10 - 1, 128<<10 + 1, 1<<20 - 1, 1<<20 + 1, 28_000_000} {
			value := strings.Repeat("0123456789", n/10+1)[:n]
			all := harness.EncodeAll([][]string{{"SET", "big", value}, {"SET", "a", "x"}, {"GET", "big"}, {"MGET", "a", "b", "big", "c"}, {"GET", "a"}, {"LPUSH", "big", "x"}, {"GET", "big"}, {"STRLEN", "big"}, {"DEL", "big", "a"}})
			null := "$-1\r\n"
			if proto == 3 {
				null = "_\r\n"
			}
			want := []string{ok, ok, framed(value), "*4\r\n" + framed("x") + null + framed(value) + null, framed("x"),
				"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", framed(value), fmt.Sprintf(":%d\r\n", n), ":2\r\n"}
			if got := w.Pipeline(all, len(want)); !slices.Equal(got, want) {
				t.Errorf("%d bytes: the replies are wrong", n)
			}
		}
		hset := []string{"HSET", "h"}
		for i := range 100_000 {
			hset = append(hset, fmt.Sprint("f", i), strings.Repeat("v", 50))
		}
		w.Do(hset...)
		for range 3 { // the first moves the client to connections of its own
			if got := w.Do("HGETALL", "h"); len(got) < 100_000*60 {
				t.Errorf("HGETALL: %d bytes", len(got))
			}
		}
	})
	if most := p.Peak() >> 20; most > 500*moreMemory() {
		t.Errorf("resident %d MB at most", most)
	}
}

// Clients that ask for much and read slowly, or not at all: the proxy holds next to nothing of that once they are known
// for it, and others are served.
func TestClusterSlowReaders(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	const clients, n = 8, 28_000_000
	writer := harness.Dial(t, p.Addr())
	for i := range 3 {
		harness.Expect(t, writer, ok, "SET", fmt.Sprint("big", i), strings.Repeat("x", n))
	}
	harness.Expect(t, writer, ok, "SET", "small", "x")
	var all []*harness.Wire
	for i := range clients {
		w := harness.Dial(t, p.Addr())
		w.Do("GET", fmt.Sprint("big", i%3))
		all = append(all, w)
	}
	known := p.Peak()
	for i, w := range all {
		w.Do("GET", fmt.Sprint("big", i%3)) // who has asked for nothing big for 10 s is not known any more
		for range 5 {
			w.Send("GET", fmt.Sprint("big", i%3))
		}
	}
	quick := harness.Dial(t, p.Addr())
	var longest time.Duration
	before, most := p.RSS(), int64(0)
	for range 100 {
		began := time.Now()
		harness.Expect(t, quick, framed("x"), "GET", "small")
		longest = max(longest, time.Since(began))
		most = max(most, p.RSS())
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d clients that do not read their 5 × 28 MB: resident %d MB before (%d MB at most), %d MB at most beside them; another's longest GET %v",
		clients, before>>20, known>>20, most>>20, longest)
	if known > 400<<20*moreMemory() {
		t.Errorf("one big reply after the other took %d MB", known>>20)
	}
	if most > before+60<<20*moreMemory() {
		t.Errorf("grew from %d to %d MB", before>>20, most>>20)
	}
	for range 5 {
		if got := all[0].Read(); len(got) != n+len(fmt.Sprint(n))+5 {
			t.Errorf("a reply of %d bytes", len(got))
		}
	}
	for _, w := range all[1:] {
		w.Reset()
	}
	harness.Expect(t, quick, framed("x"), "GET", "small")
}

// What is gathered of replies, merged ones too, is bounded by the client's limit and by that of all together.
func TestClusterReplyLimits(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	const bound = 60 << 20
	p := harness.StartClusterProxy(t, tc, "--max-reply-memory", fmt.Sprint(bound), "--client-output-buffer-limit", "normal 30mb 0 0")
	w := harness.Dial(t, p.Addr())
	mget := []string{"MGET"}
	for i := range 40 {
		key := fmt.Sprint("k", i)
		harness.Expect(t, w, ok, "SET", key, strings.Repeat("x", 1<<20-100))
		mget = append(mget, key)
	}
	before := p.RSS()
	merged := harness.Dial(t, p.Addr())
	merged.Send(mget...)
	if read, err := io.Copy(io.Discard, merged.C); read > 0 {
		t.Errorf("%d bytes came before the end, %v", read, err)
	}
	harness.Eventually(t, "it is counted", func() bool { return p.Metric("lockproxy_output_dropped_total") == 1 })
	// Known for small replies, they then ask for much at once.
	var all []*harness.Wire
	for range 6 {
		d := harness.Dial(t, p.Addr())
		for range 10 {
			var small strings.Builder
			for range 128 {
				small.WriteString(harness.EncodeAll([][]string{{"GET", "none"}}))
			}
			d.Pipeline(small.String(), 128)
		}
		all = append(all, d)
	}
	var big [][]string
	for _, k := range mget[1:25] { // below the limit of each, not of all
		big = append(big, []string{"GET", k})
	}
	for _, d := range all {
		if _, err := io.WriteString(d.C, harness.EncodeAll(big)); err != nil {
			t.Fatal(err)
		}
	}
	most := before
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		most = max(most, p.RSS())
	}
	t.Logf("resident %d MB before, %d MB at most; %v dropped for all together's limit", before>>20, most>>20, p.Metric("lockproxy_reply_dropped_total"))
	if held := p.Metric("lockproxy_reply_memory_bytes"); held > bound {
		t.Errorf("%v bytes are held", held)
	}
	if most > before+5*bound*moreMemory() {
		t.Errorf("grew from %d to %d MB", before>>20, most>>20)
	}
	for _, d := range all {
		d.Reset()
	}
	harness.Eventually(t, "all is given back", func() bool { return p.Metric("lockproxy_reply_memory_bytes") == 0 })
	harness.Expect(t, w, "$-1\r\n", "GET", "none")
}

// A node that is lost in the middle of a long reply: the client is cut off, since nothing after it could be understood.
func TestClusterLostWithinAReply(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, ok, "SET", "big", strings.Repeat("x", 40<<20))
	w.Do("GET", "big")
	owner, err := tc.Owner(cluster.Slot([]byte("big")))
	if err != nil {
		t.Fatal(err)
	}
	w.Send("GET", "big")
	if _, err := w.R.Peek(1); err != nil {
		t.Fatal(err)
	}
	owner.Kill()
	if got, err := w.TryRead(harness.Patience); err == nil {
		t.Errorf("a whole reply of %d bytes", len(got))
	}
}
