package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/upstream"
)

const noAuth = "NOAUTH Authentication required."

var errNoAuth = &upstream.ReplyError{Line: noAuth}

const (
	// needPeriod is for how long Redis' answer is believed that it asks for a password.
	needPeriod = 400 * time.Millisecond
	// admissionTime is how long Redis may take to say whether it serves a client: longer than the 5 s of its
	// busy-reply-threshold.
	admissionTime = 10 * time.Second
)

// needs is whether Redis asks clients for a password, as it said last. While it does those that have not logged in are
// refused here, because Redis closes a connection on which more than 1 KB waits for such clients, and theirs is shared.
// Redis is asked once for all of them.
type needs struct {
	last  atomic.Uint32          // a need
	known chan struct{}          // closed when it is known for the first time
	turn  sync.Mutex             // who has it asks Redis
	until atomic.Int64           // unix nanoseconds until which the answer is believed
	hello atomic.Pointer[string] // what this Redis says to HELLO without AUTH; nil: not known yet
}

// now is what Redis said last.
func (n *needs) now() need { return need(n.last.Load()) }

// freshNeed is whether Redis asks for a password, and asks it unless the answer is a recent one. While somebody else asks
// it, and when it does not answer, the last answer stands.
func (s *Server) freshNeed() need {
	n := &s.access.needs
	if time.Now().UnixNano() >= n.until.Load() && n.turn.TryLock() {
		if s.learnAuth() == nil {
			n.until.Store(time.Now().Add(needPeriod).UnixNano())
		}
		n.turn.Unlock()
	}
	return n.now()
}

// admission asks Redis whether it serves a client at that address that does not authenticate, and notes what that means
// for all others.
func (s *Server) admission(ctx context.Context, from string) error {
	err := s.up.backend.Admit(ctx, from)
	switch {
	case err == nil:
		s.learnNeed(noPassword)
	case client.LogIn(err):
		s.learnNeed(aPassword)
	}
	return err
}

// learnNeed notes what Redis has said.
func (s *Server) learnNeed(n need) {
	before := need(s.access.needs.last.Swap(uint32(n)))
	if before == n {
		return
	}
	if before == unknown {
		close(s.access.needs.known)
	}
	s.sayProtection()
	// Those that must log in get a deadline for it, and those that may not stay are closed.
	for _, c := range s.clients.snapshot() {
		c.client.Reader.Notify()
	}
}

// learnAuth asks whether clients must authenticate.
func (s *Server) learnAuth() error {
	ctx, cancel := context.WithTimeout(s.ctx, authTime)
	defer cancel()
	if err := s.admission(ctx, ""); !client.LogIn(err) {
		return err
	}
	return nil
}

// noAuthHello returns what this version of Redis answers to HELLO without AUTH from a client that must authenticate.
func (s *Server) noAuthHello() string {
	if line := s.access.needs.hello.Load(); line != nil {
		return *line
	}
	id := s.fresh()
	id.Proto = 3
	_, err := s.askAs(id, "PING")
	if !client.LogIn(err) {
		return noAuth
	}
	line := client.ErrorLine(err)
	s.access.needs.hello.Store(&line)
	return line
}
