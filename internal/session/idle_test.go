package session

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestIdleTimeoutWhenTheLockHasEnded(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *Options) { o.IdleTimeout = 5 * time.Second })
	w := dialWire(t, p.addr)
	from := time.Now()
	w.expect("+OK\r\n", "LOCK", "l", "PX", "8000")
	if got := w.frame(); got != "<end>" || time.Since(from) < 7*time.Second {
		t.Errorf("%q after %v", got, time.Since(from))
	}
}

// As in Redis a subscriber is never idle.
func TestSubscribersMayIdle(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *Options) { o.IdleTimeout = 5 * time.Second })
	w := dialWire(t, p.addr)
	w.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
	time.Sleep(6 * time.Second)
	w.expect("*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n", "UNSUBSCRIBE", "c")
	if got := w.frame(); got != "<end>" {
		t.Errorf("idle, and not subscribed any more: %q", got)
	}
}
