package runlock

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes let the command die with this process, and give it a process group of its own, so that all that it starts is stopped
// with it. At a terminal it stays in this one's group: in another it could not read what is typed.
func attributes() (*syscall.SysProcAttr, bool) {
	group := !atTerminal()
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}, group
}

// atTerminal says that this process is in the foreground of its terminal. What its standard input is says nothing of that: in a pipeline,
// too, the command may ask at the terminal for a password, and is to stop at Ctrl-Z.
func atTerminal() bool {
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false // it has none
	}
	defer terminal.Close()
	foreground, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// suspends are the signals at which a process stops until it is told to go on. A command with a group of its own does not get them
// from the terminal.
func suspends(group bool) []os.Signal {
	if group {
		return []os.Signal{syscall.SIGTSTP}
	}
	return nil
}

// suspend stops the command and all that it has started, and then this process. It returns when this process goes on. The SIGCONT
// that it went on at is passed on.
func (c *command) suspend() {
	_ = c.signal(syscall.SIGSTOP)                       // it has ended, or goes on as another user
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // one may always stop oneself
}

// wait waits for the command, and asks for the exit codes of all children until there are none: to the first process of a container
// come those whom the command has left behind.
func (c *command) wait() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return // there are none
		case pid == c.cmd.Process.Pid:
			c.code = exitCode(status)
			close(c.done)
		}
	}
}

// goOn continues a command that is stopped, which would not hear of a signal otherwise.
func (c *command) goOn() { _ = c.signal(syscall.SIGCONT) }

// signal sends a signal to the command, and to what it has started. The number of a command that has ended may be another process' by
// now; that of a group is nobody else's while somebody is in it. The error says that all have ended, or that none
// may be sent a signal.
func (c *command) signal(s syscall.Signal) error {
	if c.group {
		return syscall.Kill(-c.cmd.Process.Pid, s)
	}
	select {
	case <-c.done:
		return os.ErrProcessDone
	default:
		return c.cmd.Process.Signal(s)
	}
}

// left says that somebody is in the group of the command.
func (c *command) left() bool { return c.group && syscall.Kill(-c.cmd.Process.Pid, 0) != syscall.ESRCH }

// passedOn are the signals that the command gets instead of this process.
func passedOn() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT}
}

// fromTerminal are those that a terminal sends to everybody of the group.
func fromTerminal(s syscall.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGWINCH
}
