package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/upstream"
)

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
