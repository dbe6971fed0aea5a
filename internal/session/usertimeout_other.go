//go:build !linux

package session

import (
	"net"
	"time"
)

// setUserTimeout does nothing: only Linux knows TCP_USER_TIMEOUT. The write deadline is what is left.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
