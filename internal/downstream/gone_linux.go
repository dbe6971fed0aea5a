package downstream

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerHasGone says whether the kernel knows that the other side has closed the connection, or its sending half of it,
// or that the connection is broken: also when bytes from before that are still to be read.
func peerHasGone(c syscall.Conn) bool {
	return polled(c)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// endedBothWays says whether nothing can come from the other side, nor reach it. A client that has closed may still be
// written to.
func endedBothWays(c syscall.Conn) bool { return polled(c)&unix.POLLHUP != 0 }

// polled is what the kernel knows of the end of a connection. The kernel is asked before each grant to a waiter, and
// answers at once, so Go's scheduler does not hear of the call: see package socket.
func polled(c syscall.Conn) (events int16) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		asked := unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
		var atOnce unix.Timespec
		n, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&asked)), 1, uintptr(unsafe.Pointer(&atOnce)), 0, 0, 0)
		if errno == 0 && n == 1 {
			events = asked.Revents
		}
	})
	return events
}
