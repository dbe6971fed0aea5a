package testredis

import (
	"os"
	"os/exec"
	"runtime"
)

// process is a child that dies with the test binary.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
	err    error         // why it ended; written before exited is closed
}

// startProcess starts cmd with its output going to a new file at logPath.
func startProcess(cmd *exec.Cmd, logPath string) (*process, error) {
	out, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, out
	dieWithParent(cmd)
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go p.live(out, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// live starts the process and waits for its end, all on one OS thread: the
// kernel's parent-death signal fires when the thread that forked ends, not when
// the whole parent does, so that thread must outlive the child.
func (p *process) live(out *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer out.Close()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.exited)
}

// kill ends the process, frozen or not, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only for a process that has ended already
	<-p.exited
}
