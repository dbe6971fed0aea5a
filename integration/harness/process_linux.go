package harness

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill cmd when the thread that starts it ends: see child.live.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
