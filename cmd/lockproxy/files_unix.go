//go:build unix

package main

import (
	"math"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// reusePort lets other processes of the same user listen at the same address.
func reusePort(_, _ string, c syscall.RawConn) (err error) {
	if failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); failed != nil {
		return failed
	}
	return err
}

// listenPrivately opens a unix socket that nobody but this process' user may connect to, from its first moment.
func listenPrivately(path string) (net.Listener, error) {
	defer syscall.Umask(syscall.Umask(0o177))
	return net.Listen("unix", path)
}

// openFiles is how many files and connections this process may have open. Go has raised it to the hard limit.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}
