package downstream

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// unacknowledged says whether the peer has yet to acknowledge data, or to make room for it. If it has also failed to
// answer what was sent, silent is how long nothing has come from it.
func unacknowledged(c *net.TCPConn) (pending bool, silent time.Duration) {
	if c == nil {
		return false, 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false, 0
	}
	var info *unix.TCPInfo
	ask := func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }
	if raw.Control(ask) != nil || err != nil {
		return false, 0
	}
	return unanswered(info)
}

// answerTime is the time that a living client's kernel has to acknowledge data. After it, data without an
// acknowledgement counts as unanswered.
const answerTime = 2 * time.Second

// unanswered judges what the kernel says of a connection. A living client that does not read may be probed at intervals
// longer than lifeSign. So a long silence alone means nothing: it counts only if something that was sent since has had
// no answer.
func unanswered(info *unix.TCPInfo) (pending bool, silent time.Duration) {
	answer := time.Duration(info.Last_ack_recv) * time.Millisecond
	sent := time.Duration(info.Last_data_sent) * time.Millisecond
	pending = info.Unacked > 0 || info.Notsent_bytes > 0
	// A living client's single probe may be under way. A probe is not data.
	if sent > answerTime && answer > sent || info.Probes > 1 {
		silent = answer
	}
	return pending, silent
}
