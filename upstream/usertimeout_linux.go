package upstream

import (
	"cmp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds how long sent bytes may stay unacknowledged. Keep-alive
// does not cover that time: it is off while bytes are under way.
func setUserTimeout(c syscall.RawConn, d time.Duration) error {
	var err error
	cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	return cmp.Or(cerr, err)
}
