package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
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
	s.access.password.until.Store(0)
	if r.Deleted == nil {
		return
	}
	deleted := r.Deleted // so that r itself, which is passed for every run, does not escape to the heap
	s.up.backend.Renew(func(id upstream.Identity) bool { return slices.Contains(deleted, id.User) })
	select {
	case s.access.deleted <- deleted:
	default: // Redis closes their connections, which is noticed a little later
	}
}

// deletedLoop closes the clients of deleted users, as Redis does, even those without a connection upstream that Redis
// could close. Serve starts it, Shutdown waits for it.
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
		now := c.client.IdentityNow()
		id := upstream.Identity{User: now.User, Password: now.Password}
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
	if !client.PasswordRefused(err) || !errors.As(err, &re) {
		return false
	}
	s.identityRefused(id, re)
	return true
}

// forbidden returns Redis' error if the client's user may not run c, which lockproxy answers itself. It is "" when
// Redis cannot be asked, because the answer does not need Redis.
func (s *Session) forbidden(c *commandtable.Command) (line string) {
	refusal, err := s.refusal(grant{command: c.Name}, func() ([]byte, error) { return s.ask(c.Probe...) })
	if err != nil || refusal == nil {
		return ""
	}
	return client.ErrorLine(refusal)
}

// refusal returns Redis' NOPERM to a call of a command as this client, or nil. The answer is kept for grantKept. The error says
// that Redis cannot be asked. For the service account nothing is asked.
func (s *Session) refusal(asked grant, call func() ([]byte, error)) (refusal, err error) {
	if s.isService() {
		return nil, nil
	}
	asked.of, asked.ident, asked.rights = s.srv.up.backend, s.client.Identity(), s.srv.access.rights.Load()
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

// SeesClients says whether the client's user may run CLIENT LIST; false when Redis cannot be asked.
func (s *Session) SeesClients() bool {
	refusal, err := s.refusal(grant{command: "client|list"}, func() ([]byte, error) { return s.ask("CLIENT", "LIST", "ID", "0") })
	return refusal == nil && err == nil
}

// MayDelete returns Redis' refusal if the client's user may not run DEL of that key, or MULTI, by which Redis is asked: it looks at a user's
// rights when it queues a command. DEL of another key would be another question, since a user may have rights to some keys alone.
func (s *Session) MayDelete(key []byte) error {
	refusal, err := s.refusal(grant{command: "del", key: string(key)}, func() ([]byte, error) {
		reply, err := s.askAt(backend.Queued(), []byte("DEL"), key)
		if line, bad := resp.ErrorLine(reply); err == nil && bad && !judged(line) {
			err = &upstream.ReplyError{Line: line}
		}
		return reply, err
	})
	return cmp.Or(err, refusal)
}

// judged says by an error of Redis' that it has looked at the user's rights: it does so before it redirects.
func judged(line string) bool {
	return strings.HasPrefix(line, "NOPERM") || strings.HasPrefix(line, "MOVED ") || strings.HasPrefix(line, "ASK ")
}

const passwordGone = "password not valid any more"

// identityRefused closes all clients that Redis has let in with a password that it takes no longer, or without one where it asks for one now,
// once the connection that they shared is lost: Redis keeps connections open when a password changes, and they end with theirs. They end as
// Left, not as Gone: their locks expire.
func (s *Server) identityRefused(id upstream.Identity, why *upstream.ReplyError) {
	if !client.PasswordRefused(why) && !client.LogIn(why) {
		return
	}
	closed := 0
	for _, c := range s.snapshot() {
		now := c.client.IdentityNow()
		same := client.UserName(now.User) == client.UserName(id.User) && now.Password == id.Password
		in := c.access.admitted.Load() || !now.Anonymous()
		if same && in && !c.client.Over() {
			c.client.HangUp(downstream.Left, passwordGone)
			c.client.Wake()
			closed++
		}
	}
	if closed > 0 {
		s.log.Warn("a password is not valid any more, its clients are closed", "user", client.UserName(id.User), "clients", closed)
	}
}
