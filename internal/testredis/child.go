package testredis

import (
	"os"
	"os/exec"
	"testing"
)

// Child is another program beside Redis that a test runs: it is killed with the
// test, and dies with the test binary.
type Child struct{ p *process }

// Launch starts cmd with its output going to a new file at logPath. It fails the
// test, and so belongs on its goroutine, when cmd cannot be started.
func Launch(t testing.TB, cmd *exec.Cmd, logPath string) *Child {
	t.Helper()
	NeedsProcesses(t)
	p, err := startProcess(cmd, logPath)
	if err != nil {
		t.Fatalf("testredis: starting %s: %v", cmd.Path, err)
	}
	t.Cleanup(p.kill)
	return &Child{p}
}

// Kill ends it with SIGKILL, frozen or not, and waits until it is gone.
func (c *Child) Kill() { c.p.kill() }

// Signal sends it a signal; os.ErrProcessDone says that it has ended.
func (c *Child) Signal(s os.Signal) error { return c.p.cmd.Process.Signal(s) }
