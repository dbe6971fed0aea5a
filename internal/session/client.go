package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/proto/resp"
)

func (s *Session) clientID([][]byte) { s.batch.out = resp.AppendInt(s.batch.out, s.id) }

func (s *Session) clientSetName(args [][]byte) {
	if !validName(args[2]) {
		s.error(badName)
		return
	}
	s.rename(string(args[2]))
	s.ok()
}

func (s *Session) clientGetName([][]byte) {
	if s.name == "" {
		s.batch.out = resp.AppendNull(s.batch.out, s.ident.Proto)
		return
	}
	s.batch.out = resp.AppendBulkString(s.batch.out, s.name)
}

// clientSetInfo is CLIENT SETINFO lib-name|lib-ver value, as of Redis 7.2. A library's name is what tells the lock
// engine that the connection may come out of a pool.
func (s *Session) clientSetInfo(args [][]byte) {
	option := strings.ToLower(string(args[2]))
	which := 0
	switch option {
	case "lib-name":
	case "lib-ver":
		which = 1
	default:
		s.error("ERR Unrecognized option '" + clip(args[2]) + "'")
		return
	}
	if !validName(args[3]) {
		s.error("ERR " + option + " cannot contain spaces, newlines or special characters.")
		return
	}
	s.mu.Lock()
	s.lib[which] = string(args[3])
	s.mu.Unlock()
	if l := s.engine.Load(); l != nil && which == 0 {
		l.SetLibrary(s.lib[0] != "")
	}
	s.ok()
}

func (s *Session) clientNoEvict(args [][]byte) { s.setSwitch(&s.noEvict, args[2]) }

func (s *Session) clientNoTouch(args [][]byte) { s.setSwitch(&s.noTouch, args[2]) }

// setSwitch takes ON or OFF. What it switches is Redis' business with its own clients and only shown here.
func (s *Session) setSwitch(to *bool, arg []byte) {
	on := strings.EqualFold(string(arg), "ON")
	if !on && !strings.EqualFold(string(arg), "OFF") {
		s.error(syntaxError)
		return
	}
	s.mu.Lock()
	*to = on
	s.mu.Unlock()
	s.ok()
}

func (s *Session) clientInfo([][]byte) {
	s.batch.out = resp.AppendVerbatim(s.batch.out, s.ident.Proto, "txt", s.describe()+"\n")
}

// clientList is CLIENT LIST [TYPE type | ID id …]: this proxy's clients.
func (s *Session) clientList(args [][]byte) {
	chosen := func(*Session) bool { return true }
	all := s.srv.snapshot()
	switch {
	case len(args) == 4 && strings.EqualFold(string(args[2]), "TYPE"):
		kind, known := clientType(args[3])
		if !known {
			s.error(unknownType(args[3]))
			return
		}
		chosen = func(c *Session) bool { return c.kind() == kind }
	case len(args) > 3 && strings.EqualFold(string(args[2]), "ID"):
		byID := make(map[int64]*Session, len(all))
		for _, c := range all {
			byID[c.id] = c
		}
		all = nil
		for _, arg := range args[3:] {
			id, ok := integer(arg)
			if !ok {
				s.error("ERR Invalid client ID")
				return
			}
			if c := byID[id]; c != nil {
				all = append(all, c)
			}
		}
	case len(args) != 2:
		s.error(syntaxError)
		return
	}
	if line := s.objection("CLIENT", "LIST", "TYPE", "pubsub"); line != "" {
		s.error(line)
		return
	}
	var text strings.Builder
	for _, c := range all {
		if chosen(c) {
			text.WriteString(c.describe())
			text.WriteByte('\n')
		}
	}
	s.batch.out = resp.AppendVerbatim(s.batch.out, s.ident.Proto, "txt", text.String())
}

// kind is the client's TYPE: here are normal ones and subscribers.
func (s *Session) kind() string {
	if s.view.subscribed() {
		return "pubsub"
	}
	return "normal"
}

// clientType reads a TYPE.
func clientType(arg []byte) (kind string, known bool) {
	switch kind = strings.ToLower(string(arg)); kind {
	case "normal", "master", "replica", "pubsub":
		return kind, true
	case "slave":
		return "replica", true
	}
	return "", false
}

func unknownType(arg []byte) string { return "ERR Unknown client type '" + clip(arg) + "'" }

// objection runs a command that would show this user's rights and changes nothing, and returns what Redis has
// against the user; any other answer, as of a server that lacks the command, is none.
func (s *Session) objection(probe ...string) (line string) {
	answer, err := s.ask(probe...)
	if err != nil {
		return errorLine(err)
	}
	line, bad := isError(answer)
	for _, about := range []string{"NOPERM", "NOAUTH", "ERR No such user"} {
		if bad && strings.HasPrefix(line, about) {
			return line
		}
	}
	return ""
}

var clientHelpLines = []string{
	"CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
	"CAPA <capability> [<capability> ...]", "    Say what this client can take: lock-lost, the push of a lost lock.",
	"GETNAME", "    Return the name of the current connection.",
	"ID", "    Return the ID of the current connection.",
	"INFO", "    Return information about the current client connection.",
	"KILL <ip:port>", "    Kill connection made from <ip:port>.",
	"KILL <option> <value> [<option> <value> [...]]", "    Kill connections. Options are:",
	"    * ADDR (<ip:port>|<unixsocket>:0)", "      Kill connections made from the specified address",
	"    * LADDR (<ip:port>|<unixsocket>:0)", "      Kill connections made to specified local address",
	"    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)", "      Kill connections by type.",
	"    * USER <username>", "      Kill connections authenticated by <username>.",
	"    * SKIPME (YES|NO)", "      Skip killing current connection (default: yes).",
	"LIST [options ...]", "    Return information about client connections. Options:",
	"    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)", "      Return clients of specified type.",
	"SETINFO <option> <value>", "    Name the client library. Options are:",
	"    * LIB-NAME: its name", "    * LIB-VER: its version",
	"SETNAME <name>", "    Assign the name <name> to the current connection.",
	"NO-EVICT (ON|OFF)", "    Protect current client connection from eviction.",
	"NO-TOUCH (ON|OFF)", "    Will not touch LRU/LFU stats when this mode is on.",
	"HELP", "    Prints this help.",
}

func (s *Session) clientHelp([][]byte) {
	out := resp.AppendArray(s.batch.out, len(clientHelpLines))
	for _, line := range clientHelpLines {
		out = resp.AppendSimple(out, line)
	}
	s.batch.out = out
}
