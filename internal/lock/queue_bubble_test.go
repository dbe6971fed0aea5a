package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// TestFoundFreeWithinThePoll: a lock that became free without a message is found free within Options.Poll, which is 3 s if nothing is said.
func TestFoundFreeWithinThePoll(t *testing.T) {
	for said, poll := range map[time.Duration]time.Duration{0: 3 * time.Second, 20 * time.Second: 20 * time.Second} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, s, "one", Options{Poll: said})
			for i := range 20 {
				key := fmt.Sprint("k", i)
				heldByRedisson(t, s, key)
				c, _ := client(m)
				got := locking(c, Request{Key: key, Fair: i%2 == 0, Blocks: true})
				time.Sleep(50*time.Millisecond + time.Duration(i)*poll/10) // just after its first try, or between others
				s.Do(t, "DEL", key)
				freed := time.Now()
				granted(t, got, key)
				if took := time.Since(freed); took > poll+100*time.Millisecond {
					t.Errorf("found free after %v, of a poll of %v", took, poll)
				}
			}
		})
	}
}

// TestFairBlockBesideAHungRedis: FAIRLOCK ends soon after its BLOCK is over, and leaves the queue also when Redis hangs then.
func TestFairBlockBesideAHungRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		heldByRedisson(t, s, "k")
		a, _ := client(m)
		got := locking(a, Request{Key: "k", Fair: true, Blocks: true, Block: 1000})
		began := time.Now()
		time.Sleep(100 * time.Millisecond)
		if n := len(fairQueue(t, s, "k")); n != 1 {
			t.Fatalf("%d wait", n)
		}
		s.Stop()
		if err := <-got; !errors.Is(err, ErrNotAcquired) {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("ended after %v of a BLOCK of 1 s", took)
		}
		s.Cont()
		eventually(t, 5*time.Second, "it has left the queue", func() bool { return len(fairQueue(t, s, "k")) == 0 })
	})
}

// TestFairLockAgainBesideAHungRedis: who left the queue of a Redis that hung, and waits there again, keeps its new place, although Redis got
// to the leave too late and it was to be sent again.
func TestFairLockAgainBesideAHungRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		one, two := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
		heldByRedisson(t, s, "k")
		ctx, end := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		defer waits.Wait()
		defer end()
		wait := func(c *Client) {
			waits.Go(func() { _, _ = c.Lock(ctx, Request{Key: "k", Fair: true, Blocks: true, Block: 60_000}) })
		}
		first, _ := client(one)
		got := locking(first, Request{Key: "k", Fair: true, Blocks: true, Block: 1000})
		time.Sleep(100 * time.Millisecond)
		second, _ := client(two)
		wait(second)
		time.Sleep(800 * time.Millisecond)
		queue := fairQueue(t, s, "k")
		if len(queue) != 2 {
			t.Fatalf("waiting: %q", queue)
		}
		s.Stop()
		if err := <-got; !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		wait(first)
		time.Sleep(500 * time.Millisecond)
		s.Cont()
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if now := fairQueue(t, s, "k"); !slices.Equal(now, queue) {
				t.Fatalf("waiting: %q, before %q", now, queue)
			}
		}
	})
}
