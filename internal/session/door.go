package session

import (
	"sync"
	"sync/atomic"
	"time"
)

const noAuth = "NOAUTH Authentication required."

// doorPeriod is for how long Redis' word is believed that it asks for a password.
const doorPeriod = 400 * time.Millisecond

// door is how clients are refused that have not authenticated, while Redis asks for a password: here, since Redis closes a connection
// on which it owes such clients more than a little (1 KB), and theirs is shared. Redis is asked once for all of them.
type door struct {
	turn  sync.Mutex             // who has it asks Redis
	until atomic.Int64           // unix nanoseconds until which Redis' last word is believed
	hello atomic.Pointer[string] // what this Redis says to HELLO without AUTH; nil: not known yet
}

// lockedOut says that this client must authenticate before it may run commands, as far as Redis has said within doorPeriod.
func (s *Session) lockedOut() bool {
	return s.ident.User == "" && s.ident.Password == "" && s.srv.mustAuth.Load() && s.srv.doorClosed()
}

// doorClosed is Redis' word on clients that have not authenticated. While somebody asks, and when no answer is to be had, the last
// one stands.
func (s *Server) doorClosed() bool {
	if time.Now().UnixNano() >= s.door.until.Load() && s.door.turn.TryLock() {
		if err := s.learnAuth(); err == nil {
			s.door.until.Store(time.Now().Add(doorPeriod).UnixNano())
		}
		s.door.turn.Unlock()
	}
	return s.mustAuth.Load()
}

// refuseRun answers the run as Redis answers clients that must authenticate first.
func (s *Session) refuseRun() {
	for range s.batch.run {
		s.error(noAuth)
	}
}

// noAuthHello is what Redis answers HELLO without AUTH from a client that must authenticate, in the words of its version.
func (s *Server) noAuthHello() string {
	if line := s.door.hello.Load(); line != nil {
		return *line
	}
	reply, err := s.askAs(s.fresh(), "HELLO", "3")
	line, refused := isError(reply)
	if err != nil || !refused {
		return noAuth
	}
	s.door.hello.Store(&line)
	return line
}
