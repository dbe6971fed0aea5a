//go:build !unix

package main

import (
	"errors"
	"math"
	"net"
	"syscall"
)

// reusePort is what this system does not have.
func reusePort(_, _ string, _ syscall.RawConn) error {
	return errors.New("reuse-port: not on this system")
}

// listenPrivately is what this system does not have.
func listenPrivately(string) (net.Listener, error) { return nil, errors.New("not on this system") }

// openFiles is how many files and connections this process may have open.
func openFiles() int { return math.MaxInt32 }
