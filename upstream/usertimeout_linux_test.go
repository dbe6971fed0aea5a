package upstream

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/internal/socket"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestUserTimeoutIsSet(t *testing.T) {
	t.Parallel()
	conn, err := Dial(t.Context(), targetOf(t, testredis.Start(t)), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := socket.Plain(conn).(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if cerr := raw.Control(func(fd uintptr) {
		got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}); cerr != nil || err != nil || got != int(userTimeout.Milliseconds()) {
		t.Fatalf("got %d ms, %v, %v", got, cerr, err)
	}
}
