package session

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

func TestGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuesses()
		for range freeGuesses {
			if d := g.turnOf("10.0.0.1"); d != 0 {
				t.Fatalf("one of the first waits %v", d)
			}
			g.wrong("10.0.0.1")
		}
		// Those that come at once, over many connections, wait one behind the other, and none for ever.
		for i := range 100 * freeGuesses {
			want := min(time.Duration(i)*guessTime, mostLoginWait)
			if d := g.turnOf("10.0.0.1"); d.Round(time.Millisecond) != want {
				t.Fatalf("further one %d waits %v, not %v", i, d, want)
			}
			g.wrong("10.0.0.1")
		}
		if d := g.turnOf("10.0.0.2"); d != 0 {
			t.Errorf("another address waits %v", d)
		}
		time.Sleep(time.Second)
		if d := g.turnOf("10.0.0.1"); d != 0 {
			t.Errorf("a second later it waits %v", d)
		}
	})
}

// lines is a log that tests may read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Wrong passwords are counted, logged with the address that they come from, and slow it down; a right one is not refused there.
func TestWrongPasswordsLeaveATrace(t *testing.T) {
	server := startRedis(t, "--requirepass secret")
	var log lines
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w, before, began := dialWire(t, p.addr), telemetry.LoginsFailed.Value(), time.Now()
	const slowed = 15
	for range freeGuesses + slowed {
		if got := w.do("AUTH", "wrong-guess"); !strings.HasPrefix(got, "-WRONGPASS") {
			t.Fatal(got)
		}
	}
	if took, least := time.Since(began), (slowed-1)*guessTime-time.Second; took < least { // a free one comes back each second
		t.Errorf("%d wrong passwords took %v", freeGuesses+slowed, took)
	}
	w.expect("+OK\r\n", "AUTH", "secret")
	if n := telemetry.LoginsFailed.Value() - before; n < freeGuesses+slowed {
		t.Errorf("%d are counted", n)
	}
	if said := log.String(); !strings.Contains(said, "a login failed") || !strings.Contains(said, w.conn.LocalAddr().String()) || strings.Contains(said, "wrong-guess") {
		t.Errorf("the log says %q", said)
	}
}
