package lock

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// A reader whose ten newest nested holds have expired, of whom a look cannot tell whether it still reads, is looked at no more often than others: each third of the watchdog's lease.
func TestNestedReaderIsNotAskedAboutWithoutPause(t *testing.T) {
	for _, nested := range []int64{100, 2000} {
		inBubble(t, func(t *testing.T, w *world.World) {
			n := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, n, "one", ManagerOptions{})
			a, told := client(m)
			mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 3600000})
			for range 10 {
				mustLock(t, a, Request{Key: "k", Kind: Read, Lease: nested, Self: true})
			}
			ran := scriptsOf(n)
			time.Sleep(5 * time.Minute)
			if ran.Load() > 150 || told.reasons() != "" {
				t.Errorf("re-entered for %d ms: %d scripts in 5 minutes, told %q", nested, ran.Load(), told.reasons())
			}
		})
	}
}

// Once Redis has been given back what a hold has left, the hold goes back to being looked at rarely.
func TestRestoredHoldsAreLookedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		n := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, n, "one", ManagerOptions{})
		a, told := client(m)
		const holds = 100
		for i := range holds {
			mustLock(t, a, Request{Key: fmt.Sprint("k", i), Lease: 45_000})
		}
		ran := scriptsOf(n)
		m.holds.recheckIf(func(string, string) string { return lockstore.Failover })
		time.Sleep(40 * time.Second)
		if looks := ran.Load(); looks > 5*holds || told.reasons() != "" {
			t.Errorf("%d scripts for %d holds, lost: %q", looks, holds, told.reasons())
		}
	})
}

// A lock of which Redis has answered that it is held, and which is gone when every hold is looked at, is told lost although the answer is
// read only after that.
func TestLookMissesNoGrantUnderWay(t *testing.T) {
	for verb, taken := range map[string]bool{"LOCK": false, "RENEW": true} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, _ := bubbleSlow(t, w, s, ManagerOptions{})
			a, told := client(m)
			if taken {
				mustLock(t, a, Request{Key: "k"})
			}
			done := make(chan error, 1)
			go func() {
				if taken {
					done <- a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 3600000})
					return
				}
				_, err := a.Lock(context.Background(), Request{Key: "k", Lease: 3600000})
				done <- err
			}()
			time.Sleep(150 * time.Millisecond)
			if pttl(t, s, "k") < 3000000 {
				t.Fatal(verb, "is not done yet")
			}
			s.Do(t, "FLUSHALL")
			m.holds.recheckIf(func(string, string) string { return lockstore.Failover })
			if err := <-done; err != nil {
				t.Fatal(verb, err)
			}
			time.Sleep(2 * time.Second)
			if told.reasons() == "" || a.Held() != 0 {
				t.Errorf("%s: told %q, %d held", verb, told.reasons(), a.Held())
			}
		})
	}
}

// A lease is visited as often as a renewed lock, so that what has cut it in Redis is put right; its end is the one that was asked for.
func TestLeaseOfAConnectionIsVisited(t *testing.T) {
	for _, votes := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world.World) {
			m, _ := oneOrQuorum(t, w, votes)
			time.Sleep(time.Second) // its connections are made, and each has every lock looked at
			a, _ := client(m)
			mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 55000})
			id := a.id(Read, 0, "k", "")
			h := m.holds.peek(id)
			if until := h.visit.sub(m.holds.now()); until < 9*time.Second || until > 10*time.Second {
				t.Errorf("quorum %v: it is visited in %v", votes, until)
			}
			if left := h.end.sub(m.holds.now()); left < 54*time.Second || left > 55*time.Second {
				t.Errorf("quorum %v: it ends in %v", votes, left)
			}
		})
	}
}

// A connection's hold whose visit is answered long after its end, before anything else has noticed that, is told.
func TestEndNotedByALateVisit(t *testing.T) {
	now, t0 := start, terms{watchdog: 30 * time.Second, drift: func(time.Duration) time.Duration { return 0 }}
	h := hold{is: withEnd, counts: lockstore.Counts{Writes: 1}, lease: time.Minute, end: now.add(-2 * time.Second), sure: now.add(-2 * time.Second)}
	h, fx := h.on(visited{there: true, lease: time.Millisecond, sent: now.add(-3 * time.Second)}, now, t0)
	if !h.live() || fx.lost != "" {
		t.Fatalf("told %q", fx.lost) // that is for the deadline
	}
	if h, fx = h.on(overdue{}, now, t0); h.live() || fx.lost != reasonExpired {
		t.Errorf("told %q", fx.lost)
	}
}

// lateRenewal is a store that loses the next renewal, if it is to, and does it only so much later.
type lateRenewal struct {
	lockstore.Store
	by    time.Duration
	loses atomic.Bool
	done  chan []int64
}

func (s *lateRenewal) Renew(ctx context.Context, r lockstore.Renewal) ([]int64, error) {
	if !s.loses.Swap(false) {
		return s.Store.Renew(ctx, r)
	}
	go func() {
		time.Sleep(s.by)
		out, _ := s.Store.Renew(ctx, r)
		s.done <- out
	}()
	return nil, &upstream.LostError{Cause: context.DeadlineExceeded}
}

// A visit without an answer that Redis comes to only after a verb has lengthened the lease does not cut that to what was
// left before.
func TestLateVisitCutsNoLease(t *testing.T) {
	for verb, lengthen := range map[string]func(t *testing.T, c *Client){
		"RENEW": func(t *testing.T, c *Client) {
			if err := c.Renew(context.Background(), RenewRequest{Key: "k", Lease: 3_600_000}); err != nil {
				t.Error(err)
			}
		},
		"LOCK": func(t *testing.T, c *Client) { mustLock(t, c, Request{Key: "k", Lease: 3_600_000}) },
	} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, s, "one", ManagerOptions{})
			synctest.Wait() // the engine has begun, which reads its store
			late := &lateRenewal{Store: m.store, by: 1500 * time.Millisecond, done: make(chan []int64, 1)}
			m.watchdog.store = late
			time.Sleep(time.Second) // its connections are made, and each has every lock looked at
			a, told := client(m)
			mustLock(t, a, Request{Key: "k", Lease: 12_000})
			late.loses.Store(true)
			time.Sleep(10_100 * time.Millisecond)
			lengthen(t, a)
			if out := <-late.done; len(out) != 1 || out[0] != lockstore.StillThere {
				t.Fatal(verb, "the late visit was not done:", out)
			}
			if left := pttl(t, s, "k"); left < 3_500_000 || told.reasons() != "" {
				t.Errorf("%s: %d ms are left, told %q", verb, left, told.reasons())
			}
		})
	}
}
