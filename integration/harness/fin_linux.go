package harness

import (
	"net"

	"golang.org/x/sys/unix"
)

// finWait1 is the state of a connection whose FIN has not been confirmed, as Linux counts them.
const finWait1 = 4

// finArrived says whether the other side's kernel has the FIN of a connection that was closed for writing.
func finArrived(c *net.TCPConn) (arrived bool) {
	arrived = true // also when there is nothing to ask any more
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			arrived = info.State != finWait1
		}
	})
	return arrived
}
