package session

import (
	"context"
	"errors"
	"slices"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/upstream"
)

// rightsChange is what commands that have passed here may have changed of users and their rights.
type rightsChange struct {
	any     bool
	all     bool     // who has not authenticated may have lost all of them
	deleted []string // users
}

// note adds what a call of c may change.
func (r *rightsChange) note(c *commandtable.Command, args [][]byte) {
	if c == nil || !c.Rights {
		return
	}
	r.any = true
	switch c.Name {
	case "acl|deluser":
		for _, name := range args[min(2, len(args)):] {
			r.deleted = append(r.deleted, string(name))
		}
	case "acl|setuser":
		r.all = r.all || len(args) > 2 && string(args[2]) == "default"
	case "config|set":
		r.all = r.all || slices.ContainsFunc(args, func(word []byte) bool { return equalFold(word, "requirepass") })
	default:
		r.all = true
	}
}

// concerns says whether a connection of that identity may be one that Redis would not take any more.
func (r *rightsChange) concerns(id upstream.Identity) bool {
	if id.User == "" && id.Password == "" {
		return r.all
	}
	return slices.Contains(r.deleted, id.User)
}

// rightsChanged is called when Redis has answered such commands, before their client has the answers: what was known of
// users' rights is known no more, and connections that Redis may not take any more are made again. It does not block.
func (s *Server) rightsChanged(r rightsChange) {
	if !r.any {
		return
	}
	s.access.rights.Add(1)
	s.access.door.until.Store(0)
	if !r.all && r.deleted == nil {
		return
	}
	s.renew(r.concerns)
	if r.deleted != nil {
		select {
		case s.access.deleted <- r.deleted:
		default: // Redis closes their connections, which is noticed a little later
		}
	}
}

// renew has the connections of the identities concerned made again, and all nodes asked whether they want a password.
func (s *Server) renew(concerned func(upstream.Identity) bool) {
	if s.o.Cluster != nil {
		s.o.Cluster.Renew(concerned)
	} else {
		s.o.Node.Renew(concerned)
	}
}

// deletedLoop closes the clients of users that were deleted, as Redis does, those too that have no connection upstream of
// which that would be noticed. Serve starts it, Shutdown waits for it.
func (s *Server) deletedLoop() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case users := <-s.access.deleted:
			for _, id := range s.identitiesOf(users) {
				s.lookAtIdentity(id)
			}
		}
	}
}

// identitiesOf lists the identities of the users' clients.
func (s *Server) identitiesOf(users []string) (all []upstream.Identity) {
	for _, c := range s.snapshot() {
		c.mu.Lock()
		id := upstream.Identity{User: c.ident.User, Password: c.ident.Password}
		c.mu.Unlock()
		if slices.Contains(users, id.User) && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}

// lookAtIdentity asks Redis whether it takes an identity still, and closes its clients if it does not.
func (s *Server) lookAtIdentity(id upstream.Identity) (refused bool) {
	ctx, cancel := context.WithTimeout(s.ctx, authTime)
	defer cancel()
	err := s.authenticate(ctx, "", id.User, id.Password)
	var re *upstream.ReplyError
	if !passwordRefused(err) || !errors.As(err, &re) {
		return false
	}
	s.identityRefused(id, re)
	return true
}

// wasDeleted says whether a connection was lost because the client's user is there no more, and closes the client then. It
// is looked at for those alone who would be told of an unknown outcome: others are closed anyway.
func (s *Session) wasDeleted(err error) bool {
	var lost *upstream.LostError
	if s.ident.User == "" || s.held() == 0 || !errors.As(err, &lost) {
		return false
	}
	return s.srv.lookAtIdentity(s.ident)
}
