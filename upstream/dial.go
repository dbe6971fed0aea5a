package upstream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/socket"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// A silent peer is found after userTimeout, whether bytes are under way or not: Linux then probes for that long, and
// counts no probes. Other systems count them, and find an idle one after keepAliveIdle +
// keepAliveCount*keepAliveInterval.
const (
	keepAliveIdle     = 5 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveCount    = 3
	userTimeout       = 30 * time.Second
)

// termConn is a connection to the server that a Target meant when it was made. It is closed when that term ends,
// because another Redis has become the master, and what is read after that is no reply any more: closing takes a
// moment, in which a former master still answers.
type termConn struct {
	net.Conn
	term     context.Context
	resolver Resolver    // nil: none
	stop     func() bool // has the end of the term not close the connection
	own      atomic.Bool // it is counted as one of the proxy's own: see asOwn
}

// dialTarget dials the address that t has at present.
func dialTarget(ctx context.Context, t Target, timeout time.Duration) (*termConn, error) {
	dial := func(ctx context.Context, timeout time.Duration) (net.Conn, context.Context, error) {
		conn, err := Dial(ctx, t, timeout)
		return conn, context.Background(), err
	}
	if t.Resolver != nil {
		dial = t.Resolver.Dial
	}
	conn, term, err := dial(ctx, timeout)
	if err != nil {
		return nil, err
	}
	return inTerm(conn, term, t.Resolver), nil
}

func inTerm(conn net.Conn, term context.Context, r Resolver) *termConn {
	c := &termConn{Conn: conn, term: term, resolver: r}
	c.stop = context.AfterFunc(term, func() { c.end() })
	return c
}

// Read implements net.Conn.
func (c *termConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.term.Err() != nil {
		return 0, context.Cause(c.term)
	}
	return n, err
}

// Close implements net.Conn. A nil connection has nothing to close.
func (c *termConn) Close() error {
	if c == nil {
		return nil
	}
	c.stop()
	return c.end()
}

func (c *termConn) end() error {
	c.countOwn(false)
	return c.Conn.Close()
}

// detach gives the connection itself, whose caller closes it at the end of the term.
func (c *termConn) detach() (net.Conn, context.Context) {
	c.stop()
	c.countOwn(false)
	return c.Conn, c.term
}

// lookAt has the Resolver ask whether the server is still the master if it refuses a write in these replies.
func (c *termConn) lookAt(replies []byte) {
	if c.resolver != nil && bytes.Contains(replies, readonlyError) {
		c.resolver.Check(c.term)
	}
}

// The proxy's own connections are not part of the Budget, so that clients who use it up hinder neither locks, nor
// logins, nor the question whether Redis asks for a password. Each kind has a bound of its own: those of a Control for
// locks, authTurns a node for logins, one a node for that question, and one for a Probe. They are counted separately.

// asOwn counts the connection as one of the proxy's own.
func (c *termConn) asOwn() *termConn {
	c.countOwn(true)
	return c
}

func (c *termConn) countOwn(own bool) {
	switch {
	case c.own.Swap(own) == own:
	case own:
		telemetry.UpstreamOwn.Add(1)
	default:
		telemetry.UpstreamOwn.Add(-1)
	}
}

// masterChanged returns a channel that is closed when another server takes the place of t's present one; nil when that
// never happens.
func (t Target) masterChanged() <-chan struct{} {
	if t.Resolver == nil {
		return nil
	}
	return t.Resolver.Moved()
}

// Dial connects to t's Addr within ctx and timeout, TLS handshake included, if its server has been up for long enough.
func Dial(ctx context.Context, t Target, timeout time.Duration) (net.Conn, error) {
	conn, err := dialAny(ctx, t, timeout)
	if t.MinUptime <= 0 {
		return conn, err
	}
	runID := ""
	if err == nil {
		runID, err = checkServer(ctx, conn, t, timeout)
	}
	if err = cmp.Or(err, t.vet(runID)); err == nil {
		return conn, nil
	}
	if conn != nil {
		conn.Close()
	}
	return nil, err
}

// vet asks the Vetter, which is also told of a server that cannot be used.
func (t Target) vet(runID string) error {
	if t.Vetter == nil {
		return nil
	}
	return t.Vetter(runID)
}

func dialAny(ctx context.Context, t Target, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	connect := network
	if t.Dialer != nil {
		connect = t.Dialer.Dial
	}
	conn, err := connect(ctx, t.Network, t.Addr)
	if err != nil || t.TLS == nil {
		return conn, err
	}
	settings := t.TLS
	if t.Files != nil {
		settings = t.Files.Client(settings)
	}
	if settings.ServerName == "" { // each of several addresses must prove its own name
		settings = settings.Clone()
		settings.ServerName, _, _ = net.SplitHostPort(t.Addr)
	}
	secure := tls.Client(conn, settings)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// network connects by the operating system's network.
func network(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		},
	}
	if network == "tcp" {
		d.Control = func(_, _ string, c syscall.RawConn) error { return setUserTimeout(c, userTimeout) }
	}
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return socket.Direct(conn), nil
}
