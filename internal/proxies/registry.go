// Package proxies is how the proxies before one Redis know of each other: each says in a hash there that it is there,
// and where. That is for what people are shown, and nothing else waits for it.
package proxies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	key = "lockproxy_proxies"
	// TTL is for how long a proxy is believed to be there that says nothing more. It says so every few seconds, and
	// when it goes.
	TTL   = 10 * time.Second
	every = 3 * time.Second
	// AskTime is for an answer of Redis, leaveTime for the last one.
	askTime, leaveTime = 2 * time.Second, 500 * time.Millisecond

	mostProxies = 256
	mostRecord  = 1024 // bytes
	// GoneFor is how long it is known of a proxy that it was there, mostGone of how many.
	goneFor, mostGone = time.Hour, 16
	// AddressRounds is after how many rounds the machine's address is looked for again.
	addressRounds = 20
)

// Record is what a proxy says of itself.
type Record struct {
	Host    string    `json:"host"`           // the name of its machine
	Addr    string    `json:"addr,omitempty"` // where its clients connect to
	Page    string    `json:"page,omitempty"` // host:port of its page; "": there is none
	Cert    string    `json:"cert,omitempty"` // the SHA-256 of its page's certificate, in hex; "": it has no TLS
	Version string    `json:"version"`
	Started time.Time `json:"started"`
}

// Proxy is one that was heard of.
type Proxy struct {
	ID string
	Record
	Until time.Time // when it counts as gone, if nothing more is heard of it
	Gone  bool      // Redis knows nothing of it since then
}

// Options set a Registry up.
type Options struct {
	ID     string // of this proxy
	Quorum bool   // locks are elsewhere: their proxies may have another Redis for data
	Log    *slog.Logger
	// Address is the address that this machine has for others; "": that is not known. Say is what the proxy says of
	// itself then.
	Address func(context.Context) string
	Say     func(address string) Record
}

// Ask sends a command to the node that has the key at words[at]. It may have been done if there is an error.
type Ask func(ctx context.Context, words [][]byte, at int) ([]byte, error)

// Registry is what is known of the proxies. All its methods may be called on nil, which knows of none.
type Registry struct {
	o       Options
	mu      sync.Mutex       // guards what follows
	known   map[string]Proxy // by their ids
	trouble error            // why Redis last did not; nil: it did
	told    string           // of Redis' refusals the one that the log has
	address string           // of this machine; "": not known yet
}

var (
	errNotYet = errors.New("Redis has not been asked for them")
	errOther  = &refusal{"ERR the key " + key + " has too much in it, or is no hash: others have written it"}
	errAnswer = errors.New("ERR the reply to the script is none")
)

// New is a Registry that knows nothing before Run.
func New(o Options) *Registry { return &Registry{o: o, known: map[string]Proxy{}, trouble: errNotYet} }

// Run says that this proxy is there, and learns who else is, until ctx ends.
func (r *Registry) Run(ctx context.Context, ask Ask) {
	found := false
	for n := 0; ; n++ {
		if n%addressRounds == 0 || !found {
			found = r.findAddress(ctx)
		}
		r.round(ctx, ask)
		if !retry.Sleep(ctx, every, nil) {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	_, _ = r.ask(ctx, ask, 0, "") // it is over in ten seconds anyway
}

// findAddress looks anew for the address of this machine: a name of Redis may have to be looked up.
func (r *Registry) findAddress(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	at := r.o.Address(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.address = cmp.Or(at, r.address)
	return r.address != ""
}

// round says it once.
func (r *Registry) round(ctx context.Context, ask Ask) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	text, _ := json.Marshal(r.Self().Record) // there is nothing in it that cannot be
	reply, err := r.ask(ctx, ask, TTL, string(text))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble = err; err == nil {
		r.learn(reply.Elems[1:], time.Now())
	}
	var refused *refusal
	if errors.As(err, &refused) && r.told != refused.line {
		r.told = refused.line
		r.o.Log.Warn("other proxies do not know of this one, nor it of them", "error", err)
	}
}

// refusal is an error in Redis' words.
type refusal struct{ line string }

func (e *refusal) Error() string { return e.line }

// ask runs the script.
func (r *Registry) ask(ctx context.Context, ask Ask, length time.Duration, said string) (reply resp.Reply, err error) {
	words := [][]byte{[]byte("EVAL"), []byte(scripts.Proxies.Source), []byte("1"), []byte(key), []byte(r.o.ID),
		strconv.AppendInt(nil, length.Milliseconds(), 10), []byte(said), strconv.AppendInt(nil, mostProxies, 10)}
	raw, err := ask(ctx, words, 3)
	if err != nil {
		return reply, err
	}
	if line, bad := resp.ErrorLine(raw); bad {
		return reply, &refusal{line}
	}
	reply, _ = resp.ParseReply(raw)
	switch {
	case len(reply.Elems)%3 != 1:
		return reply, errAnswer
	case string(reply.Elems[0].Text) == "0":
		return reply, errOther
	}
	return reply, nil
}

// learn notes the proxies of a reply, and forgets the oldest of those that have gone. The mutex is held.
func (r *Registry) learn(all []resp.Reply, now time.Time) {
	for ; len(all) > 0; all = all[3:] {
		id, said := string(all[0].Text), all[2].Text
		p := Proxy{ID: id}
		left, ok := resp.Integer(all[1].Text)
		if !ok || len(said) > mostRecord || !lockstore.IsUUID(id) || json.Unmarshal(said, &p.Record) != nil {
			continue
		}
		p.Until = now.Add(min(time.Duration(left)*time.Millisecond, TTL))
		r.known[id] = p
	}
	var gone []Proxy
	for id, p := range r.known {
		if p.Gone = now.After(p.Until); p.Gone {
			r.known[id] = p
			gone = append(gone, p)
		}
	}
	slices.SortFunc(gone, func(a, b Proxy) int { return b.Until.Compare(a.Until) })
	for i, p := range gone {
		if i >= mostGone || now.Sub(p.Until) > goneFor {
			delete(r.known, p.ID)
		}
	}
}

// All are the other proxies that are known, those that are there first, and why there may be more; nil: there are not.
func (r *Registry) All() (all []Proxy, trouble error) {
	if r == nil {
		return nil, errNotYet
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.known {
		if id != r.o.ID {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Proxy) int {
		if a.Gone != b.Gone {
			return b.Until.Compare(a.Until)
		}
		return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.ID, b.ID))
	})
	return all, r.trouble
}

// Self is this proxy, as it says of itself.
func (r *Registry) Self() Proxy {
	if r == nil {
		return Proxy{}
	}
	r.mu.Lock()
	address := r.address
	r.mu.Unlock()
	return Proxy{ID: r.o.ID, Record: r.o.Say(address), Until: time.Now().Add(TTL)}
}

// State is how another proxy is, as far as its page tells, or this one.
type State struct {
	Proxy
	State        string    // self, up, down or gone
	Trouble      string    // why its locks are not known, if they are not
	Since        time.Time // it has been so
	Holds, Waits int
}

// Here is how this proxy is; trouble is why there may be others than are known.
func Here(self Proxy, trouble error, holds, waits int) State {
	s := State{Proxy: self, State: "self", Since: self.Started, Holds: holds, Waits: waits}
	if trouble != nil {
		s.Trouble = "others may be missing: " + trouble.Error()
	}
	return s
}

// Of is the other proxy whose connection an owner is. none: it is no proxy's.
func (r *Registry) Of(owner string) (p Proxy, known, none bool) {
	id, _, is := lockstore.ConnectionIn(owner)
	if r == nil || !is || id == r.o.ID {
		return p, false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p, known = r.known[id]
	whole := r.trouble == nil && !r.o.Quorum
	return p, known, whole && !known
}
