package harness

import (
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Child is a process that is killed with the test, and dies with the test binary.
type Child struct {
	Cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
}

// StartChild starts cmd; its cleanup kills it.
func StartChild(t testing.TB, cmd *exec.Cmd) *Child {
	t.Helper()
	testredis.NeedsProcesses(t)
	c := &Child{Cmd: cmd, done: make(chan struct{})}
	dieWithParent(cmd)
	started := make(chan error)
	go c.live(started)
	if err := <-started; err != nil {
		t.Fatalf("starting %s: %v", cmd.Path, err)
	}
	t.Cleanup(c.Kill)
	return c
}

// live keeps its OS thread for as long as the child lives: the parent-death signal fires when the thread that forked ends.
func (c *Child) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.Cmd.Start()
	started <- err
	if err == nil {
		_ = c.Cmd.Wait() // whoever cares looks at the exit code
		close(c.done)
	}
}

func (c *Child) Kill() {
	_ = c.Cmd.Process.Kill() // fails only when it has ended already
	<-c.done
}

// Exit waits for the end and returns the exit code, -1 after a signal.
func (c *Child) Exit(t testing.TB) int {
	t.Helper()
	select {
	case <-c.done:
		return c.Cmd.ProcessState.ExitCode()
	case <-time.After(Patience):
		t.Fatalf("%s does not end", c.Cmd.Path)
		return -1
	}
}
