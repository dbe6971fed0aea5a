package session

import (
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

func (s *Session) clientID([][]byte) { s.batch.Out = resp.AppendInt(s.batch.Out, s.peer.id) }

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
		s.batch.Out = resp.AppendNull(s.batch.Out, s.ident.Proto)
		return
	}
	s.batch.Out = resp.AppendBulkString(s.batch.Out, s.settings.name)
}

// clientSetInfo is CLIENT SETINFO. A library's name is what tells the lock engine that the connection may come out of a pool.
func (s *Session) clientSetInfo(args [][]byte) {
	info, line := commands.ParseSetInfo(args)
	if line != "" {
		s.error(line)
		return
	}
	of := dedicated.SettingLibrary
	if info.Version {
		of = dedicated.SettingVersion
	}
	s.take(dedicated.Setting{Of: of, Value: info.Value})
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
	s.batch.Out = s.srv.clientFields().AppendClientInfo(s.batch.Out, s.ident.Proto, s.facts(args))
}

// clientList is CLIENT LIST: this proxy's clients.
func (s *Session) clientList(args [][]byte) {
	f, line := commands.ParseList(args)
	if line == "" {
		line = s.objectionToList()
	}
	if line != "" {
		s.error(line)
		return
	}
	var all []commands.ClientFacts
	for _, c := range s.srv.snapshot() {
		if c == s {
			all = append(all, s.facts(args))
		} else {
			all = append(all, c.facts(nil))
		}
	}
	s.batch.Out = s.srv.clientFields().AppendClientList(s.batch.Out, s.ident.Proto, f.Choose(all))
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
		return backend.ErrorLine(err)
	}
	line, bad := resp.ErrorLine(answer)
	for _, about := range []string{"NOPERM", "NOAUTH", "ERR No such user"} {
		if bad && strings.HasPrefix(line, about) {
			return line
		}
	}
	return ""
}

func (s *Session) clientHelp(args [][]byte) {
	if r, ok := s.asked(args); ok {
		s.batch.Out = commands.AppendClientHelp(s.batch.Out, r)
	}
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
		if !f.Matches(c.facts(nil)) || c == s && f.SkipMe || c.guard.Over() {
			continue
		}
		killed++
		if c == s {
			myself = true
			continue
		}
		c.guard.Cut(downstream.Left, "CLIENT KILL")
	}
	s.batch.Out = f.AppendReply(s.batch.Out, killed)
	if myself {
		s.flush()
		s.guard.HangUp(downstream.Left, "CLIENT KILL")
	}
}

// learnFields takes the fields of CLIENT INFO from Redis' answer to a CLIENT INFO or CLIENT LIST. A client asks, on its own
// identity: the service account needs neither command.
func (s *Server) learnFields(answer []byte) {
	if fields := commands.ReadClientFields(answer); fields != nil {
		s.facts.fields.Store(&fields)
	}
}

// clientFields are the fields of CLIENT INFO and CLIENT LIST: Redis' own, once they are known.
func (s *Server) clientFields() commands.ClientFields {
	if told := s.facts.fields.Load(); told != nil {
		return *told
	}
	return commands.Redis70Fields
}

// clientGetRedir is CLIENT GETREDIR, in our numbers.
func (s *Session) clientGetRedir(args [][]byte) { s.relay(s.own.GetRedir(args)) }

// clientTrackingInfo is CLIENT TRACKINGINFO, in our numbers.
func (s *Session) clientTrackingInfo(args [][]byte) { s.relay(s.own.TrackingInfo(args)) }

// facts is what CLIENT LIST shows of this client; asking is the command that asks, if it is this client's. Any goroutine may call
// it.
func (s *Session) facts(asking [][]byte) commands.ClientFacts {
	v, now := &s.own.View, time.Now()
	last := ""
	if said := s.activity.last.Load(); said != nil {
		last = *said
	}
	query := 0
	if asking != nil {
		query = len(resp.Command(asking))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return commands.ClientFacts{
		ID: s.peer.id, Addr: s.peer.addr, LAddr: s.peer.laddr, Name: s.settings.name, User: userName(s.ident.User), Library: s.settings.lib,
		DB: s.ident.DB, Proto: s.ident.Proto, Age: now.Sub(s.guard.Opened()), Idle: now.Sub(time.Unix(0, s.activity.active.Load())),
		Last: last, Query: query,
		ClientState: commands.ClientState{
			Channels: v.Channels.Load(), Patterns: v.Patterns.Load(), Shards: v.Shards.Load(),
			Queued: v.Multi.Load() - 1, Watched: v.Watched.Load(), Blocked: s.activity.waiting.Load() != nil || v.Blocked.Load(),
			Tracks: v.Tracking.On.Load(), Broadcasts: v.Tracking.BCast.Load(), Redirect: v.Redirected(),
			Monitors: v.Monitor.Load(), Unix: s.peer.unix, NoEvict: s.settings.noEvict, NoTouch: s.settings.noTouch,
		},
	}
}
