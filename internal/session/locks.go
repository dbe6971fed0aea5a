package session

import (
	"context"
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

// Locks returns the lock engine's client, which the first call makes.
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

// Traced implements commands.Locker.
func (s *Session) Traced(ctx context.Context) context.Context { return s.settings.parent.Over(ctx) }

// Name implements commands.Settings; other goroutines may ask.
func (s *Session) Name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.name
}

// clientUser returns the name of the client's user; other goroutines may ask.
func (s *Session) clientUser() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return userName(s.ident.User)
}

// BeginVerb implements commands.Locker. The verb's reply may lack what is lost from now on.
func (s *Session) BeginVerb() error {
	err := s.refused()
	if err == nil {
		s.locks.untold.Store(false)
	}
	return err
}

const (
	grantKept  = 3 * time.Second // how long Redis' answer about a key is believed
	grantsKept = 64 << 10
	longestKey = 1 << 10 // bytes; longer ones are asked for each time
)

type grant struct {
	of      backend.Backend
	ident   upstream.Identity
	key     string
	write   bool
	command string // in place of a key: one that is answered here
	rights  int64  // serverAccess.rights when Redis was asked
}

// grants remembers which client may use which key or command. There is one in the process, because its cleaner cannot be stopped.
var grants = sync.OnceValue(func() *expirable.LRU[grant, error] {
	return expirable.NewLRU[grant, error](grantsKept, nil, grantKept)
})

// May returns Redis' refusal if this client may not write, or read, key. Redis is asked as the client, with a
// command that changes nothing. For the service account it need not be asked.
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

// held returns how many holds this connection has.
func (s *Session) held() int {
	if l := s.locks.engine.Load(); l != nil {
		return l.Held()
	}
	return 0
}
