package lock

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A named owner whose connection has gone is renewed for the grace, not for ever, and goes on when it is heard of again.
func TestOwnerGrace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		const lease, grace = time.Second, 2 * time.Second
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: lease, OwnerGrace: grace})
		ctx := context.Background()
		for _, key := range []string{"silent", "heard"} {
			c, _ := client(m)
			if _, err := c.Lock(ctx, Request{Key: key, Owner: "worker"}); err != nil {
				t.Fatal(err)
			}
			c.Close(Gone)
		}
		c, _ := client(m)
		if err := c.Renew(ctx, RenewRequest{Key: "heard", Owner: "worker"}); err != nil {
			t.Fatal(err)
		}
		left := time.Now()
		rival, _ := client(m)
		if _, err := rival.Lock(ctx, Request{Key: "silent", Blocks: true}); err != nil {
			t.Fatal(err)
		}
		// Lower bounds only: a busy machine is later.
		if after := time.Since(left); after < grace-lease {
			t.Errorf("the lock was free %v after its connection had gone, with a grace of %v", after, grace)
		}
		if _, err := rival.Lock(ctx, Request{Key: "heard"}); err != ErrNotAcquired {
			t.Error("the lock of an owner that was heard of again:", err)
		}
	})
}
