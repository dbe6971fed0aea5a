package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A client that stops reading for 15 s in the middle of a long reply, its window full, and of many short ones, gets all.
func TestReaderThatPauses(t *testing.T) {
	t.Parallel()
	const n, depth = 50 << 20, 100
	server := testredis.Start(t)
	server.Do(t, "SET", "big", strings.Repeat("x", n))
	server.Do(t, "SET", "short", strings.Repeat("y", n/depth))
	p := harness.StartProxy(t, server.URL())
	whole := func(w *harness.Wire, n int) {
		if got := w.Read(); len(got) < n || len(got) > n+20 {
			t.Errorf("a reply of %d bytes", len(got))
		}
	}
	one, many, holder := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	if got := holder.Do("LOCK", "l"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	one.Do("GET", "big") // the second is passed on as it comes
	one.Send("GET", "big")
	holder.Send("GET", "big")
	for range depth {
		many.Send("GET", "short")
	}
	time.Sleep(15 * time.Second)
	whole(one, n)
	whole(holder, n)
	for range depth {
		whole(many, n/depth)
	}
	if got := holder.Do("UNLOCK", "l"); got != ":1\r\n" {
		t.Errorf("the lock of a client that paused: %q", got)
	}
}
