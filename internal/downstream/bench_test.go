package downstream

import (
	"net"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// readyConn is a client that has always sent a command, and takes every reply at once.
type readyConn struct {
	net.Conn
	command []byte
}

func (c readyConn) Read(p []byte) (int, error)       { return copy(p, c.command), nil }
func (c readyConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c readyConn) SetReadDeadline(time.Time) error  { return nil }
func (c readyConn) SetWriteDeadline(time.Time) error { return nil }

// What a Conn adds to the system calls of a command and its reply.
func BenchmarkCommandAndReply(b *testing.B) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	g := newTestGate(b, Options{MaxQueryMemory: 1 << 30, MaxReplyMemory: 1 << 30})
	c := newConn(entrant{conn: readyConn{here, resp.AppendCommand(nil, "GET", "stock")}, from: here.RemoteAddr(), since: time.Now()}, g)
	p, reply := make([]byte, 4096), []byte("$2\r\n12\r\n")
	b.ReportAllocs()
	for b.Loop() {
		c.Read(p)
		c.Reader.CommandCame()
		c.Write(reply)
	}
}
