package runlock

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// lookAgain is how often a process group is asked after: nobody tells when one is empty.
const lookAgain = 10 * time.Millisecond

// command is the one that runs while the lock is held.
type command struct {
	cmd   *exec.Cmd
	group bool          // it has a process group of its own, which gets the signals
	done  chan struct{} // closed when it has ended
	code  int           // its exit code, once it has ended

	suspended chan os.Signal // it is to be stopped, and this process with it
}

// begin starts the command with this process' input and output.
func begin(file string, words, env []string) (*command, error) {
	c := &command{
		cmd:       &exec.Cmd{Path: file, Args: words, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr},
		done:      make(chan struct{}),
		suspended: make(chan os.Signal, 1),
	}
	c.cmd.SysProcAttr, c.group = attributes()
	for _, s := range suspends(c.group) {
		signal.Notify(c.suspended, s) // before the command runs: a signal that came in between would stop this process alone, or nothing
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.wait()
	return c, nil
}

// pass passes a signal on that this process got, unless the command got it as well, from the terminal.
func (c *command) pass(s os.Signal) {
	n, ok := s.(syscall.Signal)
	if !ok || !c.group && fromTerminal(n) {
		return
	}
	_ = c.signal(n) // it has ended, or runs as another user, as with kill(1)
	if ends(n) {
		c.goOn()
	}
}

// stop asks the command to end, or kills it. os.ErrPermission says that this process may not, because it runs as another user.
func (c *command) stop(kill bool) error {
	if kill {
		return c.signal(syscall.SIGKILL)
	}
	err := c.signal(syscall.SIGTERM)
	c.goOn()
	return err
}

// endGroup waits, when the command itself has ended, for what it has started and was asked to stop with it. What is left when kill comes
// is killed, with stop's error.
func (c *command) endGroup(kill <-chan time.Time, signals <-chan os.Signal) error {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for c.left() {
		select {
		case <-look.C:
		case s := <-signals:
			c.pass(s)
		case <-kill:
			return c.stop(true)
		}
	}
	return nil
}

// exitCode is what a shell would say of a process that has ended so.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignals + int(status.Signal())
	}
	return status.ExitStatus()
}

// ends says that a signal ends a process that does nothing about it.
func ends(s syscall.Signal) bool {
	return s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP || s == syscall.SIGQUIT
}
