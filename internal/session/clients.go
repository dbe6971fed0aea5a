package session

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/own"
	"github.com/lockproxy/lockproxy/internal/proxies"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// clients are the present sessions, and what clients see of one another, and do to one another: see commands.Proxy.
type clients struct {
	mu       sync.Mutex
	sessions map[int64]*Session
	last     int64 // number of the newest one
	events   *events.Log
	running  sync.WaitGroup // from admit to when redcon has let go of the connection
	n        atomic.Int64

	about   func() *commands.ProxyFacts
	fields  atomic.Pointer[commands.ClientFields] // of Redis' own CLIENT INFO; nil: not known
	proxies *proxies.Exchange
}

// addSession gives a new connection its number and its session.
func (cs *clients) addSession(s *Server, g *downstream.Conn) *Session {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.last++
	c := newSession(s, g, cs.last)
	cs.sessions[cs.last] = c
	cs.running.Add(1)
	cs.n.Add(1)
	return c
}

// forgetSession frees the place of a session that has ended.
func (cs *clients) forgetSession(c *Session) {
	cs.mu.Lock()
	delete(cs.sessions, c.client.Number)
	cs.mu.Unlock()
	c.client.Place.Leave()
	cs.n.Add(-1)
}

// session finds a client by its number; nil: it has gone.
func (cs *clients) session(number int64) *Session {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.sessions[number]
}

// lookStuck takes the lock that every new client needs.
func (cs *clients) lookStuck() { cs.session(0) }

// snapshot lists the sessions of the moment, oldest first.
func (cs *clients) snapshot() []*Session {
	cs.mu.Lock()
	all := slices.Collect(maps.Values(cs.sessions))
	cs.mu.Unlock()
	slices.SortFunc(all, func(a, b *Session) int { return int(a.client.Number - b.client.Number) })
	return all
}

// connections finds a client's own connections by its number; nil: it has gone.
func (cs *clients) connections(number int64) *own.Connections {
	if c := cs.session(number); c != nil {
		return c.own
	}
	return nil
}

// conns lists the connections of all clients.
func (cs *clients) conns(to []*downstream.Conn) []*downstream.Conn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.sessions {
		to = append(to, c.client.Conn)
	}
	return to
}

// unacknowledged lists the clients that have sent nothing since before, and to which something was written.
func (cs *clients) unacknowledged(before int64, to []*downstream.Conn) []*downstream.Conn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.sessions {
		if c.client.Writer.Unacknowledged() && c.activity.active.Load() < before {
			to = append(to, c.client.Conn)
		}
	}
	return to
}

// About implements commands.Proxy.
func (cs *clients) About() *commands.ProxyFacts { return cs.about() }

// Client implements commands.Proxy.
func (cs *clients) Client(number int64) commands.ClientFacts {
	if c := cs.session(number); c != nil {
		return c.facts()
	}
	return commands.ClientFacts{}
}

// Clients implements commands.Proxy.
func (cs *clients) Clients() (all []commands.ClientFacts) {
	for _, c := range cs.snapshot() {
		all = append(all, c.facts())
	}
	return all
}

// Fields implements commands.Proxy.
func (cs *clients) Fields() commands.ClientFields {
	if told := cs.fields.Load(); told != nil {
		return *told
	}
	return nil
}

// LearnFields implements commands.Proxy. A client has asked as itself, so that the service account needs neither CLIENT
// INFO nor CLIENT LIST.
func (cs *clients) LearnFields(fields commands.ClientFields) {
	if fields != nil {
		cs.fields.Store(&fields)
	}
}

// Holders implements commands.Proxy.
func (cs *clients) Holders(n int, part string) (some []commands.ClientHolds, of int) {
	type holder struct {
		of *Session
		commands.ClientHolds
	}
	var all []holder
	for _, c := range cs.snapshot() {
		if part != "" && !c.facts().Has(part) {
			continue
		}
		h := holder{of: c}
		if l := c.locks.Load(); l != nil {
			h.Locks = l.Held()
			h.WaitsFor, h.Waited = l.Waits()
		}
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b holder) int {
		return cmp.Or(cmp.Compare(b.Locks, a.Locks), cmp.Compare(b.Waited, a.Waited))
	})
	for _, h := range all[:min(n, len(all))] {
		h.ClientFacts = h.of.facts()
		some = append(some, h.ClientHolds)
	}
	return some, len(all)
}

// Kill implements commands.Proxy.
func (cs *clients) Kill(f commands.KillFilter, by int64, who string) (killed int, itself bool) {
	for _, c := range cs.snapshot() {
		if !f.Matches(c.facts()) || c.client.Number == by && f.SkipMe || c.client.End.Over() {
			continue
		}
		killed++
		if c.client.Number == by {
			itself = true
			continue
		}
		c.client.End.Cut(downstream.Left, "CLIENT KILL")
		cs.events.Add(eventOf(events.Kill, c.client, "by "+who))
	}
	return killed, itself
}

// eventOf is what has happened to a client.
func eventOf(k events.Kind, c *client.Client, reason string) events.Event {
	return events.Event{At: time.Now(), Kind: k, Client: events.Client{Addr: c.Peer.Addr, User: c.User(), Name: c.Name()},
		Reason: reason}
}

// Unblock implements commands.Proxy.
func (cs *clients) Unblock(number int64, fails bool, by commands.Access) ([]byte, error) {
	cause, how := lock.ErrNotAcquired, "TIMEOUT"
	if fails {
		cause, how = commands.ErrUnblocked, "ERROR"
	}
	c := cs.session(number)
	if c == nil {
		return resp.AppendInt(nil, 0), nil
	}
	if c.wakeWait(cause) {
		return resp.AppendInt(nil, 1), nil
	}
	for _, v := range []*dedicated.View{&c.own.View, &c.own.Waits} {
		v.Named.Add(1)
		defer v.Named.Add(-1)
		if v.Blocked.Load() && v.RedisID.Load() != 0 {
			words := []string{"CLIENT", "UNBLOCK", strconv.FormatInt(v.RedisID.Load(), 10), how}
			return by.Ask(backend.AtNode(v.Node.Load()), bytesOf(words)...)
		}
	}
	return resp.AppendInt(nil, 0), nil
}
