package session

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// fresh is the identity of a new client: no user, in the database of the upstream's address.
func (s *Server) fresh() upstream.Identity { return upstream.Identity{DB: s.o.Service.DB, Proto: 2} }

// ID implements commands.Identity.
func (s *Session) ID() int64 { return s.peer.id }

// Proto implements commands.Identity.
func (s *Session) Proto() int { return s.ident.Proto }

// DB implements commands.Identity.
func (s *Session) DB() int { return s.ident.DB }

// Login implements commands.Identity.
func (s *Session) Login(user, password string) error {
	words := []string{"AUTH", user, password}
	if user == "" {
		words = []string{"AUTH", password}
	}
	if err := s.authenticate(user, password, words); err != nil {
		return err
	}
	s.showToRedis()
	return nil
}

// authenticate logs the client in as user. Redis must accept the password, and must then accept words on the client's own connection, if
// there is one; otherwise the client stays who it was. Redis is no longer asked once the client has gone.
func (s *Session) authenticate(user, password string, words []string) error {
	if err := s.askPassword(user, password); err != nil {
		return err
	}
	return s.takeShare(userName(user), func() error {
		if err := s.own.Authenticate(upstream.Identity{User: user, Password: password}, words...); err != nil {
			return err
		}
		id := s.ident
		id.User, id.Password = user, password
		s.identity(id)
		s.guard.SetLimits(s.srv.limitsFor(true))
		return nil
	})
}

// showToRedis opens a shared connection as the client's user. Redis closes it when the user is deleted, which shows that the client must
// be closed, however idle it is. If no connection can be made now, that shows at the client's next command.
func (s *Session) showToRedis() {
	ctx := s.clientContext()
	ctx, cancel := context.WithTimeout(ctx, backend.QuestionTime)
	defer cancel()
	s.pipes.Show(ctx)
}

// host returns the client's address without its port. Addresses take turns when Redis is asked about passwords.
func (s *Session) host() string {
	host, _, err := net.SplitHostPort(s.peer.addr)
	if err != nil {
		return s.peer.addr
	}
	return host
}

// network is what the client's address counts as: itself, or with IPv6 the network of which one machine may have all addresses.
func (s *Session) network() string {
	ip, err := netip.ParseAddr(s.host())
	if err != nil {
		return s.host() // a unix socket
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64) // fits all of IPv6
	return network.String()
}

// Greet implements commands.Identity. Redis is asked on the connection the client would have.
func (s *Session) Greet(o commands.HelloOptions) (answer resp.Reply, err error) {
	if o.Auth { // as in Redis, the login stands even if what follows fails
		words := []string{"AUTH", cmp.Or(o.User, "default"), o.Password}
		if err := s.authenticate(o.User, o.Password, words); err != nil {
			return answer, err
		}
	}
	before, id := s.ident, s.ident
	if o.Proto != 0 {
		id.Proto = o.Proto
	}
	if err := s.refused(); backend.LogIn(err) {
		return answer, &upstream.ReplyError{Line: s.srv.noAuthHello()}
	} else if err != nil {
		return answer, err
	}
	answer, err = s.pipes.Hello(id)
	if err == nil {
		if o.Auth {
			s.showToRedis() // before a connection of the client's own waits for the reply to be written
		}
		err = s.own.Hello(id)
	}
	if err != nil { // both speak the same protocol, or the client cannot read one of them
		s.identity(before)
		s.Greeted()
		return answer, err
	}
	if o.Named {
		s.Rename(o.Name)
	}
	return answer, nil
}

// SelectDB implements commands.Identity: the shared connection of that database must open.
func (s *Session) SelectDB(n int) ([]byte, error) {
	word := strconv.AppendInt(nil, int64(n), 10)
	if n == s.ident.DB { // the connection stays the same, but Redis may refuse SELECT to the client's user
		return s.askAt(backend.Place{}, []byte("SELECT"), word)
	}
	if reply, has, err := s.own.SelectDB(n, word); has {
		return reply, err
	}
	id := s.ident
	id.DB = n
	return s.pipes.SelectDB(id)
}

// Reset implements commands.Identity: the locks are released as if the connection had gone.
func (s *Session) Reset() {
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
	s.settings.parent = nil
	s.mu.Unlock()
	s.guard.SetLimits(s.srv.limitsFor(false))
	s.access.lowered = s.srv.access.mustAuth.Load()
	s.access.admitted.Store(false)
	s.certificate()
}

// stillFits holds commands that were read, at least in part, before RESET took effect to the limits of a client that
// must log in. Redis would close a connection that breaks them, and ours is shared: so the client is closed here.
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

// Quit implements commands.Connection.
func (s *Session) Quit() { s.guard.HangUp(downstream.Gone, "QUIT") }

// HangUp implements commands.Connection.
func (s *Session) HangUp(why string) { s.guard.HangUp(downstream.Left, why) }

// Distrust implements commands.Connection.
func (s *Session) Distrust() {
	s.srv.log.Warn("closed a client that speaks HTTP: a cross-protocol attack, or a probe", "client", s.peer.addr)
	s.HangUp("speaks HTTP")
}
