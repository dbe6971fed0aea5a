package session

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

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

// grants remembers which client may use which key or command. There is one in the process, because its cleaner cannot
// be stopped.
var grants = sync.OnceValue(func() *expirable.LRU[grant, error] {
	return expirable.NewLRU[grant, error](grantsKept, nil, grantKept)
})

// May returns Redis' refusal if this client may not write, or read, one of the keys.
func (a *access) May(write bool, keys ...[]byte) error {
	refusals, err := a.Refusals(write, keys...)
	for i := 0; err == nil && i < len(refusals); i++ {
		if err = refusals[i]; err != nil && write {
			e := eventOf(events.Refusal, a.client, err.Error())
			e.Lock, e.Key, e.DB = true, string(keys[i]), a.client.Identity().DB
			a.srv.o.Events.Add(e)
		}
	}
	return err
}

// Refusals returns for each of the keys Redis' refusal, nil if this client may write, or read, it; none: it may all.
// Redis is asked as the client, with commands that change nothing, about all keys at once. For the service account it
// need not be asked.
func (a *access) Refusals(write bool, keys ...[]byte) (refusals []error, err error) {
	if a.isService() {
		return nil, nil
	}
	var asked []grant
	var questions [][][]byte
	var places []int // of keys
	refusals = make([]error, len(keys))
	for i, key := range keys {
		one := grant{of: a.srv.up.backend, ident: a.client.Identity(), key: string(key), write: write,
			rights: a.srv.access.rights.Load()}
		err, known := grants().Get(one)
		switch {
		case err != nil:
			refusals[i] = err
		case !known:
			asked, questions, places = append(asked, one), append(questions, one.question()), append(places, i)
		}
	}
	if len(asked) == 0 {
		return refusals, nil
	}
	replies, err := a.pipes.AskKeys(questions)
	for i, reply := range replies {
		refusals[places[i]] = asked[i].keepAnswer(reply, a.srv.o.Locks.Elsewhere())
	}
	return refusals, err
}

// question is what Redis is asked about a key.
func (g grant) question() [][]byte {
	if g.write {
		return [][]byte{[]byte("HDEL"), []byte(g.key), []byte("lockproxy:" + strconv.FormatUint(rand.Uint64(), 36))}
	}
	return [][]byte{[]byte("PTTL"), []byte(g.key)}
}

// ofState are the first words of errors about the state of a key or a Redis, which Redis gives to those alone who may
// run the command.
var ofState = []string{"MISCONF", "NOREPLICAS", "OOM", "READONLY", "WRONGTYPE"}

// keepAnswer keeps what Redis has said about a key, and returns its refusal. The state of the key and of Redis matters
// to a lock unless that is elsewhere.
func (g grant) keepAnswer(reply []byte, elsewhere bool) error {
	var err error
	line, bad := resp.ErrorLine(reply)
	switch word, _, _ := strings.Cut(line, " "); {
	case !bad || elsewhere && slices.Contains(ofState, word):
	case word == "NOPERM":
		err = &upstream.ReplyError{Line: line}
	default:
		return &upstream.ReplyError{Line: line} // not worth keeping
	}
	if len(g.key) <= longestKey {
		grants().Add(g, err)
	}
	return err
}

// isService says whether the client is the user that this proxy is at the upstream.
func (a *access) isService() bool {
	service := a.srv.o.Service
	return client.UserName(a.client.Identity().User) == client.UserName(service.User) &&
		a.client.Identity().Password == service.PresentPassword()
}

// forbidden returns Redis' error if the client's user may not run c, which lockproxy answers itself. It is "" when
// Redis cannot be asked, because the answer does not need Redis.
func (a *access) forbidden(c *commandtable.Command) (line string) {
	refusal, err := a.refusal(grant{command: c.Name}, func() ([]byte, error) {
		return a.Ask(backend.Destination{}, bytesOf(c.Probe)...)
	})
	if err != nil || refusal == nil {
		return ""
	}
	return client.ErrorLine(refusal)
}

// refusal returns Redis' NOPERM to a call of a command as this client, or nil. The answer is kept for grantKept. The
// error says that Redis cannot be asked. For the service account nothing is asked.
func (a *access) refusal(asked grant, call func() ([]byte, error)) (refusal, err error) {
	if a.isService() || a.client.Peer.Operator {
		return nil, nil
	}
	asked.of, asked.ident, asked.rights = a.srv.up.backend, a.client.Identity(), a.srv.access.rights.Load()
	if refusal, known := grants().Get(asked); known {
		return refusal, nil
	}
	reply, err := call()
	if err != nil {
		return nil, err
	}
	if line, bad := resp.ErrorLine(reply); bad && strings.HasPrefix(line, "NOPERM") {
		refusal = &upstream.ReplyError{Line: line}
	}
	if len(asked.key) <= longestKey {
		grants().Add(asked, refusal)
	}
	return refusal, nil
}

// SeesClients says whether the client's user may run CLIENT LIST; false when Redis cannot be asked.
func (a *access) SeesClients() bool {
	refusal, err := a.refusal(grant{command: "client|list"}, func() ([]byte, error) {
		return a.Ask(backend.Destination{}, bytesOf([]string{"CLIENT", "LIST", "ID", "0"})...)
	})
	return refusal == nil && err == nil
}

// MayDelete returns Redis' refusal if the client's user may not run DEL of that key, or MULTI, by which Redis is asked:
// it looks at a user's rights when it queues a command. DEL of another key would be another question, since a user may
// have rights to some keys alone.
func (a *access) MayDelete(key []byte) error {
	refusal, err := a.refusal(grant{command: "del", key: string(key)}, func() ([]byte, error) {
		reply, err := a.Ask(backend.Queued(), []byte("DEL"), key)
		if line, bad := resp.ErrorLine(reply); err == nil && bad && !judged(line) {
			err = &upstream.ReplyError{Line: line}
		}
		return reply, err
	})
	return cmp.Or(err, refusal)
}

// judged says by an error of Redis' that it has looked at the user's rights: it does so before it redirects.
func judged(line string) bool {
	return strings.HasPrefix(line, "NOPERM") || strings.HasPrefix(line, "MOVED ") || strings.HasPrefix(line, "ASK ")
}
