package session

import (
	"errors"
	"net"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// A peer that has vanished without a word is noticed in 5 s + 3 × 2 s, idle or not.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

const userTimeout = 11 * time.Second

const (
	firstBackOff = 5 * time.Millisecond // after a failed accept, doubled up to lastBackOff
	lastBackOff  = time.Second
)

const tooMany = "-ERR max number of clients reached\r\n"

// listener hands redcon guarded connections only, and none of the trouble of accepting: redcon would spin on errors,
// and cut off every client when its listener ends.
type listener struct {
	net.Listener
	srv *Server
}

// Accept blocks through a drain, until the last session has ended.
func (l *listener) Accept() (net.Conn, error) {
	var wait time.Duration
	for {
		raw, err := l.Listener.Accept()
		if err == nil {
			wait = 0
			if g := l.guarded(raw); g != nil {
				return g, nil
			}
			continue
		}
		if l.srv.draining.Load() {
			<-l.srv.drained
			return nil, net.ErrClosed
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		wait = min(max(2*wait, firstBackOff), lastBackOff)
		l.srv.log.Warn("accepting clients failed", "error", err, "retry", wait)
		select {
		case <-time.After(wait):
		case <-l.srv.ctx.Done():
		}
	}
}

// guarded sets up one accepted connection; nil when there is no place for it.
func (l *listener) guarded(raw net.Conn) *guard {
	if l.srv.draining.Load() {
		raw.Close()
		return nil
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		// Refused on a socket that is dead already, and then its first read says so.
		_ = tcp.SetKeepAliveConfig(keepAlive)
		_ = setUserTimeout(tcp, userTimeout)
	}
	g := l.srv.admit(raw)
	if g == nil {
		telemetry.ClientsRejected.Add(1)
		raw.SetWriteDeadline(time.Now().Add(time.Second))
		raw.Write([]byte(tooMany)) // best effort, as in Redis
		raw.Close()
	}
	return g
}
