package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/socket"
)

// A silent peer is found after userTimeout, whether bytes are under way or not: Linux then probes for that long, and counts no probes. Other
// systems count them, and find an idle one after keepAliveIdle + keepAliveCount*keepAliveInterval.
const (
	keepAliveIdle     = 5 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveCount    = 3
	userTimeout       = 30 * time.Second
)

// dialTarget dials the address that t has at present. term ends when the connection must no longer be used because another Redis
// is the master now; its cause says so. Without a Resolver it never ends.
func dialTarget(ctx context.Context, t Target, timeout time.Duration) (conn net.Conn, term context.Context, err error) {
	if t.Resolver != nil {
		return t.Resolver.Dial(ctx, timeout)
	}
	conn, err = Dial(ctx, t, timeout)
	return conn, context.Background(), err
}

// masterChanged returns a channel that is closed when another server takes the place of t's present one; nil when that never happens.
func (t Target) masterChanged() <-chan struct{} {
	if t.Resolver == nil {
		return nil
	}
	return t.Resolver.Moved()
}

// refusedWrite notes that Redis answered READONLY on a connection of that term, so that the Resolver asks whether it is still the master.
func (t Target) refusedWrite(term context.Context) {
	if t.Resolver != nil {
		t.Resolver.Doubt(term)
	}
}

// Dial connects to t's Addr within ctx and timeout, TLS handshake included, if its server has been up for long enough.
func Dial(ctx context.Context, t Target, timeout time.Duration) (net.Conn, error) {
	conn, err := dialAny(ctx, t, timeout)
	if t.MinUptime <= 0 {
		return conn, err
	}
	runID := ""
	if err == nil {
		if runID, err = checkServer(ctx, conn, t, timeout); err != nil {
			conn.Close()
		}
	}
	if t.Vetter != nil {
		if refusal := t.Vetter(runID); err == nil && refusal != nil {
			conn.Close()
			err = refusal
		}
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
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
