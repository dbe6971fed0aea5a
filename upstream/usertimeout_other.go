//go:build !linux

package upstream

import (
	"syscall"
	"time"
)

// setUserTimeout does nothing: TCP_USER_TIMEOUT is Linux' alone.
func setUserTimeout(syscall.RawConn, time.Duration) error { return nil }
