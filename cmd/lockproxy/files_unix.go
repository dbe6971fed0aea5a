//go:build unix

package main

import (
	"math"
	"syscall"
)

// openFiles is how many files and connections this process may have open. Go has raised it to the hard limit.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}
