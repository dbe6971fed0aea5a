//go:build !linux

package testredis

import (
	"errors"
	"os/exec"
	"sync"
	"time"
)

// dieWithParent does nothing here: only Linux has a parent-death signal.
func dieWithParent(*exec.Cmd) {}

// standsStill is not known here: it gives the threads of the process a moment.
func standsStill(int) bool {
	<-time.After(100 * time.Millisecond)
	return true
}

var reserved sync.Map

// reserve claims port within this process.
func reserve(port int) bool {
	_, taken := reserved.LoadOrStore(port, true)
	return !taken
}

func mount(string, int) error { return errors.New("small file systems are made on Linux only") }

func unmount(string) {}
