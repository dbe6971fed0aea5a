package session

import (
	"testing"
	"time"
)

// A holder is not idle, until the lease of what it holds is over.
func TestIdleTimeoutWhenTheLockHasEnded(t *testing.T) {
	inBubble(t, func(o *ServerOptions) { o.IdleTimeout = 5 * time.Second }, func(t *testing.T, b *bubble) {
		w := b.dial(t)
		from := time.Now()
		w.expect("+OK\r\n", "LOCK", "l", "PX", "8000")
		if got, took := w.frame(), time.Since(from); got != "<end>" || took < 8*time.Second || took > 14*time.Second {
			t.Errorf("%q after %v", got, took)
		}
	})
}

// As in Redis a subscriber is never idle.
func TestSubscribersMayIdle(t *testing.T) {
	inBubble(t, func(o *ServerOptions) { o.IdleTimeout = 5 * time.Second }, func(t *testing.T, b *bubble) {
		w := b.dial(t)
		w.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
		time.Sleep(10 * time.Minute)
		from := time.Now()
		w.expect("*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n", "UNSUBSCRIBE", "c")
		if got, took := w.frame(), time.Since(from); got != "<end>" || took < 5*time.Second || took > 6*time.Second {
			t.Errorf("idle, and not subscribed any more: %q after %v", got, took)
		}
	})
}
