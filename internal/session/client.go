package session

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

func (s *Session) clientID([][]byte) { s.batch.out = resp.AppendInt(s.batch.out, s.peer.id) }

func (s *Session) clientSetName(args [][]byte) {
	if !commands.ValidName(args[2]) {
		s.error(commands.BadName)
		return
	}
	s.rename(string(args[2]))
	s.ok()
}

func (s *Session) clientGetName([][]byte) {
	if s.settings.name == "" {
		s.batch.out = resp.AppendNull(s.batch.out, s.ident.Proto)
		return
	}
	s.batch.out = resp.AppendBulkString(s.batch.out, s.settings.name)
}

// clientSetInfo is CLIENT SETINFO lib-name|lib-ver value, as of Redis 7.2. A library's name is what tells the lock
// engine that the connection may come out of a pool.
func (s *Session) clientSetInfo(args [][]byte) {
	option := strings.ToLower(string(args[2]))
	of := dedicated.SettingLibrary
	switch option {
	case "lib-name":
	case "lib-ver":
		of = dedicated.SettingVersion
	default:
		s.error("ERR Unrecognized option '" + commands.Clip(args[2]) + "'")
		return
	}
	if !commands.ValidName(args[3]) {
		s.error("ERR " + option + " cannot contain spaces, newlines or special characters.")
		return
	}
	s.take(dedicated.Setting{Of: of, Value: string(args[3])})
	s.ok()
}

func (s *Session) clientNoEvict(args [][]byte) { s.setSwitch(dedicated.SettingNoEvict, args[2]) }

func (s *Session) clientNoTouch(args [][]byte) { s.setSwitch(dedicated.SettingNoTouch, args[2]) }

// setSwitch takes ON or OFF. What it switches is Redis' business with its own clients and only shown here.
func (s *Session) setSwitch(of dedicated.SettingOf, arg []byte) {
	if !isSwitch(arg) {
		s.error(commands.SyntaxError)
		return
	}
	s.take(dedicated.Setting{Of: of, Value: strings.ToUpper(string(arg))})
	s.ok()
}

func (s *Session) clientInfo(args [][]byte) {
	if s.srv.facts.fields.Load() == nil {
		if answer, err := s.ask("CLIENT", "INFO"); err == nil {
			s.srv.learnFields(answer)
		}
	}
	s.batch.out = resp.AppendVerbatim(s.batch.out, s.ident.Proto, "txt", s.describe(args)+"\n")
}

// clientList is CLIENT LIST [TYPE type | ID id …]: this proxy's clients.
func (s *Session) clientList(args [][]byte) {
	chosen := func(*Session) bool { return true }
	all := s.srv.snapshot()
	switch {
	case len(args) == 4 && strings.EqualFold(string(args[2]), "TYPE"):
		kind, known := commands.ClientType(args[3])
		if !known {
			s.error(commands.UnknownType(args[3]))
			return
		}
		chosen = func(c *Session) bool { return c.kind() == kind }
	case len(args) > 3 && strings.EqualFold(string(args[2]), "ID"):
		byID := make(map[int64]*Session, len(all))
		for _, c := range all {
			byID[c.peer.id] = c
		}
		all = nil
		for _, arg := range args[3:] {
			id, ok := commands.Integer(arg)
			if !ok {
				s.error("ERR Invalid client ID")
				return
			}
			if c := byID[id]; c != nil {
				all = append(all, c)
			}
		}
	case len(args) != 2:
		s.error(commands.SyntaxError)
		return
	}
	if line := s.objectionToList(); line != "" {
		s.error(line)
		return
	}
	var text strings.Builder
	for _, c := range all {
		if !chosen(c) {
			continue
		}
		var asking [][]byte
		if c == s {
			asking = args
		}
		text.WriteString(c.describe(asking))
		text.WriteByte('\n')
	}
	s.batch.out = resp.AppendVerbatim(s.batch.out, s.ident.Proto, "txt", text.String())
}

// kind is the client's TYPE: here are normal ones and subscribers.
func (s *Session) kind() string {
	if s.own.view.Subscribed() {
		return "pubsub"
	}
	return "normal"
}

// objectionToList is what Redis has against this user's CLIENT LIST. While the fields of its clients are not known it lists all of
// them, and else subscribers, who are few.
func (s *Session) objectionToList() string {
	if s.srv.facts.fields.Load() != nil {
		return s.objection("CLIENT", "LIST", "TYPE", "pubsub")
	}
	answer, err := s.ask("CLIENT", "LIST")
	if err == nil {
		s.srv.learnFields(answer)
	}
	return objectionIn(answer, err)
}

// objection runs a command that would show this user's rights and changes nothing, and returns what Redis has
// against the user; any other answer, as of a server that lacks the command, is none.
func (s *Session) objection(probe ...string) (line string) {
	return objectionIn(s.ask(probe...))
}

func objectionIn(answer []byte, err error) string {
	if err != nil {
		return errorLine(err)
	}
	line, bad := resp.ErrorLine(answer)
	for _, about := range []string{"NOPERM", "NOAUTH", "ERR No such user"} {
		if bad && strings.HasPrefix(line, about) {
			return line
		}
	}
	return ""
}

// clientHelp is Redis' CLIENT HELP with what it does not know of put before its last entry, HELP itself.
func (s *Session) clientHelp(args [][]byte) {
	r, ok := s.asked(args)
	if !ok {
		return
	}
	last := max(len(r.Elems)-2, 0)
	out := resp.AppendArray(s.batch.out, len(r.Elems)+2)
	for i, e := range r.Elems {
		if i == last {
			out = resp.AppendSimple(out, "CAPA <capability> [<capability> ...]")
			out = resp.AppendSimple(out, "    Say what this client can take: lock-lost, the push of a lost lock.")
		}
		out = append(out, e.Raw...)
	}
	s.batch.out = out
}

// matches says whether a client is one that CLIENT KILL means.
func (s *Session) matches(f commands.KillFilter) bool {
	s.mu.Lock()
	user := userName(s.ident.User)
	s.mu.Unlock()
	return (f.Kind == "" || f.Kind == s.kind()) && (f.ID == 0 || f.ID == s.peer.id) && (f.Addr == "" || f.Addr == s.peer.addr) &&
		(f.LAddr == "" || f.LAddr == s.peer.laddr) && (f.User == "" || f.User == user) &&
		(f.Age == 0 || int64(time.Since(s.guard.Opened())/time.Second) >= f.Age)
}

// mayKill asks Redis whether this user may, and whether there is a user of that name.
func (s *Session) mayKill(f commands.KillFilter) (line string) {
	probe := []string{"CLIENT", "KILL", "ADDR", "0.0.0.0:0"}
	if f.User != "" {
		probe = append(probe, "USER", f.User)
	}
	return s.objection(probe...)
}

// clientKill closes clients of this proxy; to the lock engine they have been left, not gone: their locks run out.
func (s *Session) clientKill(args [][]byte) {
	f, line := commands.ParseKill(args)
	if objection := s.mayKill(f); objection != "" { // what stands before a mistake counts first
		line = objection
	}
	if line != "" {
		s.error(line)
		return
	}
	killed, myself := 0, false
	for _, c := range s.srv.snapshot() {
		if !c.matches(f) || c == s && f.SkipMe || c.guard.Over() {
			continue
		}
		killed++
		if c == s {
			myself = true
			continue
		}
		c.guard.Cut(downstream.Left, "CLIENT KILL")
	}
	switch {
	case len(args) > 3:
		s.batch.out = resp.AppendInt(s.batch.out, int64(killed))
	case killed == 0:
		s.error("ERR No such client")
	default:
		s.ok()
	}
	if myself {
		s.flush()
		s.guard.HangUp(downstream.Left, "CLIENT KILL")
	}
}

// redis70 are the fields of CLIENT INFO before Redis has told its own.
var redis70 = strings.Fields("id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free argv-mem multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp")

// fieldsOf are the names of the fields in a line of CLIENT INFO, in their order; nil: it is none.
func fieldsOf(line string) (names []string) {
	for _, field := range strings.Fields(line) {
		name, _, ok := strings.Cut(field, "=")
		if !ok {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// learnFields takes the fields of CLIENT INFO from Redis' answer to a CLIENT INFO or CLIENT LIST. A client asks, on its own
// identity: the service account needs neither command.
func (s *Server) learnFields(answer []byte) {
	r, ok := resp.ParseReply(answer)
	if !ok || r.Kind != '$' && r.Kind != '=' {
		return
	}
	line, _, _ := strings.Cut(string(r.Text), "\n")
	if names := fieldsOf(line); slices.Contains(names, "id") {
		s.facts.fields.Store(&names)
	}
}

// describe is the session's line of CLIENT LIST, in the fields of this Redis and their order; what means nothing here, as
// memory and buffers, is 0, but for the bytes of the command that asks. The library is shown once it is named, too. Any
// goroutine may call it.
func (s *Session) describe(asking [][]byte) string {
	names := redis70
	if told := s.srv.facts.fields.Load(); told != nil {
		names = *told
	}
	values := s.values(asking)
	var line strings.Builder
	for i, name := range names {
		if i > 0 {
			line.WriteByte(' ')
		}
		value, known := values[name]
		if !known {
			value = 0
		}
		fmt.Fprintf(&line, "%s=%v", name, value)
	}
	if lib, version := values["lib-name"], values["lib-ver"]; (lib != "" || version != "") && !slices.Contains(names, "lib-name") {
		fmt.Fprintf(&line, " lib-name=%s lib-ver=%s", lib, version)
	}
	return line.String()
}

// values are the fields that mean something here.
func (s *Session) values(asking [][]byte) map[string]any {
	s.mu.Lock()
	name, id, lib := s.settings.name, s.ident, s.settings.lib
	flags := s.flags()
	s.mu.Unlock()
	now := time.Now()
	cmd := "NULL"
	if last := s.activity.last.Load(); last != nil {
		cmd = *last
	}
	qbuf := 0
	if asking != nil {
		qbuf = len(resp.Command(asking))
	}
	return map[string]any{
		"id": s.peer.id, "addr": s.peer.addr, "laddr": s.peer.laddr, "fd": s.peer.id, "name": name, "flags": flags, "db": id.DB, "events": "r",
		"age": int(now.Sub(s.guard.Opened()).Seconds()), "idle": int(now.Sub(time.Unix(0, s.activity.active.Load())).Seconds()),
		"sub": s.own.view.Channels.Load(), "psub": s.own.view.Patterns.Load(), "ssub": s.own.view.Shards.Load(),
		"multi": s.own.view.Multi.Load() - 1, "watch": s.own.view.Watched.Load(), "qbuf": qbuf, "cmd": cmd, "user": userName(id.User),
		"redir": s.own.view.Redirected(), "resp": id.Proto, "lib-name": lib[0], "lib-ver": lib[1],
	}
}

// flags is the flags field, in Redis' order; N stands for none. mu is held.
func (s *Session) flags() string {
	v := &s.own.view
	tracks := v.Tracking.On.Load()
	var flags []byte
	for _, f := range []struct {
		on   bool
		flag byte
	}{
		{v.Monitor.Load(), 'O'}, {v.Subscribed(), 'P'}, {v.Multi.Load() > 0, 'x'}, {s.activity.waiting.Load() != nil || v.Blocked.Load(), 'b'},
		{tracks, 't'}, {tracks && v.Tracking.BCast.Load(), 'B'}, {s.peer.unix, 'U'}, {s.settings.noEvict, 'e'}, {s.settings.noTouch, 'T'},
	} {
		if f.on {
			flags = append(flags, f.flag)
		}
	}
	if flags == nil {
		return "N"
	}
	return string(flags)
}
