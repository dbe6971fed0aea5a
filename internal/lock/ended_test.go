package lock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// An owner's lock that was given back through another proxy is not called lost when the key holds a read/write lock by then.
func TestEndedElsewhereThenAnotherKind(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		here, _ := client(bubbleEngine(t, w, s, "one", ManagerOptions{}))
		there, _ := client(bubbleEngine(t, w, s, "two", ManagerOptions{}))
		mustLock(t, here, Request{Key: "k", Owner: "o", Lease: 30_000})
		mustUnlock(t, there, UnlockRequest{Key: "k", Owner: "o"}, true)
		mustLock(t, there, Request{Key: "k", Kind: Write})
		// NOTHELD when the watchdog has looked meanwhile, and has forgotten it.
		free, err := here.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "o"})
		if err == nil && !free || err != nil && !strings.HasPrefix(err.Error(), "NOTHELD") {
			t.Error(free, err)
		}
	})
}

// An UNLOCK of one hold of two whose reply was lost is not told that it freed the lock when somebody else did.
func TestUnlockLostThenForced(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, ManagerOptions{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		mustLock(t, a, Request{Key: "k"})
		done := make(chan error, 1)
		go func() {
			_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"})
			done <- err
		}()
		eventually(t, 5*time.Second, "one is given back", func() bool { return hash(t, s, "k")[a.Owner()] == "1" })
		s.Do(t, "DEL", "k")
		p.Drop()
		p.Heal()
		wantCode(t, <-done, "LOCKLOST")
	})
}

// A loss that is known is what UNLOCK answers, whatever Redis says of the key by then.
func TestLostAndThenRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		a, told := client(bubbleEngine(t, w, s, "one", ManagerOptions{}))
		mustLock(t, a, Request{Key: "k", Lease: 1000})
		eventually(t, time.Minute, "the loss is told", func() bool { return told.reasons() != "" })
		time.Sleep(2 * time.Second) // Redis has it no longer
		s.Do(t, "SET", "k", "x")
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"})
		wantCode(t, err, "LOCKLOST")
		b, _ := client(a.m)
		if _, err := b.Unlock(context.Background(), UnlockRequest{Key: "k"}); !isCode(err, "NOTHELD") {
			t.Error("of one who never had it:", err)
		}
	})
}

// An UNLOCK whose reply is lost, and that is told LOCKLOST when the lease is over, is not told later that it freed the lock.
func TestLostUnlockIsToldOnce(t *testing.T) {
	for name, req := range map[string]Request{"plain": {Key: "k"}, "read": {Key: "k", Kind: Read}, "write": {Key: "k", Kind: Write}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m, link := bubbleSlow(t, w, s, ManagerOptions{Watchdog: 6 * time.Second})
				a, _ := client(m)
				mustLock(t, a, req)
				link.Swallow(world.Both)
				_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: req.Kind, All: true})
				wantCode(t, err, "LOCKLOST")
				link.Heal()
				link.Drop()
				time.Sleep(10 * time.Second) // it is found out by then that Redis has no such lock
				free, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: req.Kind})
				if free {
					t.Error("the lock was lost, and then freed")
				}
				wantCode(t, err, "NOTHELD")
			})
		})
	}
}

// A LOCK of a lock that the connection has, whose lease ends here before the reply comes, takes the lock anew.
func TestLockAgainAtTheEnd(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, _ := bubbleSlow(t, w, s, ManagerOptions{})
			a, told := client(m)
			began := time.Now()
			mustLock(t, a, Request{Key: "k", Kind: kind, Lease: 1000})
			time.Sleep(850*time.Millisecond - time.Since(began)) // Redis is asked at 950 ms, and its reply comes at 1,050
			mustLock(t, a, Request{Key: "k", Kind: kind, Lease: 60_000})
			if n := a.Held(); n != 1 || pttl(t, s, "k") < 50_000 {
				t.Errorf("%v: %d held, %d ms are left, told %q", kind, n, pttl(t, s, "k"), told.reasons())
			}
			mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		})
	}
}
