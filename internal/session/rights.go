package session

import (
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/upstream"
)

// rightsChanged is called when Redis has answered commands that change users' rights, before their client has the
// replies. What was known of users' rights is forgotten, and connections that Redis may no longer accept are replaced.
// It does not block.
func (s *Server) rightsChanged(r backend.RightsChange) {
	if !r.Any {
		return
	}
	s.access.rights.Add(1)
	s.access.needs.until.Store(0)
	if r.Deleted == nil {
		return
	}
	deleted := r.Deleted // so that r itself, which is passed for every run, does not escape to the heap
	s.up.backend.Renew(func(id upstream.Identity) bool { return slices.Contains(deleted, id.User) })
}

// lookAtIdentity asks Redis whether it takes an identity still, and closes its clients if it does not.
func (s *Server) lookAtIdentity(id upstream.Identity) (refused bool) {
	ctx, cancel := context.WithTimeout(s.ctx, authTime)
	defer cancel()
	err := s.up.backend.Authenticate(ctx, "", id.User, id.Password)
	if refused = client.PasswordRefused(err); refused {
		s.identityRefused(id, upstream.Refused(err))
	}
	return refused
}

const passwordGone = "password not valid any more"

// identityRefused closes all clients that Redis has let in with a password that it takes no longer, or without one
// where it asks for one now, once the connection that they shared is lost: Redis keeps connections open when a password
// changes, and they end with theirs. They end as Left, not as Gone: their locks expire.
func (s *Server) identityRefused(id upstream.Identity, why *upstream.ReplyError) {
	if !client.PasswordRefused(why) && !client.LogIn(why) {
		return
	}
	closed := 0
	for _, c := range s.clients.snapshot() {
		now := c.client.IdentityNow()
		same := client.UserName(now.User) == client.UserName(id.User) && now.Password == id.Password
		if _, do := c.access.login().on(revoked, aPassword); same && do == end && !c.client.End.Over() {
			c.client.End.HangUp(downstream.Left, passwordGone)
			c.client.Reader.Wake()
			closed++
		}
	}
	if closed > 0 {
		s.log.Warn("a password is not valid any more, its clients are closed", "user", client.UserName(id.User),
			"clients", closed)
	}
}
