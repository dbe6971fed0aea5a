package testredis

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Child is a process that a test runs: it is killed with the test, and dies with
// the test binary.
type Child struct {
	Cmd    *exec.Cmd
	exited chan struct{} // closed when it is gone, and was waited for
}

// StartChild starts cmd. It fails the test, and so belongs on its goroutine, when
// cmd cannot be started.
func StartChild(t testing.TB, cmd *exec.Cmd) *Child {
	t.Helper()
	NeedsProcesses(t)
	c, err := startChild(cmd)
	if err != nil {
		t.Fatalf("testredis: starting %s: %v", cmd.Path, err)
	}
	t.Cleanup(c.Kill)
	return c
}

// Launch is StartChild with the output going to a new file at logPath.
func Launch(t testing.TB, cmd *exec.Cmd, logPath string) *Child {
	t.Helper()
	out, err := os.Create(logPath)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	return StartChild(t, cmd)
}

func startChild(cmd *exec.Cmd) (*Child, error) {
	dieWithParent(cmd)
	c := &Child{Cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go c.live(started)
	return c, <-started
}

// live starts the process and waits for its end, all on one OS thread: the
// kernel's parent-death signal fires when the thread that forked ends, not when
// the whole parent does, so that thread must outlive the child.
func (c *Child) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.Cmd.Start()
	started <- err
	if err == nil {
		_ = c.Cmd.Wait() // whoever cares looks at the exit code
		close(c.exited)
	}
}

// Exited is closed when the process is gone.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Kill ends it with SIGKILL, frozen or not, and waits until it is gone.
func (c *Child) Kill() {
	_ = c.Cmd.Process.Kill() // fails only when it has ended already
	<-c.exited
}

// Signal sends it a signal; os.ErrProcessDone says that it has ended. After SIGSTOP it stands still: one thread of it takes the
// signal and stops the others, which on a busy machine run on until that one gets a processor.
func (c *Child) Signal(s os.Signal) error {
	if err := c.Cmd.Process.Signal(s); err != nil || s != syscall.SIGSTOP {
		return err
	}
	for end := time.Now().Add(readyTimeout); !standsStill(c.Cmd.Process.Pid); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("it runs on after SIGSTOP")
		}
	}
	return nil
}

// Exit waits for the end and returns the exit code, -1 after a signal.
func (c *Child) Exit(t testing.TB) int {
	t.Helper()
	select {
	case <-c.exited:
		return c.Cmd.ProcessState.ExitCode()
	case <-time.After(readyTimeout):
		t.Fatalf("%s does not end", c.Cmd.Path)
		return -1
	}
}
