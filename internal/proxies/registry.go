// Package proxies is how the proxies before one Redis know of each other: the name of each one's connections there says
// who it is, and where, and CLIENT LIST shows it. That is for what people are shown, and nothing else waits for it.
package proxies

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	// TTL is for how long a proxy is believed to be there after its connections were last seen: it makes them again
	// after a failover.
	TTL = 10 * time.Second
	// Fresh is how long an answer of Redis is used, askTime how long one may take.
	fresh, askTime = 3 * time.Second, time.Second
	mostProxies    = 256
	// goneFor is how long it is known of a proxy that it was there, mostGone of how many.
	goneFor, mostGone = time.Hour, 16
)

// Record is what a proxy says of itself.
type Record struct {
	Host    string // the name of its machine
	Addr    string // where its clients connect to
	Page    string // host:port of its page; "": there is none, or it is not known
	Secure  bool   // its page has TLS
	Version string
	Started time.Time
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
	Self    Proxy
	Service string // the user as whom proxies are connected: nobody else's connections are believed
	Quorum  bool   // locks are elsewhere: their proxies may have another Redis for data
	// Ask has all nodes that answer say CLIENT LIST, as the service account.
	Ask func(context.Context) ([]resp.Reply, error)
}

// Registry is what is known of the proxies. All its methods may be called on nil, which knows of none. They ask Redis if
// nobody has for a while, and take askTime at most.
type Registry struct {
	o       Options
	turn    sync.Mutex       // who has it asks Redis; the others use what is known. It guards asked
	asked   time.Time        // when Redis was asked last
	mu      sync.Mutex       // guards what follows
	known   map[string]Proxy // by their ids
	trouble error            // why they may not be all; nil: they are
}

var (
	errNotYet   = errors.New("nobody has asked Redis for them yet")
	errNotWhole = errors.New("a list by Redis without the connections of this proxy may leave out those of others")
)

// New is a Registry that has not asked yet.
func New(o Options) *Registry { return &Registry{o: o, known: map[string]Proxy{}, trouble: errNotYet} }

// look asks Redis, unless it was asked a moment ago or is being asked.
func (r *Registry) look() {
	if !r.turn.TryLock() {
		return
	}
	defer r.turn.Unlock()
	if time.Since(r.asked) < fresh {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	lists, err := r.o.Ask(ctx)
	r.asked = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble = err; err == nil {
		r.trouble = r.learn(lists, r.asked)
	}
}

// learn notes the proxies of the lists, and forgets the oldest of those that have gone. The error is why the lists are not
// whole. The mutex is held.
func (r *Registry) learn(lists []resp.Reply, now time.Time) (trouble error) {
	seen := map[string]Record{}
	for _, list := range lists {
		if list.Kind == '-' {
			trouble = errors.New(string(list.Text))
			continue
		}
		listed(string(list.Text), r.o.Service, seen)
	}
	for id, record := range seen {
		if _, before := r.known[id]; before || len(r.known) < mostProxies {
			r.known[id] = Proxy{ID: id, Record: record, Until: now.Add(TTL)}
		}
	}
	if _, self := seen[r.o.Self.ID]; !self {
		trouble = cmp.Or(trouble, errNotWhole)
	}
	if trouble == nil {
		r.forget(now)
	}
	return trouble
}

// forget notes who has gone, and forgets the oldest of them. The mutex is held.
func (r *Registry) forget(now time.Time) {
	var gone []Proxy
	for id, p := range r.known {
		if now.After(p.Until) {
			p.Gone = true
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
	r.look()
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.known {
		if id != r.o.Self.ID {
			all = append(all, p)
		}
	}
	now := time.Now()
	slices.SortFunc(all, func(a, b Proxy) int {
		if a.Gone != b.Gone {
			return cmp.Compare(b.Until.Sub(now), a.Until.Sub(now))
		}
		return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.ID, b.ID))
	})
	return all, r.trouble
}

// Self is this proxy, as others see it.
func (r *Registry) Self() Proxy {
	if r == nil {
		return Proxy{}
	}
	if p, seen := r.self(); seen {
		return p
	}
	r.look()
	p, _ := r.self()
	return p
}

// self is Self, as far as it is known.
func (r *Registry) self() (p Proxy, seen bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, seen = r.known[r.o.Self.ID]; !seen {
		p = r.o.Self
	}
	return p, seen
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
	if r == nil || !is || id == r.o.Self.ID {
		return p, false, false
	}
	r.look()
	r.mu.Lock()
	defer r.mu.Unlock()
	p, known = r.known[id]
	whole := r.trouble == nil && !r.o.Quorum
	return p, known, whole && !known
}
