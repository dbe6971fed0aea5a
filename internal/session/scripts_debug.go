package session

import "github.com/lockproxy/lockproxy/internal/commandtable"

// A client that was refused SCRIPT DEBUG may send its script all the same, as redis-cli --ldb does. In the debugger it would
// have been run on a fork of Redis, and thrown away: here it must not be run at all.

const notDebugged = "ERR SCRIPT DEBUG is not supported by lockproxy: this script was not run"

// notDebuggedRow stands for a script's command then.
var notDebuggedRow = &commandtable.Command{Name: "eval", Refusal: true, Barred: true, Here: true, Line: notDebugged}

// refuseDebug is SCRIPT DEBUG YES|SYNC|NO.
func (s *Session) refuseDebug(line string, args [][]byte) {
	if len(args) == 3 {
		s.settings.debugs = equalFold(args[2], "YES") || equalFold(args[2], "SYNC") || s.settings.debugs && !equalFold(args[2], "NO")
	}
	s.error(line)
}

// undebugged is c, or in place of a script what refuses it. Functions have no debugger: Redis runs them for real, too.
func (s *Session) undebugged(c *commandtable.Command, run answer) (*commandtable.Command, answer) {
	switch c.Script {
	case commandtable.RunsBody, commandtable.RunsSHA:
		return notDebuggedRow, func(s *Session, _ [][]byte) { s.error(notDebugged) }
	}
	return c, run
}
