package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"
)

// A silent peer is found after keepAliveIdle + keepAliveCount*keepAliveInterval
// when nothing is under way, and after userTimeout when bytes are.
const (
	keepAliveIdle     = 5 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveCount    = 3
	userTimeout       = 30 * time.Second
)

// dial connects to t within ctx and timeout, TLS handshake included.
func dial(ctx context.Context, t Target, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		},
	}
	if t.Network == "tcp" {
		d.Control = func(_, _ string, c syscall.RawConn) error { return setUserTimeout(c, userTimeout) }
	}
	conn, err := d.DialContext(ctx, t.Network, t.Addr)
	if err != nil || t.TLS == nil {
		return conn, err
	}
	settings := t.TLS
	if t.Files != nil {
		settings = t.Files.Client(settings)
	}
	secure := tls.Client(conn, settings)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}
