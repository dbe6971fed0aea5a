package session

import (
	"errors"
	"strconv"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/proto/resp"
)

const noSuchTarget = "ERR The client ID you want redirect to does not exist"

// redirected is CLIENT TRACKING as Redis is to see it: whom to redirect to is named by its number at this proxy, and
// Redis must be told that of its connection. The target has one once it has subscribed.
func (s *Session) redirected(p *pinned, e *expect, cmd redcon.Command) []byte {
	var args [][]byte
	for i := 3; i+1 < len(cmd.Args); i++ {
		if equalFold(cmd.Args[i], "PREFIX") {
			i++
			continue
		}
		if !equalFold(cmd.Args[i], "REDIRECT") {
			continue
		}
		id, ok := integer(cmd.Args[i+1])
		if i++; !ok || id == 0 {
			continue // Redis' to judge
		}
		target := s.target(p, id)
		if target == 0 {
			e.instead, e.effect = noSuchTarget, effect{}
			return marking
		}
		if args == nil {
			args = append(args, cmd.Args...)
		}
		args[i] = strconv.AppendInt(nil, target, 10)
	}
	if args == nil {
		return cmd.Raw
	}
	return encode(args)
}

// target is the number at Redis of a client's own connection, which is from now on not for others: Redis would send
// them what it redirects.
func (s *Session) target(p *pinned, id int64) int64 {
	if id == s.id {
		s.view.named.Add(1)
		return p.conn.RedisID()
	}
	c := s.srv.session(id)
	if c == nil {
		return 0
	}
	c.view.named.Add(1)
	return c.view.redisID.Load()
}

// clientGetRedir is CLIENT GETREDIR, whose answer is a number at this proxy.
func (s *Session) clientGetRedir(args [][]byte) {
	p := s.pinnedNow()
	if p == nil {
		s.relay(s.askRaw(encode(args)))
		return
	}
	answer, err := p.ask(&expect{}, "CLIENT", "GETREDIR")
	if err == nil && len(answer) > 3 && answer[0] == ':' {
		n, ok := integer(answer[1 : len(answer)-2])
		if !ok {
			err = errors.New("CLIENT GETREDIR was answered with something else")
		}
		answer = resp.AppendInt(nil, s.srv.clientOf(n))
	}
	s.relay(answer, err)
}

// clientOf is the number here of the client whose own connection has this number at Redis; numbers that are nobody's
// are left as they are.
func (s *Server) clientOf(redisID int64) int64 {
	if redisID > 0 {
		for _, c := range s.snapshot() {
			if c.view.redisID.Load() == redisID {
				return c.id
			}
		}
	}
	return redisID
}
