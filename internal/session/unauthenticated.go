package session

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const noAuth = "NOAUTH Authentication required."

// passwordPeriod is for how long Redis' answer is believed that it asks for a password.
const passwordPeriod = 400 * time.Millisecond

// passwordAnswer is what Redis last said of clients that have not authenticated. While it asks for a password they are refused here,
// because Redis closes a connection on which more than 1 KB waits for such clients, and theirs is shared. Redis is asked once for all of
// them.
type passwordAnswer struct {
	turn  sync.Mutex             // who has it asks Redis
	until atomic.Int64           // unix nanoseconds until which the answer is believed
	hello atomic.Pointer[string] // what this Redis says to HELLO without AUTH; nil: not known yet
}

// lockedOut says that this client must authenticate before it may run commands, as far as Redis has said within passwordPeriod.
func (s *Session) lockedOut() bool {
	return s.ident.User == "" && s.ident.Password == "" && s.srv.access.mustAuth.Load() && s.srv.asksPassword()
}

// asksPassword says whether Redis refuses clients that have not authenticated. While somebody asks it, and when it does not answer, the
// last answer stands.
func (s *Server) asksPassword() bool {
	if time.Now().UnixNano() >= s.access.password.until.Load() && s.access.password.turn.TryLock() {
		if err := s.learnAuth(); err == nil {
			s.access.password.until.Store(time.Now().Add(passwordPeriod).UnixNano())
		}
		s.access.password.turn.Unlock()
	}
	return s.access.mustAuth.Load()
}

// refusalOf is what Redis 7 says to a command of a client that must authenticate first: it looks for the command, and at the number
// of its words, before it asks who the client is.
func (s *Server) refusalOf(args [][]byte) string {
	t := s.facts.table.Load() // the present one: the session may have looked the command up before Redis listed its commands
	c, _ := t.find(args)
	switch {
	case c != nil && !commandtable.ArityFits(c.Arity, len(args)):
		return c.NotRun(commandtable.WrongArity(c.Name))
	case c != nil:
		return c.NotRun(noAuth)
	}
	var rest []byte
	for _, word := range args[1:] {
		if len(rest) >= commands.ClipMost {
			break
		}
		rest = append(rest, '\'')
		rest = append(append(rest, commands.Clip(word, commands.ClipMost+1-len(rest))...), "' "...)
	}
	return "ERR unknown command '" + commands.Clip(args[0], commands.ClipMost) + "', with args beginning with: " + string(rest)
}

// refuseRun answers the run as Redis answers clients that must authenticate first.
func (s *Session) refuseRun() {
	for range s.batch.Run() {
		s.error(noAuth)
	}
}

// noAuthHello returns what this version of Redis answers to HELLO without AUTH from a client that must authenticate.
func (s *Server) noAuthHello() string {
	if line := s.access.password.hello.Load(); line != nil {
		return *line
	}
	reply, err := s.askAs(s.fresh(), "HELLO", "3")
	line, refused := resp.ErrorLine(reply)
	if err != nil || !refused {
		return noAuth
	}
	s.access.password.hello.Store(&line)
	return line
}

// MustAuthenticate says that Redis asks for a password, and that this client has neither sent one nor been served before.
func (s *Session) MustAuthenticate() bool {
	return s.srv.access.mustAuth.Load() && s.access.admitted == 0 && s.ident.User == "" && s.ident.Password == ""
}
