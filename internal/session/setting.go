package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// Rename implements commands.Session.
func (s *Session) Rename(name string) {
	s.client.Set(client.Setting{Of: client.SettingName, Value: name})
	s.own.Rename(name)
}

// Greeted implements commands.Session: what RESP3 has is pushed from now on.
func (s *Session) Greeted() {
	s.client.Flush()
	s.client.Greeted()
}

// A client that was refused SCRIPT DEBUG may send its script all the same, as redis-cli --ldb does. The debugger would
// have run it in a fork of Redis, whose changes are thrown away: here it must not be run at all.

const notDebugged = "ERR SCRIPT DEBUG is not supported by lockproxy: this script was not run"

// notDebuggedRow replaces the row of a command that runs a script.
var notDebuggedRow = &commandtable.Command{Name: "eval", Refusal: true, Barred: true, Here: true, Line: notDebugged}

// undebugged refuses a script. Functions have no debugger: Redis runs them for real, too.
func (s *Session) undebugged(c *call) {
	if c.row != nil && s.client.Debugs && strings.HasPrefix(c.row.Name, "eval") {
		c.refuse(notDebuggedRow, func(s *Session, _ [][]byte) { s.client.Error(notDebugged) })
	}
}
