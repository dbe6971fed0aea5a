package world

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// The delay of a message on a link that nobody has touched is at least Base, and less than Base+Spread.
const (
	Base   = 40 * time.Microsecond
	Spread = 60 * time.Microsecond
)

// Proxy is one end of links: a process with connections to nodes.
type Proxy struct {
	w    *World
	name string
}

// Proxy returns the proxy of that name.
func (w *World) Proxy(name string) *Proxy { return &Proxy{w, name} }

type linkName struct{ proxy, addr string }

// Link is the way from one proxy to one node: all connections between the two.
type Link struct {
	w    *World
	node *Node
	name string

	// guarded by World.mu
	base, spread time.Duration
	far, blur    time.Duration // base and spread of a link that is healed
	refused      bool          // connections are refused
	mute         Way           // nothing comes through that way
	conns        map[*conn]struct{}
	changed      chan struct{} // closed when mute or refused change
}

// Way is a direction on a link.
type Way int

// The directions.
const (
	Requests Way = 1 << iota
	Replies
	Both = Requests | Replies
)

// Link is the link from p to the node with that address, which must exist.
func (p *Proxy) Link(addr string) *Link {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.link(p.name, addr)
}

// link makes the link if need be; nil: no such node. mu is held.
func (w *World) link(proxy, addr string) *Link {
	n := w.nodes[addr]
	if n == nil {
		return nil
	}
	name := linkName{proxy, addr}
	l := w.links[name]
	if l == nil {
		l = &Link{w: w, node: n, name: proxy + ">" + addr, base: Base, spread: Spread, far: Base, blur: Spread, conns: map[*conn]struct{}{}, changed: make(chan struct{})}
		w.links[name] = l
	}
	return l
}

// Far is Delay for good: Heal does not end it.
func (l *Link) Far(base, spread time.Duration) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.base, l.spread, l.far, l.blur = base, spread, base, spread
}

// Delay has every message take at least base, and less than base+spread, until Heal.
func (l *Link) Delay(base, spread time.Duration) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.base, l.spread = base, spread
}

// Cut ends all connections and refuses new ones, until Heal.
func (l *Link) Cut() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.refused = true
	l.change()
	l.breakAll(errReset)
}

// Drop ends all connections; new ones can be made at once.
func (l *Link) Drop() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.breakAll(errReset)
}

// Swallow has nothing come through any more in one direction, or both, until Heal. Who sends is told nothing, and new connections
// hang. Connections on which something was swallowed stay silent for good; on the others all goes on at Heal.
func (l *Link) Swallow(way Way) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.mute |= way
	l.change()
}

// Heal ends what Cut, Swallow and Delay began.
func (l *Link) Heal() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.refused, l.mute, l.base, l.spread = false, 0, l.far, l.blur
	l.change()
}

// Connections is how many there are.
func (l *Link) Connections() int {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return len(l.conns)
}

// change wakes those who dial. mu is held.
func (l *Link) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// breakAll ends all connections, for both ends. mu is held.
func (l *Link) breakAll(err error) {
	for c := range l.conns {
		c.end(err)
	}
}

// delay is how long a message takes that is sent now. mu is held.
func (l *Link) delay(now time.Time, what string, trail uint64) time.Duration {
	return l.base + time.Duration(mix(l.w.hash(l.name+what)^uint64(now.Sub(l.w.start))^trail)%uint64(max(l.spread, 1)))
}

var (
	errReset   = error(&net.OpError{Op: "read", Net: "world", Err: os.NewSyscallError("read", syscall.ECONNRESET)})
	errRefused = error(&net.OpError{Op: "dial", Net: "world", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
	errNoHost  = errors.New("world: no node has this address")
)

// Dial connects to a node: a Proxy is the Dialer of an upstream.Target. It takes as long as a round trip.
func (p *Proxy) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	w := p.w
	for {
		w.mu.Lock()
		l := w.link(p.name, addr)
		if l == nil {
			w.mu.Unlock()
			return nil, &net.OpError{Op: "dial", Net: "world", Err: errNoHost}
		}
		trip := time.NewTimer(2 * l.delay(time.Now(), "dial", 0))
		w.mu.Unlock()
		select {
		case <-trip.C:
		case <-ctx.Done():
			trip.Stop()
			return nil, &net.OpError{Op: "dial", Net: "world", Err: ctx.Err()}
		}
		w.mu.Lock()
		mute, changed := l.mute != 0, l.changed
		switch {
		case mute && !w.closed: // the SYN, or its answer, is lost
			w.mu.Unlock()
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil, &net.OpError{Op: "dial", Net: "world", Err: ctx.Err()}
			}
		case l.refused || l.node.down || w.closed:
			w.mu.Unlock()
			return nil, errRefused
		}
		c := l.connect()
		w.mu.Unlock()
		return c, nil
	}
}
