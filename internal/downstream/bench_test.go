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
	g := newTestGate(b, GateOptions{MaxQueryMemory: 1 << 30, MaxReplyMemory: 1 << 30})
	c := newConn(entrant{conn: readyConn{here, resp.AppendCommand(nil, "GET", "stock")}, from: here.RemoteAddr(), since: time.Now()}, g)
	p, reply := make([]byte, 4096), []byte("$2\r\n12\r\n")
	b.ReportAllocs()
	for b.Loop() {
		c.Read(p)
		c.Reader.CommandCame()
		c.Write(reply)
	}
}

// What the accept loop does for a client that comes, system calls included. The kernel has let it in before.
func BenchmarkAccept(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	l, _ := newTestGate(b, GateOptions{}).Guard(ln, Entry{})
	defer l.Close()
	const atOnce = 100
	var both []net.Conn
	for i := range b.N {
		if i%atOnce == 0 {
			b.StopTimer()
			for _, c := range both {
				c.Close()
			}
			both = nil
			for range atOnce {
				c, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				c.(*net.TCPConn).SetLinger(0) // else its port stays taken
				both = append(both, c)
			}
			b.StartTimer()
		}
		c, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		both = append(both, c)
	}
}
