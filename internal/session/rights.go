package session

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// rightsChanged is called when Redis has answered such commands, before their client has the answers: what was known of
// users' rights is known no more, and connections that Redis may not take any more are made again. It does not block.
func (s *Server) rightsChanged(r backend.RightsChange) {
	if !r.Any {
		return
	}
	s.access.rights.Add(1)
	s.access.password.until.Store(0)
	if !r.All && r.Deleted == nil {
		return
	}
	kept := r // so that r itself, which is passed for every run, needs no heap
	s.renew(kept.Concerns)
	if r.Deleted != nil {
		select {
		case s.access.deleted <- r.Deleted:
		default: // Redis closes their connections, which is noticed a little later
		}
	}
}

// renew has the connections of the identities concerned made again, and all nodes asked whether they want a password.
func (s *Server) renew(concerned func(upstream.Identity) bool) {
	s.up.backend.Renew(concerned)
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
	err := s.up.backend.Authenticate(ctx, "", id.User, id.Password)
	var re *upstream.ReplyError
	if !backend.PasswordRefused(err) || !errors.As(err, &re) {
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

// forbidden says in Redis' words that the client's user may not run c, which is answered here. When Redis cannot be
// asked nothing is said: the answer does not need it.
func (s *Session) forbidden(c *commandtable.Command) (line string) {
	refusal, err := s.refusal(grant{command: c.Name}, func() ([]byte, error) { return s.ask(c.Probe...) })
	if err != nil || refusal == nil {
		return ""
	}
	return backend.ErrorLine(refusal)
}

// refusal is Redis' NOPERM to a call of a command, as this client; nil if it has none. It is believed for a while. The error says
// that Redis cannot be asked. The service account itself is not asked for.
func (s *Session) refusal(asked grant, call func() ([]byte, error)) (refusal, err error) {
	if s.isService() {
		return nil, nil
	}
	asked.of, asked.ident, asked.rights = s.srv.up.backend, s.ident, s.srv.access.rights.Load()
	if refusal, known := grants().Get(asked); known {
		return refusal, nil
	}
	reply, err := call()
	if err != nil {
		return nil, err
	}
	if line, bad := resp.ErrorLine(reply); bad && strings.HasPrefix(line, "NOPERM") {
		refusal = &upstream.ReplyError{Line: line}
	}
	if len(asked.key) <= longestKey {
		grants().Add(asked, refusal)
	}
	return refusal, nil
}

// SeesClients says whether the client's user may run CLIENT LIST. When Redis cannot be asked it may not.
func (s *Session) SeesClients() bool {
	refusal, err := s.refusal(grant{command: "client|list"}, func() ([]byte, error) { return s.ask("CLIENT", "LIST", "ID", "0") })
	return refusal == nil && err == nil
}

// MayDelete is Redis' word on whether the client's user may run DEL. It is asked with a key that is not there, whose name begins as
// the lock's does: that its own name is out of bounds says nothing of the lock's, for which May has been asked.
func (s *Session) MayDelete(key []byte) error {
	refusal, err := s.refusal(grant{command: "del", key: string(key)}, func() ([]byte, error) {
		return s.askKey("DEL", string(key)+":lockproxy:"+strconv.FormatUint(rand.Uint64(), 36))
	})
	if err != nil {
		return err
	}
	if refusal != nil && strings.Contains(refusal.Error(), " to run ") {
		return refusal
	}
	return nil
}

const passwordGone = "password not valid any more"

// identityRefused closes all clients that logged in with a password that Redis takes no longer, as soon as one connection
// made with it says so. Redis itself keeps connections open when a password changes; but which of ours a client's next
// command would need a new one for, nobody could foresee. They have been left, not gone: their locks run out.
func (s *Server) identityRefused(id upstream.Identity, why *upstream.ReplyError) {
	if !strings.HasPrefix(why.Line, "WRONGPASS") || id.User == "" && id.Password == "" {
		return
	}
	closed := 0
	for _, c := range s.snapshot() {
		c.mu.Lock()
		same := userName(c.ident.User) == userName(id.User) && c.ident.Password == id.Password
		c.mu.Unlock()
		if same && !c.guard.Over() {
			c.guard.HangUp(downstream.Left, passwordGone)
			c.guard.Wake()
			closed++
		}
	}
	if closed > 0 {
		s.log.Warn("a password is not valid any more, its clients are closed", "user", userName(id.User), "clients", closed)
	}
}
