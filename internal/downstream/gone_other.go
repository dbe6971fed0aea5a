//go:build !linux

package downstream

import "syscall"

// peerHasGone knows nothing: only Linux tells without a read. A client that waits is watched, which notices its end a
// moment later.
func peerHasGone(syscall.Conn) bool { return false }

// endedBothWays knows nothing, either. A client that the kernel has given up may then count as gone.
func endedBothWays(syscall.Conn) bool { return false }
