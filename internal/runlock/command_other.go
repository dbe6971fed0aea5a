//go:build !linux

package runlock

import (
	"os"
	"syscall"
)

// attributes: only Linux lets a command die with the process that has started it.
func attributes() (*syscall.SysProcAttr, bool) { return nil, false }

// signal sends a signal to the command.
func (c *command) signal(s syscall.Signal) error { return c.cmd.Process.Signal(s) }

// wait waits for the command.
func (c *command) wait() {
	defer close(c.done)
	_ = c.cmd.Wait() // the state says it
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		c.code = exitCode(status)
	}
}

// suspends are the signals at which the command stops by itself: it has no group of its own.
func suspends(bool) []os.Signal { return nil }

// suspend is not asked for here.
func (c *command) suspend() {}

// goOn is for a command that is stopped, which this process cannot know here.
func (c *command) goOn() {}

// left says that somebody is in the group of the command, which has none.
func (c *command) left() bool { return false }

// passedOn are the signals that the command gets instead of this process.
func passedOn() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} }

// fromTerminal are those that a terminal sends to everybody of the group.
func fromTerminal(s syscall.Signal) bool { return s == syscall.SIGINT }
