package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What a named owner's LOCK renews goes on being renewed, whatever fails or ends beside it.

// A LOCK with a lease, said after a MULTILOCK of the same owner has failed and taken its registration back, does not take the hold from whoever
// renews it.
func TestQuorumRenewedAfterAMultiLockFailed(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for _, through := range []string{"one", "two"} {
			t.Run(kind.String()+", "+through, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					ns := bubbleNodes(w, 3)
					engines := map[string]*Manager{"one": ns.engine(t, "one", 0, Options{}), "two": ns.engine(t, "two", 0, Options{})}
					holder, lost := client(engines["one"])
					other, _ := client(engines["one"])
					again, _ := client(engines[through])
					time.Sleep(2 * time.Second) // the nodes' clocks are known
					mustLock(t, holder, Request{Key: "k", Kind: kind, Owner: "job"})
					alone := Plain
					if kind != Plain {
						alone = Write
					}
					mustLock(t, other, Request{Key: "m", Kind: alone})
					if _, err := again.MultiLock(context.Background(), []string{"k", "m"}, Request{Kind: kind, Owner: "job"}); !errors.Is(err, ErrNotAcquired) {
						t.Fatal(err)
					}
					mustLock(t, again, Request{Key: "k", Kind: kind, Owner: "job", Lease: 20_000})
					time.Sleep(2 * time.Minute)
					if n := ns.holding(t, "k"); n != 3 || lost.reasons() != "" {
						t.Errorf("%d nodes have it, lost: %q", n, lost.reasons())
					}
					mustUnlock(t, holder, UnlockRequest{Key: "k", Side: kind, Owner: "job"}, true)
				})
			})
		}
	}
}

// That LOCK's lease is not shortened by a MULTILOCK that waits for another lock meanwhile.
func TestQuorumMultiLockKeepsALeaseTakenMeanwhile(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		t.Run(kind.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 3)
				a, _ := client(ns.engine(t, "one", 0, Options{}))
				b, _ := client(ns.engine(t, "two", 0, Options{}))
				c, _ := client(ns.engine(t, "three", 0, Options{}))
				other, _ := client(a.m)
				time.Sleep(2 * time.Second)
				alone := Plain
				if kind != Plain {
					alone = Write
				}
				mustLock(t, other, Request{Key: "m", Kind: alone})
				mustLock(t, other, Request{Key: "x", Kind: alone})
				done := make(chan error, 1)
				go func() {
					_, err := a.MultiLock(context.Background(), []string{"k", "m"}, Request{Kind: kind, Owner: "job", Blocks: true, Lease: 5000})
					done <- err
				}()
				time.Sleep(time.Second)
				if _, err := b.MultiLock(context.Background(), []string{"k", "x"}, Request{Kind: kind, Owner: "job"}); !errors.Is(err, ErrNotAcquired) {
					t.Fatal(err)
				}
				mustLock(t, c, Request{Key: "k", Kind: kind, Owner: "job", Lease: 50_000})
				mustUnlock(t, other, UnlockRequest{Key: "m", Side: alone}, true)
				if err := <-done; err != nil {
					t.Error(err)
				}
				time.Sleep(45 * time.Second)
				if n := ns.holding(t, "k"); n < 2 {
					t.Errorf("%d nodes have it before its end", n)
				}
				time.Sleep(time.Minute)
				if n := ns.holding(t, "k"); n > 0 {
					t.Errorf("%d nodes have it for ever", n)
				}
			})
		})
	}
}

// A MULTILOCK with a lease that waits for another lock leaves one that its owner has taken through another proxy meanwhile as it is there.
func TestQuorumMultiLockBesideItsOwner(t *testing.T) {
	for _, when := range []time.Duration{5 * time.Second, 10 * time.Second, 11 * time.Second} { // before and after a renewal has seen that
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			one, two := ns.engine(t, "one", 0, Options{}), ns.engine(t, "two", 0, Options{}, quorum.Options{NodeTimeout: 200 * time.Millisecond})
			a, lost := client(one)
			b, _ := client(two)
			other, _ := client(one)
			time.Sleep(2 * time.Second)
			mustLock(t, other, Request{Key: "m"})
			done := make(chan error, 1)
			go func() {
				_, err := b.MultiLock(context.Background(), []string{"k", "m"}, Request{Owner: "job", Blocks: true, Lease: 5000})
				done <- err
			}()
			time.Sleep(when)
			mustLock(t, a, Request{Key: "k", Owner: "job"})
			time.Sleep(time.Second)
			mustUnlock(t, other, UnlockRequest{Key: "m"}, true)
			if err := <-done; err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Minute)
			if n := ns.holding(t, "k"); n != 3 || lost.reasons() != "" {
				t.Errorf("after %v: %d nodes have it, lost: %q", when, n, lost.reasons())
			}
			if n := ns.holding(t, "m"); n != 0 {
				t.Errorf("after %v: %d nodes have the other lock still", when, n)
			}
			mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "job"}, true)
		})
	}
}

// A MULTILOCK with a lease, through a proxy that does not reach a node with the longer lease that the owner was told, does not shorten that.
func TestQuorumMultiLockDoesNotShorten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		a, _ := client(ns.engine(t, "one", 0, Options{}))
		b, _ := client(ns.engine(t, "two", 0, Options{}))
		time.Sleep(2 * time.Second)
		mustLock(t, a, Request{Key: "k", Owner: "job", Lease: 10_000})
		ns.link("one", 2).Cut()
		if err := a.Renew(context.Background(), RenewRequest{Key: "k", Owner: "job", Lease: 50_000}); err != nil {
			t.Fatal(err)
		}
		ns.link("two", 0).Cut()
		if _, err := b.MultiLock(context.Background(), []string{"k", "m"}, Request{Owner: "job", Lease: 5000}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if n := ns.holding(t, "k"); n < 2 {
			t.Errorf("%d nodes have it 10 s before its end", n)
		}
		time.Sleep(time.Minute)
		if n := ns.holding(t, "k"); n > 0 {
			t.Errorf("%d nodes have it for ever", n)
		}
	})
}

// A MULTILOCK with a lease knows the registration of a hold that this proxy renewed, for a connection that has closed, although no majority has
// that: nobody renews the hold.
func TestQuorumMultiLockOfWhatIsRenewedNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{})
		a, _ := client(m)
		b, _ := client(m)
		time.Sleep(2 * time.Second)
		ns.link("one", 1).Cut()
		mustLock(t, a, Request{Key: "k", Owner: "job"})
		a.Close(Gone)
		ns.link("one", 1).Heal()
		time.Sleep(5 * time.Second)
		ns.link("one", 2).Cut()
		if _, err := b.MultiLock(context.Background(), []string{"k", "m"}, Request{Owner: "job", Lease: 10_000}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if n := ns.holding(t, "k"); n > 0 {
			t.Errorf("%d nodes have it for ever", n)
		}
	})
}
