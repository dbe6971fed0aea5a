package runlock

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes let the command die with this process, and give it a process group of its own, so that all that it starts is stopped
// with it. At a terminal it stays in this one's group: in another it could not read what is typed.
func attributes() (*syscall.SysProcAttr, bool) {
	foreground, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	group := err != nil || foreground != unix.Getpgrp()
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}, group
}

// signal sends a signal to the command, and to what it has started.
func (c *command) signal(s syscall.Signal) {
	pid := c.cmd.Process.Pid
	if c.group {
		pid = -pid
	}
	_ = syscall.Kill(pid, s) // it has ended
}

// passedOn are the signals that the command gets instead of this process.
func passedOn() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT}
}

// fromTerminal are those that a terminal sends to everybody of the group.
func fromTerminal(s syscall.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGWINCH
}
