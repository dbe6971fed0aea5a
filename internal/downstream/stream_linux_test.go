package downstream

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inOrder is a socket at whose end one direction hears of it first, and is slow to tell.
type inOrder struct {
	net.Conn
	first string        // "read" or "write"
	heard chan struct{} // closed when that direction has
}

func (c inOrder) NetConn() net.Conn { return c.Conn }

func (c inOrder) Read(p []byte) (int, error)  { return c.call("read", c.Conn.Read, p) }
func (c inOrder) Write(p []byte) (int, error) { return c.call("write", c.Conn.Write, p) }

func (c inOrder) call(direction string, do func([]byte) (int, error), p []byte) (n int, err error) {
	if direction != c.first {
		<-c.heard
		return do(p)
	}
	n, err = do(p)
	close(c.heard)
	time.Sleep(50 * time.Millisecond)
	return n, err
}

// A client that the kernel has given up may still count on its locks, and one that has reset its connection has gone,
// whether it is a read or a write that the kernel tells so: it tells only one.
func TestTheKernelTellsOnlyOne(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		how  How
		why  string
		make func(t *testing.T, client, accepted net.Conn)
	}{
		"no sign of life": {Left, "no sign of life", giveUp},
		"reset": {Gone, "reset by the client", func(_ *testing.T, client, _ net.Conn) {
			client.(*net.TCPConn).SetLinger(0)
			client.Close()
		}},
	} {
		for _, first := range []string{"read", "write"} {
			t.Run(name+", a "+first+" first", func(t *testing.T) {
				t.Parallel()
				client, accepted := connected(t, "tcp")
				end.make(t, client, accepted)
				waitFor(t, func() bool { return endedBothWays(socketOf(accepted)) })
				c := newTestConn(t, inOrder{accepted, first, make(chan struct{})})
				wrote := make(chan struct{})
				go func() { c.Write([]byte("+lost\r\n")); close(wrote) }()
				c.Read(make([]byte, 4096))
				<-wrote
				if how, why := c.End.Reason(); how != end.how || why != end.why {
					t.Error(how, why)
				}
			})
		}
	}
}

// giveUp has the kernel give a client up: it acknowledges nothing any more.
func giveUp(t *testing.T, client, accepted net.Conn) {
	raw, err := tcpOf(accepted).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 100) }) // milliseconds
	if err != nil {
		t.Fatal(err)
	}
	deafen(t, client)
	accepted.Write([]byte("+OK\r\n"))
}

func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
}

// A client that has closed has gone at once, although a write to it goes on: it may have closed only its sending half.
func TestTheEndOfTheStreamWaitsForNoWrite(t *testing.T) {
	t.Parallel()
	client, accepted := connected(t, "tcp")
	c := newTestConn(t, accepted)
	wrote := make(chan struct{})
	go func() { c.Write(make([]byte, 64<<20)); close(wrote) }()
	waitFor(t, func() bool { return c.Writer.waits(time.Now()) })
	client.(*net.TCPConn).CloseWrite()
	c.Read(make([]byte, 4096))
	if how, why := c.End.Reason(); how != Gone || why != "end of stream" {
		t.Error(how, why)
	}
	select {
	case <-wrote:
		t.Error("the write is over")
	default:
	}
	accepted.Close()
	<-wrote
}
