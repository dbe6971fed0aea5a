//go:build !linux

package socket

import "syscall"

// nothingCame says that a read would wait.
func nothingCame(fd uintptr) bool {
	_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN
}
