package session

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// bubble is a proxy before a Redis in memory, in a synctest bubble: its clock goes on when everybody waits, so that waiting takes no time,
// and no machine is too slow for a time-out.
type bubble struct {
	*proxy
	redis *world.Node
	ln    *inMemory
}

// inBubble runs a test in a bubble; change may alter the proxy's options.
func inBubble(t *testing.T, change func(*ServerOptions), test func(t *testing.T, b *bubble)) {
	t.Helper()
	grants() // belongs to the process, not to a bubble
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1)
		t.Cleanup(w.Close)
		b := &bubble{redis: w.NewNode("10.0.0.1:6379"), ln: &inMemory{conns: make(chan net.Conn), closed: make(chan struct{})}}
		target := upstream.Target{Network: "tcp", Addr: b.redis.Addr(), Dialer: w.Proxy("proxy")}
		log := testLog()
		node := upstream.NewNode(target, upstream.NodeOptions{Logger: log})
		control := upstream.NewControl(target, upstream.ControlOptions{Logger: log})
		o := ServerOptions{Upstream: Upstream{Node: node, Embedded: true, Locks: lock.New(sharded.Single(control), testLocks(log))}, Logger: log}
		b.proxy = serveAt(t, b.ln, o, change, func() {
			control.Close()
			node.Close()
		})
		test(t, b)
	})
}

// dial is a client's connection to the proxy.
func (b *bubble) dial(t *testing.T) *wire {
	t.Helper()
	ours, theirs := net.Pipe()
	b.ln.conns <- theirs
	t.Cleanup(func() { ours.Close() })
	return &wire{t: t, conn: ours}
}

// inMemory is a listener whose connections are in memory.
type inMemory struct {
	conns  chan net.Conn
	close  sync.Once
	closed chan struct{}
}

func (l *inMemory) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *inMemory) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

func (l *inMemory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379} }
