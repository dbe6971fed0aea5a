package session

import (
	"context"
	"net"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// fresh is the identity of a client that has said nothing yet: nobody, in the database of the upstream's address.
func (s *Server) fresh() upstream.Identity { return upstream.Identity{DB: s.o.Service.DB, Proto: 2} }

// auth is AUTH [user] password. Redis decides.
func (s *Session) auth(args [][]byte) {
	if len(args) > 3 {
		s.error(commands.SyntaxError)
		return
	}
	id := s.ident
	id.User, id.Password = "", string(args[len(args)-1])
	if len(args) == 3 {
		if id.User = string(args[1]); id.User == "" {
			s.error(commands.WrongPass) // to Authenticate "" means Redis' default user
			return
		}
	}
	if err := s.authenticate(id.User, id.Password); err != nil {
		s.fail(err)
		return
	}
	if err := s.own.Authenticate(args); err != nil {
		s.fail(err)
		return
	}
	s.identity(id)
	s.guard.SetLimits(s.srv.limitsFor(true))
	s.showToRedis()
	s.ok()
}

// authenticate asks Redis, until the client has gone. From then on the client counts for the user.
func (s *Session) authenticate(user, password string) error {
	ctx, done := s.clientContext()
	defer done()
	ctx, cancel := context.WithTimeoutCause(ctx, backend.QuestionTime, upstream.ErrTimeout)
	defer cancel()
	if err := s.srv.up.backend.Authenticate(ctx, s.host(), user, password); err != nil {
		return err
	}
	return s.takeShare(userName(user))
}

// showToRedis has a shared connection as the client's user, which Redis closes when it deletes the user: so the client's end is noticed,
// however idle it is. Where there can be none just now that is noticed at its next command.
func (s *Session) showToRedis() {
	ctx, done := s.clientContext()
	defer done()
	ctx, cancel := context.WithTimeout(ctx, backend.QuestionTime)
	defer cancel()
	s.pipes.Show(ctx)
}

// host is the client's address without its port: passwords from one take turns with those from others.
func (s *Session) host() string {
	host, _, err := net.SplitHostPort(s.peer.addr)
	if err != nil {
		return s.peer.addr
	}
	return host
}

// hello is HELLO [version [AUTH user password] [SETNAME name]]. Redis is asked on the connection the client would
// have, and its answer given with this proxy's view of the connection.
func (s *Session) hello(args [][]byte) {
	o, line := commands.ParseHello(args)
	if line != "" {
		s.error(line)
		return
	}
	id := s.ident
	if o.Auth && o.User == "" {
		s.error(commands.WrongPass)
		return
	}
	if o.Auth {
		if err := s.authenticate(o.User, o.Password); err != nil {
			s.fail(err)
			return
		}
		id.User, id.Password = o.User, o.Password
		s.identity(id) // as in Redis, it stands even if what follows fails
		s.guard.SetLimits(s.srv.limitsFor(true))
	}
	if o.Proto != 0 {
		id.Proto = o.Proto
	}
	if s.lockedOut() {
		s.error(s.srv.noAuthHello())
		return
	}
	answer, err := s.pipes.Hello(id)
	if err == nil {
		err = s.own.Hello(id, o.Auth)
	}
	if err != nil {
		s.fail(err)
		return
	}
	if o.Auth {
		s.showToRedis()
	}
	if o.Named {
		s.rename(o.Name)
	}
	s.batch.Out = s.appendHello(s.batch.Out, answer)
	s.pushable()
}

// appendHello is Redis' answer to HELLO, but for what it says of the connection and of the server's place.
func (s *Session) appendHello(out []byte, r resp.Reply) []byte {
	out = resp.AppendMap(out, s.ident.Proto, len(r.Elems)/2)
	for i := 0; i+1 < len(r.Elems); i += 2 {
		out = append(out, r.Elems[i].Raw...)
		switch string(r.Elems[i].Text) {
		case "proto":
			out = resp.AppendInt(out, int64(s.ident.Proto))
		case "id":
			out = resp.AppendInt(out, s.peer.id)
		case "mode":
			out = resp.AppendBulkString(out, s.srv.mode())
		case "role":
			out = resp.AppendBulkString(out, "master")
		default:
			out = append(out, r.Elems[i+1].Raw...)
		}
	}
	return out
}

// selectDB is SELECT index: the shared pipe of that database must open, else its error is the answer.
func (s *Session) selectDB(args [][]byte) {
	n, ok := resp.Integer(args[1])
	switch {
	case !ok:
		s.error(commands.NotANumber)
		return
	case n < -1<<31 || n >= 1<<31:
		s.error("ERR value is out of range, value must between -2147483648 and 2147483647")
		return
	case n < 0:
		s.error("ERR DB index is out of range")
		return
	}
	s.relay(s.selectNumber(int(n), args[1]))
}

func (s *Session) selectNumber(n int, word []byte) ([]byte, error) {
	if n == s.ident.DB { // no other connection, but Redis may still say no to the client's user
		return s.askAt(backend.Place{}, []byte("SELECT"), word)
	}
	if reply, has, err := s.own.SelectDB(n, word); has {
		return reply, err
	}
	id, admitted := s.ident, s.access.admitted
	id.DB = n
	reply, err := s.pipes.SelectDB(id, word)
	s.access.admitted = admitted
	return reply, err
}

// reset is RESET: the connection is as new, and its locks are released as if it had gone.
func (s *Session) reset([][]byte) {
	if l := s.locks.engine.Load(); l != nil {
		l.Reset()
	}
	s.own.Reset()
	s.resetReplyMode()
	s.settings.debugs = false
	s.identity(s.srv.fresh())
	s.pipes.replicas = s.srv.o.ReadFrom == ReadReplica
	s.mu.Lock()
	s.settings.name, s.settings.noEvict, s.settings.noTouch, s.settings.wantsLossPush = "", false, false, false
	s.mu.Unlock()
	s.guard.SetLimits(s.srv.limitsFor(false))
	if s.access.lowered = s.srv.access.mustAuth.Load(); s.access.lowered {
		s.access.admitted = 0
	}
	s.batch.Out = resp.AppendSimple(s.batch.Out, "RESET")
}

// stillFits holds what was read before RESET took effect, or begun to be read, to the limits of a client that must log
// in. Redis closes a connection that breaks them; ours upstream is shared.
func (s *Session) stillFits(args [][]byte) bool {
	if s.ident.User != "" || s.ident.Password != "" {
		s.access.lowered = false // it has logged in again
		return true
	}
	err := s.srv.limitsFor(false).Check(args)
	if err == nil {
		return true
	}
	s.forward()
	s.error("ERR " + err.Error())
	s.flush()
	s.guard.HangUp(downstream.Left, err.Error())
	return false
}

// quit is QUIT: the rest of the pipeline is not run, and the client counts as gone.
func (s *Session) quit([][]byte) {
	s.ok()
	s.flush()
	s.guard.HangUp(downstream.Gone, "QUIT")
}

func (s *Session) crossProtocol([][]byte) {
	s.srv.log.Warn("closed a client that speaks HTTP: a cross-protocol attack, or a probe", "client", s.peer.addr)
	s.guard.HangUp(downstream.Left, "speaks HTTP")
}

// rename sets the connection's name, "" for none.
func (s *Session) rename(name string) {
	s.mu.Lock()
	s.settings.name = name
	s.mu.Unlock()
	s.own.Rename(name)
}
