package downstream

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
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

// anybody is a client nothing is known of.
type anybody struct{}

func (anybody) End()             {}
func (anybody) Notified()        {}
func (anybody) MayLeave() bool   { return true }
func (anybody) MayIdle() bool    { return false }
func (anybody) Subscribed() bool { return false }
func (anybody) Ahead([]byte)     {}

func newTestGate(t testing.TB, o GateOptions) *Gate {
	o.Admit = func(*Conn) Client { return anybody{} }
	o.Logger = slog.New(slog.DiscardHandler)
	return NewGate(t.Context(), o)
}

func newTestConn(t *testing.T, conn net.Conn) *Conn {
	return newConn(entrant{conn: conn, from: conn.RemoteAddr(), since: time.Now()}, newTestGate(t, GateOptions{}))
}

// One deadline for all of a big reply would cut off a client that reads steadily over a slow line.
func TestBigRepliesAreWrittenInPieces(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	conn := &slowConn{Conn: here}
	c := newTestConn(t, conn)
	reply := bytes.Repeat([]byte("0123456789"), 100_000)
	if n, err := c.Write(reply); n != len(reply) || err != nil {
		t.Fatal(n, err)
	}
	if conn.longest > resp.Long || !bytes.Equal(conn.got.Bytes(), reply) {
		t.Errorf("%d bytes in one write, %d in all", conn.longest, conn.got.Len())
	}
	if conn.deadlines > 0 {
		t.Error("a deadline, without an idle time-out")
	}
	c.Reader.gate.SetBounds(Bounds{IdleTimeout: time.Minute})
	for _, left := range []time.Duration{-time.Minute, time.Minute / 4} { // as after some slow pieces
		before := conn.deadlines
		c.Writer.due = time.Now().Add(left)
		c.Write(reply)
		if conn.deadlines == before {
			t.Error("no new deadline")
		}
	}
}

// A client that reads nothing is idle too, but one that reads slowly is not.
func TestIdleTimeoutOfReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		c := newTestConn(t, here)
		c.Reader.gate.SetBounds(Bounds{IdleTimeout: 200 * time.Millisecond})
		read := make(chan int)
		go func() {
			total := 0
			for range 20 {
				n, _ := io.ReadFull(there, make([]byte, 100))
				total += n
				time.Sleep(50 * time.Millisecond)
			}
			read <- total
		}()
		n, err := c.Write(make([]byte, 1<<20))
		if got := <-read; err == nil || n < 2000 || got != 2000 {
			t.Errorf("%d written, %d read, %v", n, got, err)
		}
	})
}

// New bounds hold for a write that waits.
func TestChangedBoundsOfAWriter(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]Bounds{
		"idle":  {IdleTimeout: 200 * time.Millisecond},
		"hard":  {NormalOutput: OutputLimit{Hard: 1000}},
		"soft":  {NormalOutput: OutputLimit{Soft: 1000, For: time.Second}},
		"later": {IdleTimeout: 2 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			defer there.Close()
			c := newTestConn(t, here)
			if name == "later" {
				c.Reader.gate.SetBounds(Bounds{IdleTimeout: time.Hour})
			}
			began, ended := time.Now(), make(chan error)
			go func() {
				_, err := c.Write(make([]byte, 2000))
				ended <- err
			}()
			synctest.Wait()
			if !c.Reader.gate.SetBounds(b) || c.Reader.gate.SetBounds(b) {
				t.Error("a change is not told from none")
			}
			c.BoundsChanged()
			select {
			case err := <-ended:
				if err == nil || time.Since(began) < b.IdleTimeout {
					t.Errorf("%s: %v after %v", name, err, time.Since(began))
				}
			case <-time.After(24 * time.Hour):
				t.Errorf("%s: it writes for ever", name)
				here.Close()
				<-ended
			}
		})
	}
}
