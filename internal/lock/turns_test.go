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
				m, n := bubbleEngine(t, w, s, "few", ManagerOptions{Poll: time.Minute}), bubbleEngine(t, w, s, "other", ManagerOptions{Poll: time.Minute})
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

// TestTurnRule is the rule by which a proxy leaves a turn to others.
func TestTurnRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		grants, waiting int
		long            time.Duration
		over, mayBeLong bool
	}{
		{0, 1, 0, false, false},
		{3, 1, 99 * time.Millisecond, false, false}, // neither many nor long
		{4, 1, 0, true, false},
		{4, 20, 0, false, false}, // each of those that wait here has one
		{20, 20, 0, true, false},
		{32, 90, 0, true, false},                     // they are too many for that
		{1, 90, 100 * time.Millisecond, true, false}, // each is held for long
		{1, 1, 799 * time.Millisecond, true, false},
		{1, 1, 800 * time.Millisecond, true, true},
	} {
		began := time.Unix(1000, 0)
		now, row := began.Add(c.long), handoffsInARow{c.grants, began}
		if over, long := row.over(c.waiting, now), row.long(now); over != c.over || long != c.mayBeLong {
			t.Errorf("%d grants in %v, %d wait: over is %v, long is %v", c.grants, c.long, c.waiting, over, long)
		}
	}
	var rule turns
	for i, want := range []int64{10, 20, 40, 80, 100} {
		if got := rule.comeAgain(true, 100); got != want {
			t.Errorf("refusal %d: it comes again in %d ms, not %d", i, got, want)
		}
	}
	if got := rule.comeAgain(false, 100); got != 100 || rule.comeAgain(true, 100) != 10 {
		t.Errorf("after another refusal: %d ms", got)
	}
}
