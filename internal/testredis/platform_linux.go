package testredis

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// dieWithParent has the kernel kill cmd when the test binary dies before its
// cleanup, as on a panic or the test timeout.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// standsStill says that no thread of the process runs, or that it has ended.
func standsStill(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // that thread has ended
		}
		// The state follows the name, which is in parentheses.
		if _, state, found := strings.Cut(string(text), ") "); found && !strings.ContainsAny(state[:1], "TtZX") {
			return false
		}
	}
	return true
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

// mount puts a file system with so little room at dir.
func mount(dir string, bytes int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", bytes))
}

func unmount(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) } // whoever has a file open keeps it until it is closed
