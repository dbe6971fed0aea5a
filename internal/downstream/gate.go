// Package downstream is the clients' side of the network: it lets them in, by TLS and the PROXY protocol, as many as
// there are places for, and guards their connections. What clients are served is not known here.
package downstream

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/admission"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Bounds are limits that may change while clients are served. Zero is none.
type Bounds struct {
	MaxClients       int
	NormalOutput     OutputLimit
	PubSubOutput     OutputLimit
	IdleTimeout      time.Duration // counts anew when the bounds change
	HandshakeTimeout time.Duration // to the first whole command, and to the password where one is asked for
	Commands         resp.Limits   // but for clients that have yet to send a password: see Reader.SetUnauthenticated
}

// GateOptions set up a Gate. Zero limits are none.
type GateOptions struct {
	Bounds
	MaxQueryMemory int // bytes of unfinished commands of all clients; half as much besides of what clients send that do not read
	MaxReplyMemory int // bytes of replies gathered for all clients together

	// RefuseRemote returns what a client from another machine is told instead of being let in; "" lets it in. nil lets
	// all in.
	RefuseRemote func() (refusal string)
	Admit        func(*Conn) Client // makes the session of a client that may come in
	Logger       *slog.Logger
	Events       *events.Log // gets clients that are not let in
}

// Gate lets clients in, by any number of listeners, and bounds what all of them together may take.
type Gate struct {
	o      GateOptions
	bounds atomic.Pointer[Bounds]
	log    *slog.Logger
	ctx    context.Context

	budgets  budgets
	places   places
	draining atomic.Bool
	finished context.Context // ends by finish
	finish   context.CancelFunc

	mu        sync.Mutex // guards listeners
	listeners []*listener
}

// NewGate makes a Gate without listeners. ctx ends when the last clients are cut off.
func NewGate(ctx context.Context, o GateOptions) *Gate {
	g := &Gate{o: o, log: o.Logger, ctx: ctx, budgets: newBudgets(o.MaxQueryMemory, o.MaxReplyMemory, o.Logger)}
	g.places = places{bounds: &g.bounds, log: o.Logger, events: o.Events, operators: admission.Newest{Most: operatorPlaces}}
	g.finished, g.finish = context.WithCancel(context.WithoutCancel(ctx))
	g.SetBounds(o.Bounds)
	return g
}

// SetBounds puts other bounds in force and says whether they differ from those before. If they do, the caller calls
// BoundsChanged of every Conn, because a client that waits would keep the deadlines of the old ones. Commands applies to
// what is read from then on, the rest of a command that has begun included.
func (g *Gate) SetBounds(b Bounds) (changed bool) {
	before := g.bounds.Swap(&b)
	return before == nil || *before != b
}

// Bounds are those in force.
func (g *Gate) Bounds() *Bounds { return g.bounds.Load() }

// Guard returns a listener whose connections are each a *Conn, of a client that has gone through e and has its place.
// It owns ln. In a drain it closes ln, and ok is false.
func (g *Gate) Guard(ln net.Listener, e Entry) (guarded net.Listener, ok bool) {
	l := newListener(ln, g, e)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining.Load() {
		ln.Close()
		return nil, false
	}
	g.listeners = append(g.listeners, l)
	return l, true
}

// Drain lets nobody in any more. Clients that may leave are closed when their goroutine next checks: see Conn.Wake. The
// listeners are closed, but their Accept blocks until Finish, since redcon would cut off every client at its end.
func (g *Gate) Drain() {
	g.mu.Lock()
	g.draining.Store(true)
	listeners := slices.Clone(g.listeners)
	g.mu.Unlock()
	for _, l := range listeners {
		if l.closed() {
			l.Close()
		}
	}
}

// DrainOperators closes the listeners of operators, too, once a drain waits for nobody else.
func (g *Gate) DrainOperators() {
	g.mu.Lock()
	listeners := slices.Clone(g.listeners)
	g.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
}

// Finish ends Accept of the listeners once their clients have ended.
func (g *Gate) Finish() { g.finish() }

// Places is how many places are taken, by clients in a hand-shake, too.
func (g *Gate) Places() int { return g.places.total() }
