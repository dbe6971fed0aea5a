package faults

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// deaf makes clients that are known for small replies, and then ask for depth big ones, the key, and read nothing.
func deaf(t *testing.T, p *harness.Proxy, clients, depth int, key string) []*harness.Wire {
	small := strings.Repeat("*2\r\n$3\r\nGET\r\n$5\r\nsmall\r\n", 128)
	big := strings.Repeat(string(resp.AppendCommand(nil, "GET", key)), depth)
	all := make([]*harness.Wire, clients)
	for i := range all {
		all[i] = harness.Dial(t, p.Addr())
		for range 10 { // after that their commands go upstream many at a time
			if _, err := io.WriteString(all[i].C, small); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, all[i].R, 128*int64(len("$1\r\nx\r\n"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, w := range all {
		if _, err := io.WriteString(w.C, big); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Clients known for small replies that all at once ask for far more than memory holds, and read nothing: the proxy's part
// stays bounded, and those who ask for little are served.
func TestMemoryOfUnreadReplies(t *testing.T) {
	const clients, depth, n, bound = 30, 120, 200 << 10, 100 << 20
	server := testredis.Start(t)
	server.Do(t, "SET", "big", strings.Repeat("x", n))
	server.Do(t, "SET", "small", "x")
	p := harness.StartProxy(t, server.URL(), "--max-reply-memory", fmt.Sprint(bound))
	watch := watchOver(t, p.Addr())
	before := p.RSS()
	all := deaf(t, p, clients, depth, "big")
	most := before
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		most = max(most, p.RSS())
	}
	harness.Eventually(t, "somebody is dropped", func() bool { return p.Metric("lockproxy_reply_dropped_total") > 0 })
	commands, median, longest := watch.finish()
	dropped := p.Metric("lockproxy_reply_dropped_total")
	t.Logf("%d clients ask for %d MB and do not read: resident %d MB before, %d MB at most; %v dropped; %d commands of bystanders, median %v, longest %v",
		clients, clients*depth*n>>20, before>>20, most>>20, dropped, commands, median, longest)
	if memory := p.Metric("lockproxy_reply_memory_bytes"); memory > bound {
		t.Errorf("%v bytes of replies are held", memory)
	}
	if most > before+int64(5*bound*harness.Sanitizer()) {
		t.Error("the proxy took far more than its bound")
	}
	for _, w := range all {
		w.Reset()
	}
	harness.Eventually(t, "all is given back", func() bool { return p.Metric("lockproxy_reply_memory_bytes") == 0 })
	if got := harness.Dial(t, p.Addr()).Do("GET", "small"); got != "$1\r\nx\r\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// Confirmations of subscriptions are gathered here until they are whole, and count then: those with very long names, and within EXEC's reply,
// of which the clients read half.
func TestMemoryOfUnreadConfirmations(t *testing.T) {
	const clients, n, bound = 20, 30 << 20, 100 << 20
	call := fmt.Sprintf("*2\r\n$11\r\nUNSUBSCRIBE\r\n$%d\r\n%s\r\n", n, strings.Repeat("x", n))
	for _, c := range []struct {
		what, call string
		read       int64
		least      float64 // are dropped
	}{
		{"alone", call, 0, clients / 2}, // of the 17 that find no room: a busy machine may not get all of them connected to Redis in time
		{"within EXEC", "*1\r\n$5\r\nMULTI\r\n" + call + "*1\r\n$4\r\nEXEC\r\n", n / 2, 1}, // the other half may find room in sockets
	} {
		p := harness.StartProxy(t, testredis.Start(t).URL(), "--max-reply-memory", fmt.Sprint(bound))
		before, most := p.RSS(), int64(0)
		var all []*harness.Wire
		for range clients {
			w := harness.Dial(t, p.Addr())
			if _, err := io.WriteString(w.C, c.call); err != nil {
				t.Fatal(err)
			}
			_, _ = io.CopyN(io.Discard, w.R, c.read) // it may be dropped meanwhile
			all, most = append(all, w), max(most, p.RSS())
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			most = max(most, p.RSS())
		}
		dropped := func() float64 { return p.Metric("lockproxy_reply_dropped_total") }
		harness.Eventually(t, "those are dropped that do not fit, "+c.what, func() bool { return dropped() >= c.least })
		t.Logf("%d clients do not read confirmations of %d MB, %s: resident %d MB before, %d MB at most; %v dropped", clients, n>>20, c.what, before>>20, most>>20, dropped())
		if memory := p.Metric("lockproxy_reply_memory_bytes"); memory > bound {
			t.Errorf("%s, %v bytes of replies are held", c.what, memory)
		}
		for _, w := range all {
			w.Reset()
		}
		harness.Eventually(t, "all is given back", func() bool { return p.Metric("lockproxy_reply_memory_bytes") == 0 })
		if got := harness.Dial(t, p.Addr()).Do("PING"); got != "+PONG\r\n" {
			t.Errorf("afterwards: %q", got)
		}
	}
}

// Of clients with unfinished commands those with the most go first, until the others fit.
func TestMemoryOfUnfinishedCommands(t *testing.T) {
	t.Parallel()
	const bound, modest, greedy, greedyClients = 16 << 20, 256 << 10, 2 << 20, 240 // little: a command that does not come on for 30 s ends its client
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL(), "--max-query-memory", fmt.Sprint(bound))
	before, began := p.RSS(), time.Now()
	var small, large []*harness.Wire
	begin := func(n int) *harness.Wire {
		w := harness.Dial(t, p.Addr())
		_, _ = fmt.Fprintf(w.C, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s", n+1, strings.Repeat("x", n)) // may be closed meanwhile
		return w
	}
	for range 20 {
		small = append(small, begin(modest))
	}
	harness.Eventually(t, "all of that has arrived", func() bool { return p.Metric("lockproxy_query_memory_bytes") >= 20*modest })
	most := before
	for range greedyClients {
		large = append(large, begin(greedy))
		most = max(most, p.RSS())
	}
	harness.Eventually(t, "most of the greedy have been dropped", func() bool { return p.Metric("lockproxy_query_dropped_total") >= greedyClients-6 })
	if held := p.Metric("lockproxy_query_memory_bytes"); held > bound {
		t.Errorf("%v bytes are held", held)
	}
	for i, w := range small {
		if _, err := io.WriteString(w.C, "y\r\n"); err != nil {
			t.Fatal(err)
		}
		if got := w.Read(); got != "+OK\r\n" {
			t.Errorf("modest client %d: %q", i, got)
		}
	}
	for _, w := range large {
		w.Close()
	}
	harness.Eventually(t, "all is given back", func() bool { return p.Metric("lockproxy_query_memory_bytes") == 0 })
	lines := strings.Count(p.Log(), "max-query-memory is reached")
	t.Logf("%d clients with %d MB each beside 20 with less: resident %d MB before, %d MB at most, %v dropped, %d log lines",
		greedyClients, greedy>>20, before>>20, most>>20, p.Metric("lockproxy_query_dropped_total"), lines)
	if took := time.Since(began); lines == 0 || lines > 8*(1+int(took/(10*time.Second))) { // as of any kind: see loglimit
		t.Errorf("%d log lines in %v", lines, took)
	}
	if most > before+int64(18*bound*harness.Sanitizer()) { // what has been dropped is garbage for a while, the longer the busier the machine is
		t.Error("the proxy took far more than its bound")
	}
}

// Redis' client-output-buffer-limit: at once above the hard limit, after a time above the soft one.
func TestClientOutputBufferLimit(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	for _, key := range []string{"big", "as big"} { // what is known to be big does not wait here
		server.Do(t, "SET", key, strings.Repeat("x", 400<<10))
	}
	server.Do(t, "SET", "small", "x")
	p := harness.StartProxy(t, server.URL(), "--client-output-buffer-limit", "normal 20mb 2mb 8")
	hard := deaf(t, p, 1, 100, "big")[0]
	harness.Eventually(t, "the hard limit has been noticed", func() bool { return p.Metric("lockproxy_output_dropped_total") == 1 })
	if read, err := io.Copy(io.Discard, hard.C); read > 20<<20 {
		t.Errorf("%d bytes came before the end, %v", read, err)
	}
	began := time.Now()
	soft := deaf(t, p, 2, 40, "as big")
	time.Sleep(500 * time.Millisecond)
	reader := soft[1]
	for range 40 {
		if got := reader.Read(); len(got) != 400<<10+len("$409600\r\n\r\n") {
			t.Fatalf("a client that reads in time: %d bytes", len(got))
		}
	}
	harness.Eventually(t, "the soft limit has been noticed", func() bool { return p.Metric("lockproxy_output_dropped_total") == 2 })
	if took := time.Since(began); took < 8*time.Second {
		t.Errorf("it was noticed after %v", took)
	}
	time.Sleep(time.Second)
	if got := reader.Do("GET", "small"); got != "$1\r\nx\r\n" {
		t.Errorf("a client that has read in time: %q", got)
	}
}

// What the proxy answers itself counts as well as what Redis does.
func TestMemoryOfUnreadAnswers(t *testing.T) {
	t.Parallel()
	const clients, bound = 40, 4 << 20
	p := harness.StartProxy(t, testredis.Start(t).URL(), "--max-reply-memory", fmt.Sprint(bound))
	for range clients {
		w := harness.Dial(t, p.Addr())
		if _, err := io.WriteString(w.C, strings.Repeat("*2\r\n$7\r\nCOMMAND\r\n$4\r\nDOCS\r\n", 50)); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "somebody is dropped", func() bool { return p.Metric("lockproxy_reply_dropped_total") > 0 })
	harness.Eventually(t, "the others fit", func() bool { return p.Metric("lockproxy_reply_memory_bytes") <= bound })
	if got := harness.Dial(t, p.Addr()).Do("PING"); got != "+PONG\r\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// A database that Redis does not have, or a wrong password, is a client's mistake: it does not look like a Redis out of reach.
func TestMistakesAreNoFailures(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	w := harness.Dial(t, p.Addr())
	before := p.Metric("lockproxy_pipe_failures_total")
	for range 10 {
		harness.Expect(t, w, "-ERR DB index is out of range\r\n", "SELECT", "99")
		if got := w.Do("AUTH", "nobody", "wrong"); !strings.HasPrefix(got, "-WRONGPASS ") {
			t.Error(got)
		}
	}
	if after := p.Metric("lockproxy_pipe_failures_total"); after != before {
		t.Errorf("%v failures", after-before)
	}
}
