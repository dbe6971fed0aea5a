package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// settingIn is what a call of c sets; the zero one: nothing, or Redis would not take it.
func settingIn(c *commandtable.Command, args [][]byte) dedicated.Setting {
	switch {
	case c.Name == "client|setname" && len(args) == 3 && commands.ValidName(args[2]):
		return dedicated.Setting{Of: dedicated.SettingName, Value: string(args[2])}
	case c.Name == "client|setinfo" && len(args) == 4 && commands.ValidName(args[3]):
		switch {
		case equalFold(args[2], "lib-name"):
			return dedicated.Setting{Of: dedicated.SettingLibrary, Value: string(args[3])}
		case equalFold(args[2], "lib-ver"):
			return dedicated.Setting{Of: dedicated.SettingVersion, Value: string(args[3])}
		}
	case c.Name == "client|no-evict" && len(args) == 3 && isSwitch(args[2]):
		return dedicated.Setting{Of: dedicated.SettingNoEvict, Value: strings.ToUpper(string(args[2]))}
	case c.Name == "client|no-touch" && len(args) == 3 && isSwitch(args[2]):
		return dedicated.Setting{Of: dedicated.SettingNoTouch, Value: strings.ToUpper(string(args[2]))}
	case c.Name == "client|capa" && len(args) > 2 && hasLossPush(args[2:]):
		return dedicated.Setting{Of: dedicated.SettingLossPush, Value: "ON"}
	}
	return dedicated.Setting{}
}

func isSwitch(arg []byte) bool { return equalFold(arg, "ON") || equalFold(arg, "OFF") }

// take notes a setting. Any goroutine may call it, while the session's own reads none of what it sets.
func (s *Session) take(t dedicated.Setting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch on := t.Value == "ON"; t.Of {
	case dedicated.SettingName:
		s.settings.name = t.Value
	case dedicated.SettingLibrary:
		s.settings.lib[0] = t.Value
		if l := s.locks.engine.Load(); l != nil {
			l.SetLibrary(t.Value != "")
		}
	case dedicated.SettingVersion:
		s.settings.lib[1] = t.Value
	case dedicated.SettingNoEvict:
		s.settings.noEvict = on
	case dedicated.SettingNoTouch:
		s.settings.noTouch = on
	case dedicated.SettingLossPush:
		s.settings.wantsLossPush = on
	}
}

// queuedAs is what Redis gets of a command that is answered here, to be queued in a transaction. A setting that this Redis
// does not know of is replaced by one that it answers OK as well, and that changes nothing.
func (s *Session) queuedAs(c *commandtable.Command, raw []byte, e dedicated.Effect) []byte {
	if e.Setting.Of == dedicated.NoSetting || e.Setting.Of == dedicated.SettingName || c.Spec != nil || !s.srv.facts.table.Load().Learned() {
		return raw
	}
	return resp.AppendCommand(nil, "CLIENT", "SETNAME", s.clientName())
}

// clientReply is CLIENT REPLY ON|OFF|SKIP. It is this proxy that keeps the replies back: Redis gives them all.
func (s *Session) clientReply(args [][]byte) {
	switch strings.ToUpper(string(args[2])) {
	case "ON":
		s.flush()
		s.replies.silent, s.replies.off = false, false
		s.ok()
	case "OFF":
		s.flush()
		s.replies.silent, s.replies.off = true, true
	case "SKIP":
		s.replies.skip = !s.replies.off
	default:
		s.error(commands.SyntaxError)
	}
}

// quietly has the command behind CLIENT REPLY SKIP run.
func (s *Session) quietly(run func()) {
	s.forward()
	s.flush()
	s.replies.silent, s.replies.skip = true, false
	run()
	s.forward()
	if s.own.dedicated != nil {
		s.own.dedicated.Flush()
	}
	s.flush()
	if s.replies.silent { // the command may have been CLIENT REPLY ON
		s.replies.silent = s.replies.off
	}
}

// resetReplyMode is RESET's part of it. Behind SKIP, its own reply stays unwanted.
func (s *Session) resetReplyMode() {
	s.flush()
	s.replies.silent = s.replies.silent && !s.replies.off
	s.replies.off, s.replies.skip = false, false
}
