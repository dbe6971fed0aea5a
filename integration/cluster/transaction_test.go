package cluster

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Whatever node a client's MULTI goes to, its transaction ends as straight at Redis, also a long one; and what was refused makes EXEC abort,
// before the first key, with it and after it.
func TestClusterTransactionAsAtRedis(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	straight := testredis.Start(t)
	long := strings.Repeat("v", 1<<20)
	length, set := []string{"STRLEN", "{t}n"}, []string{"SET", "{t}k", long}
	transactions := map[string][][]string{
		"long":    {set, set, set, set, set, set, set, set, set, set},
		"nothing": {},
		"no key":  {{"PING"}, {"ECHO", "a"}},
		"set":     {{"PING"}, {"SET", "{t}k", "v"}, {"GET", "{t}k"}},
		"nested":  {{"MULTI"}, {"SET", "{t}k", "v"}, {"WATCH", "{t}k"}, {"GET", "{t}k"}},
	}
	for _, wrong := range [][]string{{"WATCH"}, {"MULTI", "x"}, {"DISCARD", "x"}, {"EXEC", "x"}, {"GET"}, {"NONE"}, {"SUBSCRIBE"}} {
		name := strings.Join(wrong, " ")
		transactions[name+" first"] = [][]string{wrong, length}
		transactions[name+" last"] = [][]string{length, wrong}
		transactions[name+" between"] = [][]string{{"PING"}, wrong, {"PING"}, length, length}
	}
	run := func(w *harness.Wire, calls [][]string) (said []string) {
		said = append(said, w.Do("MULTI")) // alone, as many clients send it
		for _, call := range calls {
			said = append(said, w.Do(call...))
		}
		return append(said, w.Do("EXEC"), w.Do("DISCARD"), w.Do("PING"))
	}
	for name, calls := range transactions {
		want := strings.Join(run(harness.Dial(t, straight.Addr()), calls), "")
		for range 6 { // at all nodes
			w := harness.Dial(t, p.Addr())
			if got := strings.Join(run(w, calls), ""); got != want {
				t.Errorf("%s: got %.300q, want %.300q", name, got, want)
			}
			w.Close()
		}
	}
}

// A transaction of which more than is kept was queued before its first key runs where that key's node has it, and is aborted elsewhere: no
// client is sent to a node. With watched keys it is at the right node from the start.
func TestClusterTransactionWithALateKey(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	long, ran := strings.Repeat("v", 2<<20), 0
	for i := range 12 { // at all nodes
		w := harness.Dial(t, p.Addr())
		if i%4 == 0 {
			harness.Expect(t, w, "+OK\r\n", "WATCH", "{t}w")
		}
		harness.Expect(t, w, "+OK\r\n", "MULTI")
		harness.Expect(t, w, "+QUEUED\r\n", "ECHO", long)
		set := w.Do("SET", "{t}k", "v")
		got := w.Do("EXEC")
		switch {
		case set == "+QUEUED\r\n" && strings.HasPrefix(got, "*2\r\n$2097152\r\n") && strings.HasSuffix(got, "\r\n+OK\r\n"):
			ran++
		case i%4 == 0, !strings.HasPrefix(set, "-ERR the slot of this transaction"), !strings.HasPrefix(got, "-EXECABORT "):
			t.Errorf("%d: got %q, %.300q", i, set, got)
		}
		harness.Expect(t, w, "+PONG\r\n", "PING")
		w.Close()
	}
	if ran == 12 {
		t.Error("all were at the right node by chance")
	}
}

// A transaction whose client sends much before its first key, and much of it unasked, has all replies in their order.
func TestClusterTransactionInOneWrite(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	for range 6 {
		w := harness.Dial(t, p.Addr())
		harness.Expect(t, w, "+OK\r\n", "MULTI")
		const pings = 300
		for range pings {
			w.Send("PING")
		}
		w.Send("SET", "{t}k", "v")
		w.Send("EXEC")
		for range pings + 1 {
			if got := w.Read(); got != "+QUEUED\r\n" {
				t.Fatalf("got %q", got)
			}
		}
		if got := w.Read(); got != "*301\r\n"+strings.Repeat("+PONG\r\n", pings)+"+OK\r\n" {
			t.Errorf("got %.100q", got)
		}
	}
}
