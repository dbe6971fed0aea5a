package webserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
)

// mostConnections is how many there may be at once. Files are kept for them: see --max-clients.
const mostConnections = 48

// places is a listener with room for so many connections. When all are taken, the newcomer gets the place of one for which no handler is at work:
// it has said nothing, or nothing more, or does not read its answer. Of the address that has most of these the one goes that has been at rest
// for longest. So strangers take places from each other only, and a request that comes whole is answered. While a handler is at work for
// each, the newcomer waits.
type places struct {
	net.Listener
	most int

	mu     sync.Mutex // guards all below, and guests
	guests []*guest   // those who have been at rest for longest first
	freed  *sync.Cond // a guest has left, or is at rest; or closed
	closed bool
}

// guest is a connection that has a place.
type guest struct {
	net.Conn
	of      *places
	host    string
	working int // handlers
}

func newPlaces(ln net.Listener, most int) *places {
	p := &places{Listener: ln, most: most}
	p.freed = sync.NewCond(&p.mu)
	return p
}

// Accept implements net.Listener.
func (p *places) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: conn, of: p, host: hostOf(conn.RemoteAddr())}
	leaves, err := p.admit(g)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if leaves != nil {
		leaves.Conn.Close()
		runtime.Gosched() // those who have come before may read what has come with them
	}
	return g, nil
}

// admit gives g a place. leaves, if not nil, has lost his.
func (p *places) admit(g *guest) (leaves *guest, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.guests) >= p.most && !p.closed {
		if leaves = toLeave(p.guests); leaves != nil {
			p.remove(leaves)
			break
		}
		p.freed.Wait()
	}
	if p.closed {
		return leaves, net.ErrClosed
	}
	p.guests = append(p.guests, g)
	return leaves, nil
}

// toLeave is who makes room for a newcomer; nil: all are at work.
func toLeave(guests []*guest) (leaves *guest) {
	resting := map[string]int{}
	for _, g := range guests {
		if g.working == 0 {
			resting[g.host]++
		}
	}
	for _, g := range guests {
		if g.working == 0 && (leaves == nil || resting[g.host] > resting[leaves.host]) {
			leaves = g
		}
	}
	return leaves
}

// remove is called with mu held. A guest that has left already stays so.
func (p *places) remove(g *guest) {
	if i := slices.Index(p.guests, g); i >= 0 {
		p.guests = slices.Delete(p.guests, i, i+1)
		p.freed.Signal()
	}
}

// Close implements net.Listener. Guests stay.
func (p *places) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.freed.Broadcast()
	return p.Listener.Close()
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.of.mu.Lock()
	g.of.remove(g)
	g.of.mu.Unlock()
	return g.Conn.Close()
}

// work notes that so many more handlers are at work for the guest.
func (g *guest) work(n int) {
	p := g.of
	p.mu.Lock()
	defer p.mu.Unlock()
	g.working += n
	if i := slices.Index(p.guests, g); i >= 0 && g.working == 0 { // the last one at rest
		p.guests = append(slices.Delete(p.guests, i, i+1), g)
		p.freed.Signal()
	}
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

type guestKey struct{}

// withGuest is an http.Server's ConnContext.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, guestKey{}, c)
}

// atWork notes for whom h is at work.
func atWork(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g, ok := r.Context().Value(guestKey{}).(*guest); ok {
			g.work(1)
			defer g.work(-1)
		}
		h.ServeHTTP(w, r)
	})
}
