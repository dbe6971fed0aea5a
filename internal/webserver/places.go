package webserver

import (
	"crypto/tls"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
)

// mostConnections is how many there may be at once. Files are kept for them: see --max-clients.
const mostConnections = 48

// places are the connections of a server, the oldest first. When all places are taken, a newcomer gets that of the
// oldest, whatever that does: it says nothing, or nothing more, or does not read its answer, or has a request at work. A
// request that comes whole is answered long before so many others have come.
type places struct {
	mu    sync.Mutex // guards taken
	taken []net.Conn
}

// changed is an http.Server's ConnState. That of a new connection is told before the next one is accepted.
func (p *places) changed(c net.Conn, to http.ConnState) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn() // whose Close waits for nobody
	}
	if to == http.StateNew {
		runtime.Gosched() // those who have come before may be answered before they lose their places
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch to {
	case http.StateNew:
		if len(p.taken) == mostConnections {
			p.taken[0].Close()
			p.taken = slices.Delete(p.taken, 0, 1)
		}
		p.taken = append(p.taken, c)
	case http.StateClosed:
		if i := slices.Index(p.taken, c); i >= 0 {
			p.taken = slices.Delete(p.taken, i, i+1)
		}
	}
}
