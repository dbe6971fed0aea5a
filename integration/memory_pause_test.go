package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A client that stops reading for 15 s in the middle of a long reply, its window full, and of many short ones, gets all.
func TestReaderThatPauses(t *testing.T) {
	t.Parallel()
	const n, depth = 50 << 20, 100
	server := testredis.Start(t)
	server.Do(t, "SET", "big", strings.Repeat("x", n))
	server.Do(t, "SET", "short", strings.Repeat("y", n/depth))
	p := startProxy(t, server.URL())
	whole := func(w *wire, n int) {
		if got := w.read(); len(got) < n || len(got) > n+20 {
			t.Errorf("a reply of %d bytes", len(got))
		}
	}
	one, many, holder := dial(t, p.Addr()), dial(t, p.Addr()), dial(t, p.Addr())
	if got := holder.do("LOCK", "l"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	one.do("GET", "big") // the second is passed on as it comes
	one.send("GET", "big")
	holder.send("GET", "big")
	for range depth {
		many.send("GET", "short")
	}
	time.Sleep(15 * time.Second)
	whole(one, n)
	whole(holder, n)
	for range depth {
		whole(many, n/depth)
	}
	if got := holder.do("UNLOCK", "l"); got != ":1\r\n" {
		t.Errorf("the lock of a client that paused: %q", got)
	}
}
