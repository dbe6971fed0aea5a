package downstream

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deafen has a socket's kernel throw away all that comes for it, and answer nothing, until hear is called.
func deafen(t *testing.T, c net.Conn) (hear func()) {
	t.Helper()
	raw, err := tcpOf(c).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	none := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none[0]})
	})
	if cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return func() {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
	}
}

// A client that is alive stays, although its probes are lost for most of the time after which a silent one is given up.
func TestLostProbesEndNoClient(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	l := newListener(ln, newTestGate(t, GateOptions{}), Entry{})
	var all sync.WaitGroup
	for range 16 { // each with a first probe of its own
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		e, err := l.nextEntrant()
		if err != nil {
			t.Fatal(err)
		}
		defer e.conn.Close()
		began := time.Now()
		time.AfterFunc(9300*time.Millisecond, deafen(t, client)) // of 11 s
		all.Go(func() {
			e.conn.SetReadDeadline(began.Add(lifeSign + 2*time.Second))
			if _, err := e.conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("given up after %v: %v", time.Since(began), err)
			}
		})
	}
	all.Wait()
}
