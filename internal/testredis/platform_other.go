//go:build !linux

package testredis

import (
	"os/exec"
	"sync"
)

// dieWithParent does nothing here: only Linux has a parent-death signal.
func dieWithParent(*exec.Cmd) {}

var reserved sync.Map

// reserve claims port within this process.
func reserve(port int) bool {
	_, taken := reserved.LoadOrStore(port, true)
	return !taken
}
