package session

import (
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// Rename implements commands.Settings.
func (s *Session) Rename(name string) {
	s.client.Set(client.Setting{Of: client.SettingName, Value: name})
	s.own.Rename(name)
}

// SetReplyMode implements commands.Settings.
func (s *Session) SetReplyMode(m commands.ReplyMode) {
	switch m {
	case commands.RepliesOn:
		s.client.Flush()
		s.client.Replies.Silent, s.client.Replies.Off = false, false
	case commands.RepliesOff:
		s.client.Flush()
		s.client.Replies.Silent, s.client.Replies.Off = true, true
	case commands.RepliesSkip:
		s.client.Replies.Skip = !s.client.Replies.Off
	}
}

// runWithoutReply runs the command after CLIENT REPLY SKIP, and drops its reply.
func (s *Session) runWithoutReply(run func()) {
	s.pipes.Send()
	s.client.Flush()
	s.client.Replies.Silent, s.client.Replies.Skip = true, false
	run()
	s.writeAll()
	if s.client.Replies.Silent { // the command may have been CLIENT REPLY ON
		s.client.Replies.Silent = s.client.Replies.Off
	}
}

// resetReplyMode makes replies wanted again, for RESET. The reply to RESET itself stays unwanted if SKIP came before it.
func (s *Session) resetReplyMode() {
	s.client.Flush()
	s.client.Replies.Silent = s.client.Replies.Silent && !s.client.Replies.Off
	s.client.Replies.Off, s.client.Replies.Skip = false, false
}

// PauseWrites implements commands.Neighbours.
func (s *Session) PauseWrites(d time.Duration) { s.srv.process.Writes.Pause(d) }

// ResumeWrites implements commands.Neighbours.
func (s *Session) ResumeWrites() { s.srv.process.Writes.Resume() }

// Greeted implements commands.Settings: what RESP3 has is pushed from now on.
func (s *Session) Greeted() {
	s.client.Flush()
	s.own.Greeted()
	s.client.Greeted()
}

// A client that was refused SCRIPT DEBUG may send its script all the same, as redis-cli --ldb does. The debugger would have
// run it in a fork of Redis, whose changes are thrown away: here it must not be run at all.

const notDebugged = "ERR SCRIPT DEBUG is not supported by lockproxy: this script was not run"

// notDebuggedRow replaces the row of a command that runs a script.
var notDebuggedRow = &commandtable.Command{Name: "eval", Refusal: true, Barred: true, Here: true, Line: notDebugged}

// Debugs implements commands.Settings.
func (s *Session) Debugs(on bool) { s.debugs = on }

// undebugged refuses a script. Functions have no debugger: Redis runs them for real, too.
func (s *Session) undebugged(c *call) {
	if s.debugs && c.row != nil && (c.row.Script == commandtable.RunsBody || c.row.Script == commandtable.RunsSHA) {
		c.refuse(notDebuggedRow, func(s *Session, _ [][]byte) { s.client.Error(notDebugged) })
	}
}
