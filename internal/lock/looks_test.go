package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A reader whose ten newest nested holds have expired, of whom a look cannot tell whether it still reads, is looked at no more often than others.
func TestNestedReaderIsNotAskedAboutWithoutPause(t *testing.T) {
	for _, nested := range []int64{100, 2000} {
		inBubble(t, func(t *testing.T, w *world.World) {
			n := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, n, "one", Options{})
			a, told := client(m)
			mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 3600000})
			for range 10 {
				mustLock(t, a, Request{Key: "k", Kind: Read, Lease: nested, Self: true})
			}
			ran := scriptsOf(n)
			time.Sleep(5 * time.Minute)
			if ran.Load() > 80 || told.reasons() != "" {
				t.Errorf("re-entered for %d ms: %d scripts in 5 minutes, told %q", nested, ran.Load(), told.reasons())
			}
		})
	}
}

// A connection's hold whose look is answered long after its end, before anything else has noticed that, is told.
func TestEndNotedByALateLook(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", Options{})
		a, told := client(m)
		mustLock(t, a, Request{Key: "k", Lease: 60000})
		id, _ := a.id(Plain, 0, "k", "")
		h, err := m.holds.enter(context.Background(), id, false)
		if err != nil {
			t.Fatal(err)
		}
		m.holds.mu.Lock()
		c := &chunk{chunkKey: m.holds.chunkOf(h), holds: []*hold{h}, planned: time.Now(), registrations: []lockstore.Registration{""}}
		h.deadline = time.Now().Add(-2 * time.Second) // as after a stop of the process
		m.holds.mu.Unlock()
		m.holds.noteRenewals(c, []int64{lockstore.StillThere}, nil, time.Now().Add(-time.Minute))
		time.Sleep(time.Second)
		if got := told.reasons(); got != "k:expired " || a.Held() != 0 {
			t.Errorf("told %q, %d held", got, a.Held())
		}
		_, err = a.Unlock(context.Background(), UnlockRequest{Key: "k"})
		wantCode(t, err, "LOCKLOST")
	})
}

// A hold that is looked at alone has Redis answer within a second. One that is slower than that does not make the other renewals more patient.
func TestLateLookLeavesTheLanesPatience(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		n := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, n, "one", Options{})
		a, told := client(m)
		mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 39000})
		time.Sleep(9900 * time.Millisecond)
		n.Stop()
		time.Sleep(1500 * time.Millisecond)
		n.Cont()
		time.Sleep(100 * time.Millisecond)
		m.watchdog.mu.Lock()
		defer m.watchdog.mu.Unlock()
		for _, ln := range m.watchdog.lanes {
			if ln.allow != renewAllowed {
				t.Errorf("renewals may take %v", ln.allow)
			}
		}
		if told.reasons() != "" {
			t.Errorf("told %q", told.reasons())
		}
	})
}

// Reads with a lease on a quorum are not looked at before their end: what nodes have less of is not given back there.
func TestQuorumReadIsLookedAtWhenItEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m := bubbleNodes(w, 3).engine(t, "one", 0, Options{})
		time.Sleep(time.Second) // its connections are made, and each has every lock looked at
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 55000})
		id, _ := a.id(Read, 0, "k", "")
		m.holds.mu.Lock()
		defer m.holds.mu.Unlock()
		if h := m.holds.byID[id]; h.next.Before(h.deadline) {
			t.Errorf("it is looked at %v before its end", h.deadline.Sub(h.next))
		}
	})
}

// Once Redis has been given back what a hold has left, the hold goes back to being looked at rarely.
func TestRestoredHoldsAreLookedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		n := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, n, "one", Options{})
		a, told := client(m)
		const holds = 100
		for i := range holds {
			mustLock(t, a, Request{Key: fmt.Sprint("k", i), Lease: 45_000})
		}
		ran := scriptsOf(n)
		m.holds.recheckIf(func(string, string) string { return lockstore.Failover })
		time.Sleep(40 * time.Second)
		if looks := ran.Load(); looks > holds+20 || told.reasons() != "" {
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
			m, _ := bubbleSlow(t, w, s, Options{})
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
