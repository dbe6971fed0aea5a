package session

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// engine is the client as the lock engine knows it; nil: it has sent no lock verb.
func (s *Session) engine() *lock.Client {
	l, _ := s.client.Locks().(*lock.Client)
	return l
}

// Locks returns the lock engine's client, which the first call makes.
func (s *Session) Locks() *lock.Client {
	if l := s.engine(); l != nil {
		return l
	}
	c := s.client
	l := s.srv.o.Locks.NewClient(lock.ClientInfo{
		ID: c.Number, Addr: c.Addr(), Name: c.Name, User: c.User, Push: s.pushes.add, Gone: c.HungUp,
		Close: func(why string) { c.Cut(downstream.Left, why) },
	})
	l.SetUser(s.access.user)
	c.HasLocks(l)
	return l
}

// BeginVerb implements commands.Locker. The verb's reply may lack what is lost from now on.
func (s *Session) BeginVerb() error {
	err := s.refused()
	if err == nil {
		s.client.Told()
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
		one := grant{of: s.srv.up.backend, ident: s.client.Identity(), key: string(key), write: write, rights: s.srv.access.rights.Load()}
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
	return client.UserName(s.client.Identity().User) == client.UserName(service.User) && s.client.Identity().Password == service.PresentPassword()
}
