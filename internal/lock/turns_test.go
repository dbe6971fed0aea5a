package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// Those on one proxy of whom there is always one that waits, but never for long, leave turns to others, too.
func TestTurnsOfFew(t *testing.T) {
	for name, c := range map[string]struct {
		clients int
		kind    func(client int) Kind
		one     Kind
		far     time.Duration // of the other proxy from Redis
	}{
		"two":     {2, func(int) Kind { return Plain }, Plain, 0},
		"far":     {2, func(int) Kind { return Plain }, Plain, 3 * time.Millisecond},
		"readers": {60, func(i int) Kind { return []Kind{Write, Read}[min(i, 1)] }, Write, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m, n := bubbleEngine(t, w, s, "few", Options{Poll: time.Minute}), bubbleEngine(t, w, s, "other", Options{Poll: time.Minute})
				if c.far > 0 {
					w.Proxy("other").Link(s.Addr()).Delay(c.far, 0)
				}
				var group sync.WaitGroup
				var done atomic.Bool
				for i := range c.clients {
					a, _ := client(m)
					group.Go(func() {
						for r := (Request{Key: "k", Kind: c.kind(i), Blocks: true}); !done.Load(); time.Sleep(time.Millisecond) {
							mustLock(t, a, r)
							time.Sleep(10 * time.Millisecond)
							mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
						}
					})
				}
				eventually(t, 10*time.Second, "a start", func() bool { return m.Stats().Granted > 100 })
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				one, _ := client(n)
				for range 10 {
					if _, err := one.Lock(ctx, Request{Key: "k", Kind: c.one, Blocks: true}); err != nil {
						t.Error("no turn for another proxy:", err)
						break
					}
					mustUnlock(t, one, UnlockRequest{Key: "k"}, true)
				}
				done.Store(true)
				group.Wait()
			})
		})
	}
}
