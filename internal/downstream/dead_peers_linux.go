package downstream

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// acknowledged says whether the peer owes an acknowledgement, or room, and if it has failed to answer when asked for it,
// how long nothing has come from it.
func acknowledged(c *net.TCPConn) (owes bool, silent time.Duration) {
	if c == nil {
		return false, 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false, 0
	}
	var info *unix.TCPInfo
	if raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }) != nil || err != nil {
		return false, 0
	}
	owes = info.Unacked > 0 || info.Notsent_bytes > 0
	if info.Retransmits > 0 || info.Probes > 1 { // a living one's single probe may be under way
		silent = time.Duration(info.Last_ack_recv) * time.Millisecond
	}
	return owes, silent
}
