package session

import (
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// matches says whether a client is one that CLIENT KILL means.
func (s *Session) matches(f commands.KillFilter) bool {
	s.mu.Lock()
	user := userName(s.ident.User)
	s.mu.Unlock()
	return (f.Kind == "" || f.Kind == s.kind()) && (f.ID == 0 || f.ID == s.peer.id) && (f.Addr == "" || f.Addr == s.peer.addr) &&
		(f.LAddr == "" || f.LAddr == s.peer.laddr) && (f.User == "" || f.User == user) &&
		(f.Age == 0 || int64(time.Since(s.guard.Opened())/time.Second) >= f.Age)
}

// mayKill asks Redis whether this user may, and whether there is a user of that name.
func (s *Session) mayKill(f commands.KillFilter) (line string) {
	probe := []string{"CLIENT", "KILL", "ADDR", "0.0.0.0:0"}
	if f.User != "" {
		probe = append(probe, "USER", f.User)
	}
	return s.objection(probe...)
}

// clientKill closes clients of this proxy; to the lock engine they have been left, not gone: their locks run out.
func (s *Session) clientKill(args [][]byte) {
	f, line := commands.ParseKill(args)
	if objection := s.mayKill(f); objection != "" { // what stands before a mistake counts first
		line = objection
	}
	if line != "" {
		s.error(line)
		return
	}
	killed, myself := 0, false
	for _, c := range s.srv.snapshot() {
		if !c.matches(f) || c == s && f.SkipMe || c.guard.Over() {
			continue
		}
		killed++
		if c == s {
			myself = true
			continue
		}
		c.guard.Cut(downstream.Left, "CLIENT KILL")
	}
	switch {
	case len(args) > 3:
		s.batch.out = resp.AppendInt(s.batch.out, int64(killed))
	case killed == 0:
		s.error("ERR No such client")
	default:
		s.ok()
	}
	if myself {
		s.flush()
		s.guard.HangUp(downstream.Left, "CLIENT KILL")
	}
}
