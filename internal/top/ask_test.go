package top

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// answering is a proxy that knows some commands by heart, in RESP3.
func answering(t *testing.T, replies map[string]string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		for r := bufio.NewReader(c); ; {
			var n, size int
			if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
				return
			}
			words := make([]string, n)
			for i := range words {
				fmt.Fscanf(r, "$%d\r\n", &size)
				word := make([]byte, size+2)
				io.ReadFull(r, word)
				words[i] = string(word[:size])
			}
			reply, known := replies[strings.Join(words, " ")]
			switch {
			case words[0] == "HELLO":
				reply = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
			case reply == "never":
				<-t.Context().Done()
				return
			case words[0] == "CLIENT":
				reply = "+OK\r\n"
			case !known:
				reply = "-ERR unknown " + strings.Join(words, " ") + "\r\n"
			}
			io.WriteString(c, reply)
		}
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	o, err := parse([]string{"--address", ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: o.target}
	t.Cleanup(func() { p.lists.end(); p.locks.end() })
	return p
}

// resp3 writes strings and lists, and maps as lists that begin with "%".
func resp3(v any) string {
	switch v := v.(type) {
	case int:
		return fmt.Sprintf(":%d\r\n", v)
	case nil:
		return "_\r\n"
	case []any:
		text := fmt.Sprintf("*%d\r\n", len(v))
		if len(v) > 0 && v[0] == "%" {
			v = v[1:]
			text = fmt.Sprintf("%%%d\r\n", len(v)/2)
		}
		for _, one := range v {
			text += resp3(one)
		}
		return text
	}
	return fmt.Sprintf("$%d\r\n%s\r\n", len(v.(string)), v)
}

// TestAsk: a list has its rows with what is in maps within them; one lock is asked for in its database, and has its
// holders, those that wait for it alone, and a quorum's nodes.
func TestAsk(t *testing.T) {
	t.Parallel()
	type l = []any
	replies := map[string]string{
		"LOCKPROXY STATS": resp3(l{"%", "locks_held", 3, "upstream", "redis"}),
		"SELECT 4":        "+OK\r\n",
		"LOCKINFO a b": resp3(l{"%", "kind", "write", "ttl-ms", 12_000, "holders", l{
			l{"%", "owner", "o1", "kind", "write", "holds", 2, "proxy", "far:6380"},
			l{"%", "owner", "o2", "holds", 1, "client-id", 7, "addr", "h:1", "name", "me", "held-ms", 3000, "watched", 0, "renewed-ms-ago", -1},
		}, "nodes", l{l{"%", "name", "n1", "state", "down", "trouble", "no route"}},
			"waiting", l{"%", "queue", 3, "here", 1}, "fence", 42}),
		"LOCKPROXY PROXIES -1": resp3(l{l{"%", "id", "id-2", "addr", "far:6380"}, l{"%", "id", "id-1", "addr", "here:6380"}}),
		"LOCKPROXY LOCKS 9 ALL": resp3(l{
			l{"%", "key", "a b", "db", 4, "kind", "write", "owner", "o1", "client-id", 5, "addr", "c:7", "name", "", "held-ms", 9000, "proxy", "id-2"},
			l{"%", "key", "a b", "db", 5, "kind", "plain", "owner", "o9", "held-ms", 1000, "proxy", "id-1"},
		}),
		"LOCKPROXY WAITERS 9 ALL": resp3(l{
			l{"%", "key", "a b", "db", 4, "owner", "w1", "waiting-ms", 1500, "place", 1, "proxy", "id-2"},
			l{"%", "key", "a b", "db", 0, "owner", "elsewhere"}, l{"%", "key", "other", "db", 4, "owner", "other"},
		}),
	}
	p := answering(t, replies)
	shown := func(q *query) (f facts, lines []string) {
		t.Helper()
		f, err := p.ask(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range f.rows {
			lines = append(lines, strings.Join(cells(q.shown(), r), "|"))
		}
		return f, lines
	}
	f, lines := shown(&query{list: &about, rows: 9, all: true, lock: record{"key": "a b", "db": "4"}})
	if want := "lock a b, database 4: write, 12 s of the lease are left; last fencing token 42; wait here: 1, in the fair queue: 3"; f.lock != want {
		t.Errorf("%q, want %q", f.lock, want)
	}
	if got, want := strings.Join(lines, "\n"), strings.Join([]string{
		"holds it|write|o1|c:7|far:6380|9.0 s|2||", "holds it||o2|h:1 me|this proxy|3.0 s|1|ends by itself|",
		"waits||w1||far:6380|1.5 s|||1", "node|||n1|down no route||||",
	}, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	// Where the proxy does not answer, what proxies know is shown, and never the lock of another database.
	f, lines = shown(&query{list: &about, rows: 9, all: true, lock: record{"key": "a b", "db": "5"}})
	if !strings.Contains(f.lock, "lock a b, database 5: ") || !strings.Contains(f.lock, "SELECT 5") ||
		strings.Join(lines, "\n") != "holds it|plain|o9||here:6380|1.0 s|||" {
		t.Errorf("%q, %q", f.lock, lines)
	}
}

// A proxy whose Redis is away closes whoever connects with HELLO. The operator is told what that means, and not only that the
// connection ended.
func TestClosedByTheProxy(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1024))
			c.Close()
		}
	}()
	o, err := parse([]string{"--address", ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: o.target}
	defer p.lists.end()
	if _, err = p.ask(t.Context(), &query{list: &lists[0], rows: 1}); err == nil || !strings.Contains(err.Error(), "its Redis may be away") {
		t.Errorf("got %v", err)
	}
}

// TestAskWhileRedisHangs: LOCKINFO has no answer then, and lists go on being shown.
func TestAskWhileRedisHangs(t *testing.T) {
	t.Parallel()
	p := answering(t, map[string]string{"LOCKPROXY STATS": "%0\r\n", "LOCKPROXY LOCKS 9": "*0\r\n", "SELECT 0": "+OK\r\n", "LOCKINFO a": "never", "PING": "never"})
	list := func() {
		t.Helper()
		if _, err := p.ask(t.Context(), &query{list: &lists[0], rows: 9}); err != nil {
			t.Error(err)
		}
	}
	list()
	first := p.lists.Client
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond) // longer than rueidis waits before it sends PING
	defer cancel()
	if _, err := p.ask(ctx, &query{list: &about, rows: 9, lock: record{"key": "a", "db": "0"}}); err == nil {
		t.Error("LOCKINFO was answered")
	}
	if list(); p.lists.Client != first {
		t.Error("lists have another connection than before")
	}
}
