package testredis

import (
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// dieWithParent has the kernel kill cmd when the test binary dies before its
// cleanup, as on a panic or the test timeout.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

var reserved sync.Map // port -> net.Listener, kept from the garbage collector until the process ends

// reserve claims port among all test binaries of this machine, which `go test`
// runs side by side: a name in the abstract socket namespace can be bound once,
// leaves no file, and is free again when this process ends.
func reserve(port int) bool {
	ln, err := net.Listen("unix", "@lockproxy-test-port-"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	reserved.Store(port, ln)
	return true
}
