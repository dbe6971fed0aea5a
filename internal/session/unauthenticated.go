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

// passwordPeriod is for how long Redis' answer is believed that it asks for a password.
const passwordPeriod = 400 * time.Millisecond

// admissionTime is how long Redis may take to say whether it serves a client: longer than the 5 s of its
// busy-reply-threshold.
const admissionTime = 10 * time.Second

// passwordAnswer is what Redis last said of clients that have not authenticated. While it asks for a password they are
// refused here, because Redis closes a connection on which more than 1 KB waits for such clients, and theirs is shared.
// Redis is asked once for all of them.
type passwordAnswer struct {
	turn  sync.Mutex             // who has it asks Redis
	until atomic.Int64           // unix nanoseconds until which the answer is believed
	hello atomic.Pointer[string] // what this Redis says to HELLO without AUTH; nil: not known yet
}

// admission asks Redis whether it serves a client at that address that does not authenticate, and notes what that means
// for all others.
func (s *Server) admission(ctx context.Context, from string) error {
	err := s.up.backend.Admit(ctx, from)
	if err != nil && !client.LogIn(err) {
		return err
	}
	asked := err != nil
	s.protectionLearned(asked, s.access.mustAuth.Swap(asked) != asked)
	return err
}

// asksPassword says whether Redis refuses clients that have not authenticated. While somebody asks it, and when it does
// not answer, the last answer stands.
func (s *Server) asksPassword() bool {
	if time.Now().UnixNano() >= s.access.password.until.Load() && s.access.password.turn.TryLock() {
		if err := s.learnAuth(); err == nil {
			s.access.password.until.Store(time.Now().Add(passwordPeriod).UnixNano())
		}
		s.access.password.turn.Unlock()
	}
	return s.access.mustAuth.Load()
}

// noAuthHello returns what this version of Redis answers to HELLO without AUTH from a client that must authenticate.
func (s *Server) noAuthHello() string {
	if line := s.access.password.hello.Load(); line != nil {
		return *line
	}
	id := s.fresh()
	id.Proto = 3
	_, err := s.askAs(id, "PING")
	if !client.LogIn(err) {
		return noAuth
	}
	line := client.ErrorLine(err)
	s.access.password.hello.Store(&line)
	return line
}
