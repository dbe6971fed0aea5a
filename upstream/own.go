package upstream

import (
	"net"
	"sync"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// The connections that the proxy has for itself are kept aside from the Budget, so that clients who use that up keep nobody from
// locks, from logging in, and from being found out as strangers. Each kind has a bound of its own: for locks there are those of a
// Control, for passwords authTurns a node, and one a node to ask whether Redis wants a password. They are counted by themselves.

// ownConn is one of them.
type ownConn struct {
	net.Conn
	gone sync.Once
}

func newOwn(c net.Conn) *ownConn {
	telemetry.UpstreamOwn.Add(1)
	return &ownConn{Conn: c}
}

// Close implements net.Conn.
func (c *ownConn) Close() error {
	c.gone.Do(func() { telemetry.UpstreamOwn.Add(-1) })
	return c.Conn.Close()
}

// ownShare is for a Pipe of the proxy's own.
func ownShare() *share {
	telemetry.UpstreamOwn.Add(1)
	return &share{own: true}
}
