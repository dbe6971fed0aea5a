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
	return unanswered(info)
}

// answerTime is how long data may be on its way without an answer, at most, before it counts as sent again in vain.
const answerTime = 2 * time.Second

// unanswered is acknowledged by what the kernel says. A living peer without room may be asked at intervals longer than lifeSign: what
// counts is not how long ago it answered, but that it did not answer what was sent since.
func unanswered(info *unix.TCPInfo) (owes bool, silent time.Duration) {
	answer, sent := time.Duration(info.Last_ack_recv)*time.Millisecond, time.Duration(info.Last_data_sent)*time.Millisecond
	owes = info.Unacked > 0 || info.Notsent_bytes > 0
	if sent > answerTime && answer > sent || info.Probes > 1 { // a living one's single probe may be under way; a probe is not data
		silent = answer
	}
	return owes, silent
}
