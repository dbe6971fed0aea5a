package session

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// fresh is the identity of a new client: no user, in the database of the upstream's address.
func (s *Server) fresh() upstream.Identity { return upstream.Identity{DB: s.o.Service.DB, Proto: 2} }

// Login implements commands.Session.
func (s *Session) Login(user, password string) error {
	words := []string{"AUTH", user, password}
	if user == "" {
		words = []string{"AUTH", password}
	}
	if err := s.authenticate(user, password, words); err != nil {
		return err
	}
	s.access.showIdentity()
	return nil
}

// authenticate logs the client in as user. Redis must accept the password, and must then accept words on the client's
// own connection, if there is one; otherwise the client stays who it was. Redis is no longer asked once the client has
// gone. The caller then has Redis show when it deletes the user.
func (s *Session) authenticate(user, password string, words []string) error {
	if err := s.access.askPassword(user, password); err != nil {
		return err
	}
	if err := s.own.Authenticate(upstream.Identity{User: user, Password: password}, words...); err != nil {
		return err
	}
	s.access.advance(passwordRight) // before it has the identity, so that it is closed if that is revoked at this moment
	id := s.client.Identity()
	id.User, id.Password = user, password
	s.identity(id)
	return nil
}

// hostOf returns an address without its port. Addresses take turns when Redis is asked about passwords.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// networkOf is what an address counts as: itself, or with IPv6 the network of which one machine may have all addresses.
func networkOf(addr string) string {
	ip, err := netip.ParseAddr(hostOf(addr))
	if err != nil {
		return hostOf(addr) // a unix socket
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64) // fits all of IPv6
	return network.String()
}

// Greet implements commands.Session. Redis is asked on the connection the client would have.
func (s *Session) Greet(o commands.HelloOptions) (answer resp.Reply, err error) {
	if s.client.Peer.Operator {
		return helloAtSocket(s, o)
	}
	if o.Auth { // as in Redis, the login stands even if what follows fails
		words := []string{"AUTH", cmp.Or(o.User, "default"), o.Password}
		if err := s.authenticate(o.User, o.Password, words); err != nil {
			return answer, err
		}
	}
	before, id := s.client.Identity(), s.client.Identity()
	if o.Proto != 0 {
		id.Proto = o.Proto
	}
	if err := s.access.Admitted(); client.LogIn(err) {
		return answer, &upstream.ReplyError{Line: s.srv.noAuthHello()}
	} else if err != nil {
		return answer, err
	}
	answer, err = s.pipes.Hello(id)
	if err == nil {
		if o.Auth {
			s.access.showIdentity() // before a connection of the client's own waits for the reply to be written
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

// SelectDB implements commands.Session: the shared connection of that database must open.
func (s *Session) SelectDB(n int) ([]byte, error) {
	word := strconv.AppendInt(nil, int64(n), 10)
	if n == s.client.Identity().DB { // the connection stays the same, but Redis may refuse SELECT to the client's user
		return s.access.Ask(backend.Destination{}, []byte("SELECT"), word)
	}
	if reply, has, err := s.own.SelectDB(n, word); has {
		return reply, err
	}
	id := s.client.Identity()
	id.DB = n
	return s.pipes.SelectDB(id)
}

// Reset implements commands.Session. Locks are released as if the connection had gone, and losses that were not told are
// forgotten. So are a transaction, watched keys, subscriptions and tracking, with the client's own connections, and what
// was lost with a former one; CLIENT REPLY, SCRIPT DEBUG, and what CLIENT has set but for the library's name. The client
// has a new one's database and RESP2, is no operator, and is logged in as one that has just connected.
func (s *Session) Reset() {
	if l := s.locks.Load(); l != nil {
		l.Reset()
	}
	s.own.Reset()
	s.client.ResetReplies()
	s.client.Debugs = false
	s.identity(s.srv.fresh())
	s.client.Unsay()
	s.access.beginLogin(false)
}

// identity makes the client another user, or none, after Redis has agreed to it.
func (s *Session) identity(id upstream.Identity) {
	s.pipes.SetIdentity(id)
	s.access.operates.Store(false)
	if l := s.locks.Load(); l != nil {
		l.SetUser(s.counted())
	}
}
