package session

import (
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/upstream"
)

// A client's certificate may name its user: see Options.CertificateUser. Such a client is logged in when its first
// command comes, or the first after a RESET, so that a silent connection costs Redis nothing.

// byCertificate logs the client in, or answers the present command with the error. A client that Redis refuses is
// closed, because it believes to be a user that it is not.
func (s *Session) byCertificate(c *call) {
	user := s.client.Peer.Certificate
	password, known := s.srv.o.CertificateUser(user)
	if !known { // it may not be named any more
		s.access.due = nil
		s.client.Reader.SetLimits(s.srv.limitsFor(false))
		return
	}
	err := s.Login(user, password)
	if err == nil {
		s.access.due = nil
		return
	}
	s.pipes.Send()
	s.client.Fail(err)
	if upstream.Refused(err) != nil {
		s.srv.log.Warn("closed a client whose certificate names a user that could not be logged in", "client",
			s.client.Peer.Addr, "user", user, "error", err)
		s.client.Flush()
		s.client.End.HangUp(downstream.Left, err.Error())
	}
	c.over = true
}
