package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// TestLeavesTheQueueAfterAnOutage: a fair waiter whose time is over while Redis is out of reach leaves nothing behind when it is back.
func TestLeavesTheQueueAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
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
			m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: said})
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
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
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

// TestFairLockAgainBesideAHungRedis: an owner whose leave Redis got to too late, and who waits again by then, keeps its place: the leave is not
// sent again, also while Redis has not answered yet that the owner has a place.
func TestFairLockAgainBesideAHungRedis(t *testing.T) {
	again := Request{Key: "k", Fair: true, Blocks: true}
	for name, c := range map[string]struct {
		engine       func(t *testing.T, w *world.World) (*Manager, *world.Node)
		delay, again time.Duration // of messages; from the first wait's beginning to the second's
		cut          bool          // Redis does not hang, but is out of reach
	}{
		"one Redis":             {bubbleSingle, 0, 2 * time.Second, false},
		"one Redis, far away":   {bubbleSingle, 100 * time.Millisecond, 2750 * time.Millisecond, false},
		"cluster":               {bubbleMaster, 0, 2 * time.Second, false},
		"cluster, far away":     {bubbleMaster, 100 * time.Millisecond, 2750 * time.Millisecond, false},
		"cluster, out of reach": {bubbleMaster, 0, 2 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				m, s := c.engine(t, w)
				link := w.Proxy("one").Link(s.Addr())
				stop, cont := s.Stop, s.Cont
				if c.cut {
					stop, cont = link.Cut, link.Heal
				}
				heldByRedisson(t, s, "k")
				began := time.Now()
				until := func(since time.Duration) { time.Sleep(time.Until(began.Add(since))) }
				a, _ := client(m)
				got := locking(a, Request{Key: "k", Fair: true, Blocks: true, Block: 1000})
				until(500 * time.Millisecond)
				queueRedisson(t, s, dialNode(t, w, s), "k")
				queue := fairQueue(t, s, "k")
				if len(queue) != 2 {
					t.Fatalf("waiting: %q", queue)
				}
				link.Delay(c.delay, 0)
				until(900 * time.Millisecond)
				stop()
				time.AfterFunc(1600*time.Millisecond, cont)
				if err := <-got; err == nil {
					t.Fatal("granted")
				}
				until(c.again)
				go func() { _, _ = a.Lock(t.Context(), again) }()
				for until(2700 * time.Millisecond); time.Since(began) < 5*time.Second; time.Sleep(20 * time.Millisecond) {
					if now := fairQueue(t, s, "k"); !slices.Equal(now, queue) {
						t.Fatalf("after %v %q, before %q", time.Since(began), now, queue)
					}
				}
			})
		})
	}
}

func bubbleSingle(t *testing.T, w *world.World) (*Manager, *world.Node) {
	s := w.NewNode(bubbleAddr)
	return bubbleEngine(t, w, s, "one", ManagerOptions{}), s
}

func bubbleMaster(t *testing.T, w *world.World) (*Manager, *world.Node) {
	m, nodes := bubbleCluster(t, w, 1)
	return m, nodes[0]
}
