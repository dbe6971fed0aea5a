package downstream

import (
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// connected is both ends of a connection over tcp or unix.
func connected(t *testing.T, network string) (client, accepted net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if accepted, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return client, accepted
}

// A client's end is known before it is read, whatever it sent before, and however it went.
func TestHungUp(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells without a read")
	}
	for _, network := range []string{"tcp", "unix"} {
		for name, leave := range map[string]func(net.Conn){
			"closed":      func(c net.Conn) { c.Close() },
			"half closed": func(c net.Conn) { c.(interface{ CloseWrite() error }).CloseWrite() },
			"reset": func(c net.Conn) {
				if tcp, ok := c.(*net.TCPConn); ok {
					tcp.SetLinger(0)
				}
				c.Close()
			},
		} {
			t.Run(network+"/"+name, func(t *testing.T) {
				client, accepted := connected(t, network)
				e := End{of: &stream{Conn: accepted}}
				client.Write([]byte("PING\r\n"))
				if e.ClientGone() {
					t.Error("it is there")
				}
				leave(client)
				for end := time.Now().Add(10 * time.Second); !e.ClientGone(); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("it has gone")
					}
				}
			})
		}
	}
}
