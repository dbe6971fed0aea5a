package session

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Locks is the client as the lock engine knows it.
func (s *Session) Locks() *lock.Client {
	if l := s.locks.engine.Load(); l != nil {
		return l
	}
	l := s.srv.o.Locks.NewClient(lock.ClientInfo{ID: s.peer.id, Addr: s.peer.addr, Name: s.Name, User: s.clientUser, Push: s.push, Gone: s.guard.HungUp})
	if s.settings.lib[0] != "" {
		l.SetLibrary(true)
	}
	l.SetUser(s.access.user)
	s.locks.engine.Store(l)
	return l
}

// Name implements commands.Settings; other goroutines may ask.
func (s *Session) Name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.name
}

// clientUser is who it has authenticated as; other goroutines may ask.
func (s *Session) clientUser() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return userName(s.ident.User)
}

// BeginVerb implements commands.Locker. What is lost from now on, the verb may not tell.
func (s *Session) BeginVerb() error {
	err := s.refused()
	if err == nil {
		s.locks.untold.Store(false)
	}
	return err
}

const (
	grantKept  = 3 * time.Second // how long Redis' word on a key is believed
	grantsKept = 64 << 10
	longestKey = 1 << 10 // bytes; longer ones are asked for each time
)

type grant struct {
	of      backend.Backend
	ident   upstream.Identity
	key     string
	write   bool
	command string // in place of a key: one that is answered here
	rights  int64  // as of Server.rights
}

// grants remembers which client may use which key or command, process-wide: its cleaner cannot be stopped.
var grants = sync.OnceValue(func() *expirable.LRU[grant, error] {
	return expirable.NewLRU[grant, error](grantsKept, nil, grantKept)
})

// May is Redis' own word on whether this client may write, or read, key: it is asked as the client with a command
// that changes nothing. The service account itself need not be asked for.
func (s *Session) May(key []byte, write bool) error {
	if s.isService() {
		return nil
	}
	asked := grant{of: s.srv.up.backend, ident: s.ident, key: string(key), write: write, rights: s.srv.access.rights.Load()}
	if err, known := grants().Get(asked); known {
		return err
	}
	var reply []byte
	var err error
	if write {
		reply, err = s.askKey("HDEL", asked.key, "lockproxy:"+strconv.FormatUint(rand.Uint64(), 36))
	} else {
		reply, err = s.askKey("PTTL", asked.key)
	}
	if err != nil {
		return err
	}
	if line, bad := resp.ErrorLine(reply); bad {
		err = &upstream.ReplyError{Line: line}
		if !strings.HasPrefix(line, "NOPERM") {
			return err // the key's or the server's state: not worth keeping
		}
	}
	if len(key) <= longestKey {
		grants().Add(asked, err)
	}
	return err
}

// isService says whether the client is the same user as the lock scripts are.
func (s *Session) isService() bool {
	service := s.srv.o.Service
	return userName(s.ident.User) == userName(service.User) && s.ident.Password == service.PresentPassword()
}

// userName gives Redis' default user its name.
func userName(user string) string {
	if user == "" {
		return "default"
	}
	return user
}

// refused asks Redis, once for an identity, whether this client may run commands at all without authenticating;
// the error says why not. Nobody who has authenticated is asked for. Who is refused gets no connection upstream of its own.
func (s *Session) refused() error {
	era := s.srv.access.era.Load()
	if s.access.admitted == era && !s.srv.access.mustAuth.Load() || s.ident.User != "" || s.ident.Password != "" {
		return nil
	}
	if s.lockedOut() {
		return &upstream.ReplyError{Line: noAuth}
	}
	if s.pipes.Serves() {
		s.admit()
		s.access.admitted = era
		return nil
	}
	ctx := s.clientContext()
	select { // Redis closes a connection that holds much for somebody who has not logged in
	case s.srv.access.asking <- struct{}{}:
	case <-ctx.Done():
		return &upstream.NotSentError{Cause: upstream.ErrLeft}
	}
	reply, err := s.ask("PING")
	<-s.srv.access.asking
	if err != nil {
		return err
	}
	switch line, bad := resp.ErrorLine(reply); {
	case !bad, upstream.SaidInside(line):
	case strings.HasPrefix(line, "BUSY "), strings.HasPrefix(line, "LOADING "), strings.HasPrefix(line, "MASTERDOWN "):
		return nil // Redis asks for a password before it says this, but what it says to the command itself it is to say, SCRIPT KILL for one
	default:
		if strings.HasPrefix(line, "NOAUTH") {
			s.srv.passwordAsked(true) // sooner than its nodes are asked again
		}
		return &upstream.ReplyError{Line: line}
	}
	s.admit()
	s.access.admitted = era // and not one that has begun since it was asked
	return nil
}

// admit notes that Redis lets the client run commands.
func (s *Session) admit() {
	s.access.admitted = s.srv.access.era.Load()
	s.guard.SetLimits(s.srv.limitsFor(true))
}

// held is how many holds this connection has.
func (s *Session) held() int {
	if l := s.locks.engine.Load(); l != nil {
		return l.Held()
	}
	return 0
}
