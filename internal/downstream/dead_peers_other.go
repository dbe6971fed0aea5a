//go:build !linux

package downstream

import (
	"net"
	"time"
)

// unacknowledged knows nothing, because only Linux tells. A dead client is then noticed when the kernel itself gives
// up.
func unacknowledged(*net.TCPConn) (pending bool, silent time.Duration) { return false, 0 }
