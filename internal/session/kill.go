package session

import (
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// meant says whether a client is one that CLIENT KILL means.
func (c *Session) meant(f commands.KillFilter) bool {
	c.mu.Lock()
	user := userName(c.ident.User)
	c.mu.Unlock()
	return (f.Kind == "" || f.Kind == c.kind()) && (f.ID == 0 || f.ID == c.peer.id) && (f.Addr == "" || f.Addr == c.peer.addr) &&
		(f.LAddr == "" || f.LAddr == c.peer.laddr) && (f.User == "" || f.User == user) &&
		(f.Age == 0 || int64(time.Since(c.guard.Opened())/time.Second) >= f.Age)
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
		if !c.meant(f) || c == s && f.SkipMe || c.guard.Over() {
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
