package session

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const noAuth = "NOAUTH Authentication required."

// doorPeriod is for how long Redis' word is believed that it asks for a password.
const doorPeriod = 400 * time.Millisecond

// door is how clients are refused that have not authenticated, while Redis asks for a password: here, since Redis closes a connection
// on which it holds for such clients more than a little (1 KB), and theirs is shared. Redis is asked once for all of them.
type door struct {
	turn  sync.Mutex             // who has it asks Redis
	until atomic.Int64           // unix nanoseconds until which Redis' last word is believed
	hello atomic.Pointer[string] // what this Redis says to HELLO without AUTH; nil: not known yet
}

// lockedOut says that this client must authenticate before it may run commands, as far as Redis has said within doorPeriod.
func (s *Session) lockedOut() bool {
	return s.ident.User == "" && s.ident.Password == "" && s.srv.access.mustAuth.Load() && s.srv.doorClosed()
}

// doorClosed is Redis' word on clients that have not authenticated. While somebody asks, and when no answer is to be had, the last
// one stands.
func (s *Server) doorClosed() bool {
	if time.Now().UnixNano() >= s.access.door.until.Load() && s.access.door.turn.TryLock() {
		if err := s.learnAuth(); err == nil {
			s.access.door.until.Store(time.Now().Add(doorPeriod).UnixNano())
		}
		s.access.door.turn.Unlock()
	}
	return s.access.mustAuth.Load()
}

// refusalOf is what Redis 7 says to a command of a client that must authenticate first: it looks for the command, and at the number
// of its words, before it asks who the client is.
func (s *Server) refusalOf(args [][]byte) string {
	t := s.facts.table.Load() // of now: what the session has looked up may be of before Redis told its commands
	c, _ := t.find(args)
	switch {
	case c != nil && !commandtable.ArityFits(c.Arity, len(args)):
		return wrongArity(c.Name)
	case c != nil || !t.Learned():
		return noAuth
	}
	var rest []byte
	for _, word := range args[1:] {
		if len(rest) >= unknownShown {
			break
		}
		rest = append(rest, '\'')
		rest = append(append(rest, shown(word, unknownShown+1-len(rest))...), "' "...)
	}
	return "ERR unknown command '" + string(shown(args[0], unknownShown)) + "', with args beginning with: " + string(rest)
}

// unknownShown is how much of an unknown command Redis shows, of its name and of its other words.
const unknownShown = 128

// shown is as much of a word as Redis shows: up to n bytes, and up to a zero.
func shown(word []byte, n int) []byte {
	word, _, _ = bytes.Cut(word, []byte{0})
	return word[:min(len(word), n)]
}

// refuseRun answers the run as Redis answers clients that must authenticate first.
func (s *Session) refuseRun() {
	for range s.batch.run {
		s.error(noAuth)
	}
}

// noAuthHello is what Redis answers HELLO without AUTH from a client that must authenticate, in the words of its version.
func (s *Server) noAuthHello() string {
	if line := s.access.door.hello.Load(); line != nil {
		return *line
	}
	reply, err := s.askAs(s.fresh(), "HELLO", "3")
	line, refused := resp.ErrorLine(reply)
	if err != nil || !refused {
		return noAuth
	}
	s.access.door.hello.Store(&line)
	return line
}
