package session

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// slowConn is a client's end: it notes the sizes of writes and how many deadlines they got.
type slowConn struct {
	net.Conn
	got       bytes.Buffer
	longest   int
	deadlines int
}

func (c *slowConn) Write(p []byte) (int, error) {
	c.longest = max(c.longest, len(p))
	return c.got.Write(p)
}

func (c *slowConn) SetWriteDeadline(time.Time) error {
	c.deadlines++
	return nil
}

func newTestGuard(conn net.Conn) *guard {
	s := NewServer(Options{})
	g := newGuard(conn, s)
	g.sess = newSession(s, g, 1)
	return g
}

// One deadline for all of a big reply would cut off a client that reads steadily over a slow line.
func TestBigRepliesAreWrittenInPieces(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	conn := &slowConn{Conn: here}
	g := newTestGuard(conn)
	reply := bytes.Repeat([]byte("0123456789"), 100_000)
	if n, err := g.Write(reply); n != len(reply) || err != nil {
		t.Fatal(n, err)
	}
	if conn.longest > flushAt || !bytes.Equal(conn.got.Bytes(), reply) {
		t.Errorf("%d bytes in one write, %d in all", conn.longest, conn.got.Len())
	}
	if conn.deadlines > 0 {
		t.Error("a deadline, without an idle time-out")
	}
	g.srv.o.IdleTimeout = time.Minute
	for _, left := range []time.Duration{-time.Minute, time.Minute / 4} { // as after some slow pieces
		before := conn.deadlines
		g.wdue = time.Now().Add(left)
		g.Write(reply)
		if conn.deadlines == before {
			t.Error("no new deadline")
		}
	}
}

// The time for an unfinished command begins anew when an earlier one has been completed.
func TestWindowOfAnUnfinishedCommand(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	g := newTestGuard(here)
	go there.Write([]byte("*1\r\n$4\r\nPI"))
	if err := g.in.ReadAhead(readAhead); err != nil {
		t.Fatal(err)
	}
	if due := g.nextDue(); time.Until(due) < progressWindow/2 {
		t.Fatalf("due at %v", due)
	}
	g.window = time.Now().Add(-time.Second)
	if due := g.nextDue(); time.Until(due) > 0 {
		t.Error("a command that does not grow gets a new window")
	}
	g.commandCame()
	if due := g.nextDue(); time.Until(due) < progressWindow/2 {
		t.Errorf("due at %v", due)
	}
}

func TestIdleTimeoutWhenTheLockHasEnded(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *Options) { o.IdleTimeout = 200 * time.Millisecond })
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "LOCK", "l", "PX", "1000")
	from := time.Now()
	if got := w.frame(); got != "<end>" || time.Since(from) < 500*time.Millisecond {
		t.Errorf("%q after %v", got, time.Since(from))
	}
}
