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
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Locks returns the lock engine's client, which the first call makes.
func (s *Session) Locks() *lock.Client {
	if l := s.locks.engine.Load(); l != nil {
		return l
	}
	l := s.srv.o.Locks.NewClient(lock.ClientInfo{
		ID: s.peer.id, Addr: s.peer.addr, Name: s.Name, User: s.clientUser, Push: s.push, Gone: s.guard.HungUp,
		Close: func(why string) { s.guard.Cut(downstream.Left, why) },
	})
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

// May returns Redis' refusal if this client may not write, or read, one of the keys. Redis is asked as the client, with
// commands that change nothing, about all keys at once. For the service account it need not be asked.
func (s *Session) May(write bool, keys ...[]byte) error {
	if s.isService() {
		return nil
	}
	var asked []grant
	var questions [][][]byte
	for _, key := range keys {
		one := grant{of: s.srv.up.backend, ident: s.ident, key: string(key), write: write, rights: s.srv.access.rights.Load()}
		err, known := grants().Get(one)
		if err != nil {
			return err
		}
		if !known {
			asked, questions = append(asked, one), append(questions, one.question())
		}
	}
	if len(asked) == 0 {
		return nil
	}
	replies, err := s.pipes.AskKeys(questions)
	if err != nil {
		return err
	}
	for i, reply := range replies {
		if err := asked[i].answered(reply); err != nil {
			return err
		}
	}
	return nil
}

// question is what Redis is asked about a key.
func (g grant) question() [][]byte {
	if g.write {
		return [][]byte{[]byte("HDEL"), []byte(g.key), []byte("lockproxy:" + strconv.FormatUint(rand.Uint64(), 36))}
	}
	return [][]byte{[]byte("PTTL"), []byte(g.key)}
}

// answered keeps what Redis has said about a key, and returns its refusal.
func (g grant) answered(reply []byte) error {
	var err error
	if line, bad := resp.ErrorLine(reply); bad {
		err = &upstream.ReplyError{Line: line}
		if !strings.HasPrefix(line, "NOPERM") {
			return err // the key's or the server's state: not worth keeping
		}
	}
	if len(g.key) <= longestKey {
		grants().Add(g, err)
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
