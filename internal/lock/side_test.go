package lock

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A connection's write lock, which its read lock has lengthened in Redis, is free when both are over, however the read lock came to end before its time.
func TestWriterWhoseReadEndedEarly(t *testing.T) {
	unlockRead := UnlockRequest{Key: "k", Side: Read}
	renewRead := RenewRequest{Key: "k", Side: Read, Lease: 5000}
	readLong := Request{Key: "k", Kind: Read, Lease: 3600000, Self: true}
	for name, during := range map[string]func(t *testing.T, w *world.World, n *world.Node, a *Client){
		"RENEW": func(t *testing.T, _ *world.World, _ *world.Node, a *Client) {
			mustLock(t, a, readLong)
			if err := a.Renew(context.Background(), renewRead); err != nil {
				t.Error(err)
			}
		},
		"RENEW without an answer": func(t *testing.T, w *world.World, _ *world.Node, a *Client) {
			mustLock(t, a, readLong)
			swallowFor(w.Proxy("one").Link(bubbleAddr), 10*time.Second)
			if err := a.Renew(context.Background(), renewRead); err == nil {
				t.Error("the request was swallowed, and answered")
			}
		},
		"UNLOCK without an answer": func(t *testing.T, _ *world.World, n *world.Node, a *Client) {
			mustLock(t, a, readLong)
			n.Stop()
			time.AfterFunc(12*time.Second, n.Cont)
			if _, err := a.Unlock(context.Background(), unlockRead); err == nil {
				t.Error("Redis is stopped, and UNLOCK is answered")
			}
		},
		"UNLOCK, while something else is at work on the write lock": func(t *testing.T, _ *world.World, _ *world.Node, a *Client) {
			mustLock(t, a, readLong)
			id, _ := a.id(Write, 0, "k", "")
			h, err := a.m.holds.enter(context.Background(), id, false)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(10*time.Second, func() { a.m.holds.leave(h) })
			mustUnlock(t, a, unlockRead, true)
		},
		"RLOCK without an answer": func(t *testing.T, w *world.World, _ *world.Node, a *Client) {
			w.Proxy("one").Link(bubbleAddr).Swallow(world.Replies)
			time.AfterFunc(12*time.Second, func() {
				w.Proxy("one").Link(bubbleAddr).Cut()
				w.Proxy("one").Link(bubbleAddr).Heal()
			})
			if _, err := a.Lock(context.Background(), readLong); err == nil {
				t.Error("the reply was swallowed, and RLOCK is answered")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				n := w.NewNode(bubbleAddr)
				m := bubbleEngine(t, w, n, "one", Options{})
				a, told := client(m)
				b, _ := client(bubbleEngine(t, w, n, "two", Options{}))
				began := time.Now()
				mustLock(t, a, Request{Key: "k", Kind: Write, Lease: 30000})
				during(t, w, n, a)
				time.Sleep(time.Until(began.Add(29 * time.Second)))
				if _, err := b.Lock(context.Background(), Request{Key: "k", Kind: Write}); err != ErrNotAcquired {
					t.Errorf("a second before the end another one's WLOCK is answered %v", err)
				}
				time.Sleep(time.Until(began.Add(50 * time.Second)))
				if a.Held() != 0 {
					t.Errorf("%d held, told %q", a.Held(), told.reasons())
				}
				mustLock(t, b, Request{Key: "k", Kind: Write})
			})
		})
	}
}

// A write lock that could not be cut when its owner's read ended, and has another lease since, is not given back when the former one is over: not
// even if the proxy has closed the connection meanwhile, whose client may still be at work.
func TestWriterRenewedAfterItsReadEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		n := w.NewNode(bubbleAddr)
		a, _ := client(bubbleEngine(t, w, n, "one", Options{}))
		began := time.Now()
		mustLock(t, a, Request{Key: "k", Kind: Write, Lease: 30_000})
		mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 60_000, Self: true})
		id, _ := a.id(Write, 0, "k", "")
		h, err := a.m.holds.enter(context.Background(), id, false)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Second, func() { a.m.holds.leave(h) }) // it cannot be cut before
		mustUnlock(t, a, UnlockRequest{Key: "k", Side: Read}, true)
		time.Sleep(time.Until(began.Add(15 * time.Second)))
		if err := a.Renew(context.Background(), RenewRequest{Key: "k", Side: Write, Lease: 600_000}); err != nil {
			t.Fatal(err)
		}
		a.Close(Left)
		time.Sleep(time.Minute)
		if left := pttl(t, n, "k"); left < 500_000 {
			t.Errorf("%d ms are left", left)
		}
	})
}
