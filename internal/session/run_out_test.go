package session

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
)

// A client that is closed although it holds locks is told of in the log, with how many run out; one that closes, or holds none, is not.
func TestLocksThatRunOutAreLogged(t *testing.T) {
	t.Parallel()
	var log journal
	_, p := startBoth(t, func(o *ServerOptions) { o.Logger = log.logger() })
	ends, holds, none := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	ends.expect("+OK\r\n", "LOCK", "c")
	none.expect("+PONG\r\n", "PING")
	ends.conn.Close()
	eventually(t, "it has gone", func() bool { return p.srv.clients.n.Load() == 2 })
	holds.expect("+OK\r\n", "LOCK", "a")
	holds.expect("+OK\r\n", "LOCK", "b")
	for _, c := range p.srv.clients.snapshot() {
		c.client.End.Cut(downstream.Left, "no sign of life")
	}
	want := fmt.Sprintf(`level=WARN msg="clients were closed that held locks, which end with their leases" clients=1 locks=2 last=%s why="no sign of life"`, holds.conn.LocalAddr())
	eventually(t, "the log says it", func() bool { return log.count(want) == 1 })
	if n := log.count("clients were closed"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// Thousands who are closed at once make one line a second, and none is forgotten.
func TestManyWhoseLocksRunOutMakeOneLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log journal
		var r runOut
		for range 3 {
			for i := range 1000 {
				r.noteClient(2, fmt.Sprint(i), "why")
				if i == 0 {
					r.logSums(log.logger(), time.Now())
				}
			}
			time.Sleep(runOutEvery)
		}
		r.logSums(log.logger(), time.Now())
		r.logSums(log.logger(), time.Now())
		for what, n := range map[string]int{"clients=1 locks=2 ": 1, "clients=1000 locks=2000 ": 2, "clients=999 locks=1998 ": 1, "closed": 4} {
			if log.count(what) != n {
				t.Errorf("%q %d times, want %d", what, log.count(what), n)
			}
		}
	})
}
