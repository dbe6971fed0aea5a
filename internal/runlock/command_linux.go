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

// signal sends a signal to the command, and to what it has started. The number of a command that has ended may be another process' by
// now, which Process knows; that of a group is nobody else's while somebody is in it.
func (c *command) signal(s syscall.Signal) {
	if c.group {
		_ = syscall.Kill(-c.cmd.Process.Pid, s) // all have ended
		return
	}
	_ = c.cmd.Process.Signal(s) // it has ended
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
