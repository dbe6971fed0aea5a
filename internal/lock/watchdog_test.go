package lock

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// TestReentryDoesNotPutOffRenewals: a renewed lock is renewed however often its holder says something about it that leaves the lease as it is.
func TestReentryDoesNotPutOffRenewals(t *testing.T) {
	ctx := context.Background()
	for name, does := range map[string]func(c *Client, kind Kind) error{
		"enters for a moment": func(c *Client, kind Kind) error {
			if _, err := c.Lock(ctx, Request{Key: "k", Kind: kind, Lease: 300}); err != nil {
				return err
			}
			_, err := c.Unlock(ctx, UnlockRequest{Key: "k", Side: kind})
			return err
		},
		"enters": func(c *Client, kind Kind) error {
			if _, err := c.Lock(ctx, Request{Key: "k", Kind: kind}); err != nil {
				return err
			}
			_, err := c.Unlock(ctx, UnlockRequest{Key: "k", Side: kind})
			return err
		},
		"renews": func(c *Client, kind Kind) error { return c.Renew(ctx, RenewRequest{Key: "k", Side: kind}) },
	} {
		for _, kind := range []Kind{Plain, Read, Write, Limit} {
			t.Run(name+" "+kind.Spec().Verb, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					n := w.NewNode(bubbleAddr)
					here, there := bubbleEngine(t, w, n, "one", ManagerOptions{}), bubbleEngine(t, w, n, "two", ManagerOptions{})
					holder, lost := client(here)
					rival, _ := client(there)
					mustLock(t, holder, Request{Key: "k", Kind: kind})
					rivals := kind
					if kind == Read {
						rivals = Write
					}
					for began := time.Now(); time.Since(began) < 5*here.opts.Watchdog; time.Sleep(here.opts.Watchdog / 10) {
						if err := does(holder, kind); err != nil || lost.reasons() != "" {
							t.Fatalf("after %v: %v %v", time.Since(began), err, lost.reasons())
						}
						if _, err := rival.Lock(ctx, Request{Key: "k", Kind: rivals}); err == nil {
							t.Fatalf("a rival has the lock after %v", time.Since(began))
						}
					}
				})
			})
		}
	}
}
