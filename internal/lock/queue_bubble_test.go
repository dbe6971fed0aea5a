package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// TestLeavesTheQueueAfterAnOutage: a fair waiter whose time is over while Redis is out of reach leaves nothing behind when it is back.
func TestLeavesTheQueueAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		link := w.Proxy("one").Link(bubbleAddr)
		heldByRedisson(t, s, "k")
		a, _ := client(m)
		got := locking(a, Request{Key: "k", Fair: true, Blocks: true, Block: 1000})
		time.Sleep(500 * time.Millisecond)
		if n := s.Do(t, "LLEN", "redisson_lock_queue:{k}").(int64); n != 1 {
			t.Fatalf("%d wait", n)
		}
		link.Cut()
		if err := <-got; err == nil {
			t.Fatal("granted")
		}
		time.Sleep(2 * time.Second)
		link.Heal()
		time.Sleep(3 * time.Second)
		if n := s.Do(t, "EXISTS", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}").(int64); n != 0 {
			t.Error("its place is still there")
		}
		b, _ := client(m)
		if _, err := b.Lock(context.Background(), Request{Key: "k"}); !errors.Is(err, ErrNotAcquired) {
			t.Error(err)
		}
	})
}
