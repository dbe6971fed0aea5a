package faults

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// neighbour is what a client beside others saw.
type neighbour struct{ took []time.Duration }

// get asks for a small value every half millisecond until done is closed, once at least.
func (n *neighbour) get(t *testing.T, w *harness.Wire, done <-chan struct{}) {
	for {
		if len(n.took) > 0 {
			select {
			case <-done:
				slices.Sort(n.took)
				return
			case <-time.After(500 * time.Microsecond):
			}
		}
		began := time.Now()
		if got := w.Do("GET", "small"); got != "$1\r\nx\r\n" {
			t.Fatalf("a neighbour's GET: %q", got)
		}
		n.took = append(n.took, time.Since(began))
	}
}

func (n *neighbour) at(percent int) time.Duration { return n.took[(len(n.took)-1)*percent/100] }

// sip reads n bytes at a megabyte a second for so long, and the rest as fast as it comes.
func sip(w *harness.Wire, n int, slowly time.Duration) error {
	const chunk = 100 << 10
	end := time.Now().Add(slowly)
	for left := n; left > 0; {
		_ = w.C.SetReadDeadline(time.Now().Add(2 * harness.Patience))
		got, err := io.CopyN(io.Discard, w.R, int64(min(left, chunk)))
		left -= int(got)
		if err != nil {
			return fmt.Errorf("%d bytes before the end: %w", left, err)
		}
		if time.Now().Before(end) {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

// Clients that read 100 MB at a megabyte a second, as one reply and as a hundred, hold up nobody and make the proxy hold
// little of what they have not read.
func TestSlowReadersAndANeighbour(t *testing.T) {
	const n, depth = 100 << 20, 100
	slowly := 5 * time.Second
	if harness.Long() {
		slowly = 110 * time.Second
	}
	server := testredis.Start(t)
	server.Do(t, "SET", "one", strings.Repeat("x", n))
	server.Do(t, "SET", "part", strings.Repeat("y", n/depth))
	server.Do(t, "SET", "small", "x")
	for name, c := range map[string]struct {
		request string
		reply   int
	}{
		"one reply":  {"*2\r\n$3\r\nGET\r\n$3\r\none\r\n", n + len(fmt.Sprintf("$%d\r\n\r\n", n))},
		"a pipeline": {strings.Repeat("*2\r\n$3\r\nGET\r\n$4\r\npart\r\n", depth), n + depth*len(fmt.Sprintf("$%d\r\n\r\n", n/depth))},
	} {
		t.Run(name, func(t *testing.T) {
			p := harness.StartProxy(t, server.URL())
			before := p.RSS()
			quick, slow := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
			done := make(chan struct{})
			var slept error
			go func() {
				defer close(done)
				_, err := io.WriteString(slow.C, c.request)
				slept = errors.Join(err, sip(slow, c.reply, slowly))
			}()
			var seen neighbour
			seen.get(t, quick, done)
			if slept != nil {
				t.Error(slept)
			}
			most := p.Peak()
			t.Logf("%d GETs beside: p50 %v, p99 %v, longest %v; resident %d MB before, %d MB at most",
				len(seen.took), seen.at(50), seen.at(99), seen.at(100), before>>20, most>>20)
			if p99 := seen.at(99); p99 > harness.Bound(100*time.Millisecond) {
				t.Errorf("p99 of a neighbour: %v", p99)
			}
			if most > before+int64(500<<20*harness.Sanitizer()) {
				t.Error("the proxy grew too much")
			}
		})
	}
}
