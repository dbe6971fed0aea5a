package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// attachedDrain is how long a process that is attached waits at its end for clients that hold locks.
const attachedDrain = time.Second

// printAddresses tells the program that has started this one where clients can connect.
func printAddresses(to io.Writer, listeners []listener) {
	for _, l := range listeners {
		fmt.Fprintln(to, l.Addr())
	}
}

// endWithInput has the process stop when its input ends, as a signal does, and end soon after, as a second one does.
func endWithInput(input io.Reader, ends chan<- os.Signal) {
	_, _ = io.Copy(io.Discard, input) // an input that cannot be read has ended, too
	ends <- syscall.SIGTERM
	time.AfterFunc(attachedDrain, func() { ends <- syscall.SIGTERM })
}
