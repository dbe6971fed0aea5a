package session

import (
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/upstream"
)

// A client's certificate may name its user: see Options.CertificateUser. Such a client is logged in when its first command comes, or the
// first after a RESET, so that a silent connection costs Redis nothing.

// certificate notes that the client is to be logged in as the user whom its certificate names, if CertificateUser knows that user.
func (s *Session) certificate() {
	if s.srv.o.CertificateUser == nil {
		return
	}
	if _, known := s.srv.o.CertificateUser(s.guard.CertificateName()); known {
		s.access.asked, s.access.lowered = true, false
		s.guard.SetLimits(s.srv.limitsFor(true))
	}
}

// loginByCertificate logs the client in, or answers the present command with the error. A client that Redis refuses is closed, because it believes
// to be a user that it is not.
func (s *Session) loginByCertificate() bool {
	user := s.guard.CertificateName()
	password, known := s.srv.o.CertificateUser(user)
	if !known { // it may not be named any more
		s.access.asked = false
		s.guard.SetLimits(s.srv.limitsFor(false))
		return true
	}
	err := s.Login(user, password)
	if err == nil {
		s.access.asked = false
		return true
	}
	s.forward()
	s.fail(err)
	if upstream.Refused(err) != nil {
		s.srv.log.Warn("closed a client whose certificate names a user that could not be logged in", "client", s.peer.addr, "user", user, "error", err)
		s.flush()
		s.guard.HangUp(downstream.Left, err.Error())
	}
	return false
}
