package downstream

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// peerHasGone says whether the kernel knows that the other side has closed the connection, or its sending half of it, or that the
// connection is broken: also when bytes from before that are still to be read.
func peerHasGone(c syscall.Conn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	_ = raw.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(polled, 0)
		gone = err == nil && n == 1 && polled[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone
}
