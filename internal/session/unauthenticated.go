package session

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/upstream"
)

const noAuth = "NOAUTH Authentication required."

var errNoAuth = &upstream.ReplyError{Line: noAuth}

// passwordPeriod is for how long Redis' answer is believed that it asks for a password.
const passwordPeriod = 400 * time.Millisecond

// admissionTime is how long Redis may take to say whether it serves a client: longer than the 5 s of its busy-reply-threshold.
const admissionTime = 10 * time.Second

// passwordAnswer is what Redis last said of clients that have not authenticated. While it asks for a password they are refused here,
// because Redis closes a connection on which more than 1 KB waits for such clients, and theirs is shared. Redis is asked once for all of
// them.
type passwordAnswer struct {
	turn  sync.Mutex             // who has it asks Redis
	until atomic.Int64           // unix nanoseconds until which the answer is believed
	hello atomic.Pointer[string] // what this Redis says to HELLO without AUTH; nil: not known yet
}

// refused returns why Redis does not serve this client; nil: it does. One that has authenticated is served. About another one Redis is asked,
// until it is served: from then on it stays in, as a connection to Redis does when a password is set. See docs/adr/0024.
func (s *Session) refused() error {
	if s.access.admitted.Load() || !s.client.Identity().Anonymous() {
		return nil
	}
	if s.srv.access.mustAuth.Load() && s.srv.asksPassword() {
		return errNoAuth
	}
	if err := elsewhere(s.askAdmission); err != nil {
		return err
	}
	s.access.admitted.Store(true)
	s.client.SetLimits(s.srv.limitsFor(true))
	s.showToRedis()
	return nil
}

// askAdmission asks Redis whether it serves this client. In a script's first seconds Redis answers nobody: SCRIPT KILL must wait for that, and
// not fail.
func (s *Session) askAdmission() error {
	ctx, cancel := context.WithTimeoutCause(s.client.Context(), admissionTime, upstream.ErrTimeout)
	defer cancel()
	for {
		err := s.srv.admission(ctx, s.host())
		if late, is := errors.AsType[net.Error](err); !is || !late.Timeout() || ctx.Err() != nil {
			return err
		}
	}
}

// admission asks Redis whether it serves a client at that address that does not authenticate, and notes what that means for all others.
func (s *Server) admission(ctx context.Context, from string) error {
	err := s.up.backend.Admit(ctx, from)
	if err != nil && !client.LogIn(err) {
		return err
	}
	asked := err != nil
	s.protectionLearned(asked, s.access.mustAuth.Swap(asked) != asked)
	return err
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

// refusalFor is the error for a command of a client that Redis does not serve, because of err.
func (s *Server) refusalFor(args [][]byte, err error) error {
	if client.LogIn(err) {
		return &upstream.ReplyError{Line: s.refusalOf(args)}
	}
	return err
}

// noAuthHello returns what this version of Redis answers to HELLO without AUTH from a client that must authenticate.
func (s *Server) noAuthHello() string {
	if line := s.access.password.hello.Load(); line != nil {
		return *line
	}
	id := s.fresh()
	id.Proto = 3
	_, err := s.askAs(id, "PING")
	if !client.LogIn(err) {
		return noAuth
	}
	line := client.ErrorLine(err)
	s.access.password.hello.Store(&line)
	return line
}

// MustAuthenticate says that Redis asks for a password, and that this client has neither sent one nor been served before.
func (s *Session) MustAuthenticate() bool {
	return s.srv.access.mustAuth.Load() && !s.access.admitted.Load() && s.client.Identity().Anonymous()
}
