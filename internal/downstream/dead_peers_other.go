//go:build !linux

package downstream

import (
	"net"
	"time"
)

// acknowledged knows nothing: only Linux tells. The kernel's own patience is what is left.
func acknowledged(*net.TCPConn) (owes bool, silent time.Duration) { return false, 0 }
