package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// setting is something a client says of itself that is kept here: at once, or, when it is said within a transaction, as soon
// as EXEC's reply shows that Redis has taken it.
type setting struct {
	of    settingOf
	value string
}

type settingOf uint8

const (
	noSetting settingOf = iota
	settingName
	settingLibrary
	settingVersion
	settingNoEvict
	settingNoTouch
	settingLossPush
)

// settingIn is what a call of c sets; the zero setting: nothing, or Redis would not take it.
func settingIn(c *commandtable.Command, args [][]byte) setting {
	switch {
	case c.Name == "client|setname" && len(args) == 3 && validName(args[2]):
		return setting{settingName, string(args[2])}
	case c.Name == "client|setinfo" && len(args) == 4 && validName(args[3]):
		switch {
		case equalFold(args[2], "lib-name"):
			return setting{settingLibrary, string(args[3])}
		case equalFold(args[2], "lib-ver"):
			return setting{settingVersion, string(args[3])}
		}
	case c.Name == "client|no-evict" && len(args) == 3 && isSwitch(args[2]):
		return setting{settingNoEvict, strings.ToUpper(string(args[2]))}
	case c.Name == "client|no-touch" && len(args) == 3 && isSwitch(args[2]):
		return setting{settingNoTouch, strings.ToUpper(string(args[2]))}
	case c.Name == "client|capa" && len(args) > 2 && hasLossPush(args[2:]):
		return setting{settingLossPush, "ON"}
	}
	return setting{}
}

func isSwitch(arg []byte) bool { return equalFold(arg, "ON") || equalFold(arg, "OFF") }

// take notes a setting. Any goroutine may call it, while the session's own reads none of what it sets.
func (s *Session) take(t setting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch on := t.value == "ON"; t.of {
	case settingName:
		s.name = t.value
	case settingLibrary:
		s.lib[0] = t.value
		if l := s.engine.Load(); l != nil {
			l.SetLibrary(t.value != "")
		}
	case settingVersion:
		s.lib[1] = t.value
	case settingNoEvict:
		s.noEvict = on
	case settingNoTouch:
		s.noTouch = on
	case settingLossPush:
		s.wantsLossPush = on
	}
}

// queuedAs is what Redis gets of a command that is answered here, to be queued in a transaction. A setting that this Redis
// does not know of is replaced by one that it answers OK as well, and that changes nothing.
func (s *Session) queuedAs(c *commandtable.Command, raw []byte, e effect) []byte {
	if e.setting.of == noSetting || e.setting.of == settingName || c.Spec != nil || !s.srv.table.Load().Learned() {
		return raw
	}
	return resp.AppendCommand(nil, "CLIENT", "SETNAME", s.clientName())
}
