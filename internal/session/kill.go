package session

import (
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// killFilter is what CLIENT KILL was given; "" and 0 stand for anything.
type killFilter struct {
	id                int64
	addr, laddr, user string
	kind              string // TYPE
	age               int64  // seconds, at least
	skipMe            bool
}

func parseKill(args [][]byte) (f killFilter, line string) {
	if len(args) == 3 {
		return killFilter{addr: string(args[2])}, "" // the old form may kill its own sender
	}
	f.skipMe = true
	for i := 2; i < len(args); i += 2 {
		if i+1 == len(args) {
			return f, syntaxError
		}
		value := args[i+1]
		switch strings.ToUpper(string(args[i])) {
		case "ID":
			n, ok := integer(value)
			if !ok || n < 1 {
				return f, "ERR client-id should be greater than 0"
			}
			f.id = n
		case "MAXAGE": // as of Redis 7.4
			n, ok := integer(value)
			if !ok {
				return f, "ERR maxage is not an integer or out of range"
			}
			if n <= 0 {
				return f, "ERR maxage should be greater than 0"
			}
			f.age = n
		case "TYPE":
			known := false
			if f.kind, known = clientType(value); !known {
				return f, unknownType(value)
			}
		case "ADDR":
			f.addr = string(value)
		case "LADDR":
			f.laddr = string(value)
		case "USER":
			f.user = string(value)
		case "SKIPME":
			switch strings.ToLower(string(value)) {
			case "yes":
				f.skipMe = true
			case "no":
				f.skipMe = false
			default:
				return f, syntaxError
			}
		default:
			return f, syntaxError
		}
	}
	return f, ""
}

func (f killFilter) matches(c *Session) bool {
	c.mu.Lock()
	user := userName(c.ident.User)
	c.mu.Unlock()
	return (f.kind == "" || f.kind == c.kind()) && (f.id == 0 || f.id == c.peer.id) && (f.addr == "" || f.addr == c.peer.addr) &&
		(f.laddr == "" || f.laddr == c.peer.laddr) && (f.user == "" || f.user == user) &&
		(f.age == 0 || int64(time.Since(c.guard.Opened())/time.Second) >= f.age)
}

// mayKill asks Redis whether this user may, and whether there is a user of that name.
func (s *Session) mayKill(f killFilter) (line string) {
	probe := []string{"CLIENT", "KILL", "ADDR", "0.0.0.0:0"}
	if f.user != "" {
		probe = append(probe, "USER", f.user)
	}
	return s.objection(probe...)
}

// clientKill closes clients of this proxy; to the lock engine they have been left, not gone: their locks run out.
func (s *Session) clientKill(args [][]byte) {
	f, line := parseKill(args)
	if objection := s.mayKill(f); objection != "" { // what stands before a mistake counts first
		line = objection
	}
	if line != "" {
		s.error(line)
		return
	}
	killed, myself := 0, false
	for _, c := range s.srv.snapshot() {
		if !f.matches(c) || c == s && f.skipMe || c.guard.Over() {
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
