package downstream

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// peerHasGone says whether the kernel knows that the other side has closed the connection, or its sending half of it, or that the
// connection is broken: also when bytes from before that are still to be read.
func peerHasGone(c syscall.Conn) bool {
	return polled(c)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// endedBothWays says whether nothing can come from the other side, nor reach it. A client that has closed may still be written to.
func endedBothWays(c syscall.Conn) bool { return polled(c)&unix.POLLHUP != 0 }

// polled is what the kernel knows of the end of a connection.
func polled(c syscall.Conn) (events int16) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(asked, 0); err == nil && n == 1 {
			events = asked[0].Revents
		}
	})
	return events
}
