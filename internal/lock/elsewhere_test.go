package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// failingVerbs ask for the owner's lock k without a lease, and fail after Redis has done that.
var failingVerbs = map[string]func(c *Client, r Request) error{
	"LOCK … REPLICAS": func(c *Client, r Request) error {
		r.Replicas = 1
		_, err := c.Lock(context.Background(), r)
		return err
	},
	"MULTILOCK": func(c *Client, r Request) error {
		r.Blocks, r.Block = true, 100
		return multi(c, r, r.Key, "taken")
	},
}

// endsAfterAMinute checks that a lock, which has just been given a minute, ends then, and that its owner is told nothing.
func endsAfterAMinute(t *testing.T, there func(key string) bool, key string, lost *losses) {
	t.Helper()
	if time.Sleep(50 * time.Second); !there(key) {
		t.Error("it has ended before its time")
	}
	if time.Sleep(time.Minute); there(key) {
		t.Error("it is renewed")
	}
	if told := lost.reasons(); told != "" {
		t.Errorf("told %q", told)
	}
}

// A LOCK that RESET or CLIENT UNBLOCK has ended while it was under way leaves its owner's hold renewed: Redis has done it, and the other
// proxy has stopped.
func TestEndedVerbLeavesAnOwnersHoldRenewed(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, ", known there ", known), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
					a, lostA := client(m)
					b, lostB := client(n)
					r := Request{Key: "k", Kind: kind, Owner: "me"}
					if known {
						leased := r
						leased.Lease = 60_000
						mustLock(t, a, leased)
					}
					mustLock(t, b, r)
					c, _ := client(m)
					over, end := context.WithCancel(context.Background())
					end()
					r.Blocks, r.Block = true, 1000
					if _, err := c.Lock(over, r); !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Minute)
					if left := pttl(t, s, r.Key); left <= 0 {
						t.Error("it has ended")
					}
					if told := lostA.reasons() + lostB.reasons(); told != "" {
						t.Errorf("told %q", told)
					}
				})
			})
		}
	}
}

// Nor does such a LOCK have a hold renewed to which another connection of its owner has given an end.
func TestEndedVerbLeavesAnOwnersLeaseItsEnd(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			a, _ := client(bubbleEngine(t, w, s, "one", Options{}))
			c, _ := client(bubbleEngine(t, w, s, "two", Options{}))
			r := Request{Key: "k", Kind: kind, Owner: "me", Lease: 60_000}
			mustLock(t, a, r)
			over, end := context.WithCancel(context.Background())
			end()
			r.Lease, r.Blocks, r.Block = 0, true, 1000
			if _, err := c.Lock(over, r); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if time.Sleep(2 * time.Minute); pttl(t, s, r.Key) > 0 {
				t.Errorf("%v: it is renewed", kind)
			}
		})
	}
}

// A verb that fails at the proxy that has renewed the hold leaves the end that its owner has said at another proxy meanwhile, of which this
// one has not heard yet.
func TestFailedVerbLeavesAnEndFromElsewhere(t *testing.T) {
	for how, limit := range map[string]func(t *testing.T, c *Client, r Request){
		"RENEW EX": func(t *testing.T, c *Client, r Request) {
			if err := c.Renew(context.Background(), RenewRequest{Key: r.Key, Owner: r.Owner, Side: r.Kind, Lease: 60_000}); err != nil {
				t.Fatal(err)
			}
		},
		"UNLOCK, LOCK EX": func(t *testing.T, c *Client, r Request) {
			mustUnlock(t, c, UnlockRequest{Key: r.Key, Owner: r.Owner, Side: r.Kind}, true)
			r.Lease = 60_000
			mustLock(t, c, r)
		},
	} {
		for name, fail := range failingVerbs {
			for _, votes := range []bool{false, true} {
				for _, kind := range lockstore.Kinds {
					t.Run(fmt.Sprint(how, ", ", name, ", ", kind, ", quorum ", votes), func(t *testing.T) {
						inBubble(t, func(t *testing.T, w *world.World) {
							m, n, there := twoEngines(t, w, votes)
							a, lost := client(m)
							b, _ := client(n)
							r := Request{Key: "k", Kind: kind, Owner: "me"}
							mustLock(t, b, Request{Key: "taken", Kind: opposite(kind)})
							mustLock(t, a, r)
							limit(t, b, r)
							if err := fail(a, r); err == nil {
								t.Fatal("it has not failed")
							}
							endsAfterAMinute(t, there, r.Key, lost)
						})
					})
				}
			}
		}
	}
}

// A new hold that nobody renews says so also at a proxy that has renewed an earlier one of its owner, for a connection that has gone.
func TestTakenAgainAfterItsConnectionHasGone(t *testing.T) {
	for name, fail := range failingVerbs {
		for _, votes := range []bool{false, true} {
			for _, kind := range lockstore.Kinds {
				t.Run(fmt.Sprint(name, ", ", kind, ", quorum ", votes), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						m, n, there := twoEngines(t, w, votes)
						a, _ := client(m)
						b, _ := client(n)
						r := Request{Key: "k", Kind: kind, Owner: "me"}
						mustLock(t, b, Request{Key: "taken", Kind: opposite(kind)})
						mustLock(t, a, r)
						a.Close(Gone)
						mustUnlock(t, b, UnlockRequest{Key: r.Key, Owner: r.Owner, Side: kind}, true)
						c, lost := client(m)
						leased := r
						leased.Lease = 60_000
						mustLock(t, c, leased)
						if err := fail(b, r); err == nil {
							t.Fatal("it has not failed")
						}
						endsAfterAMinute(t, there, r.Key, lost)
					})
				})
			}
		}
	}
}

// A renewal does not shorten the registration of a hold whose lease is longer, so that an UNLOCK through another proxy is no loss.
func TestRenewalKeepsALongRegistration(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, kind := range lockstore.Kinds {
			t.Run(fmt.Sprint(kind, ", quorum ", votes), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					m, n, _ := twoEngines(t, w, votes)
					a, _ := client(m)
					b, _ := client(n)
					r := Request{Key: "k", Kind: kind, Owner: "me"}
					mustLock(t, a, r)
					if r.Lease = 600_000; votes {
						r.Lease = 60_000 // the longest
					}
					mustLock(t, a, r)
					time.Sleep(12 * time.Second) // it is renewed
					a.Close(Gone)
					time.Sleep(35 * time.Second)
					mustUnlock(t, b, UnlockRequest{Key: r.Key, Owner: r.Owner, Side: kind}, true)
					time.Sleep(20 * time.Minute)
					if lost := m.Stats().Lost; lost != 0 {
						t.Errorf("%d were counted as lost", lost)
					}
				})
			})
		}
	}
}

// A connection that is lost while a MULTILOCK asks what its owner has does not fail it: nothing was changed by that.
func TestMultiLockAsksAgain(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			a, _ := client(bubbleEngine(t, w, s, "one", Options{}))
			r := Request{Key: "k", Kind: kind, Owner: "me"}
			mustLock(t, a, r)
			link := w.Proxy("one").Link(s.Addr())
			link.Delay(200*time.Millisecond, 0)
			time.AfterFunc(100*time.Millisecond, link.Cut)
			time.AfterFunc(150*time.Millisecond, link.Heal)
			if err := multi(a, r, r.Key, "more"); err != nil {
				t.Errorf("%v: %v", kind, err)
			}
		})
	}
}

// A LOCK that has been ended at the proxy that has renewed the hold leaves the end that its owner has said at another proxy meanwhile.
func TestEndedVerbLeavesAnEndFromElsewhere(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, kind := range lockstore.Kinds {
			t.Run(fmt.Sprint(kind, ", quorum ", votes), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					m, n, there := twoEngines(t, w, votes)
					a, lost := client(m)
					b, _ := client(n)
					r := Request{Key: "k", Kind: kind, Owner: "me"}
					mustLock(t, a, r)
					if err := b.Renew(context.Background(), RenewRequest{Key: r.Key, Owner: r.Owner, Side: kind, Lease: 60_000}); err != nil {
						t.Fatal(err)
					}
					c, _ := client(m)
					over, end := context.WithCancel(context.Background())
					end()
					r.Blocks, r.Block = true, 1000
					if _, err := c.Lock(over, r); !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
					endsAfterAMinute(t, there, r.Key, lost)
				})
			})
		}
	}
}

// A MULTILOCK that is ended while it takes a lock which its owner has with a lease gives that lock back the end that it had.
func TestEndedMultiLockLeavesALeaseItsEnd(t *testing.T) {
	for _, known := range []bool{false, true} {
		for _, kind := range lockstore.Kinds {
			t.Run(fmt.Sprint(kind, ", known there ", known), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					a, _ := client(bubbleEngine(t, w, s, "one", Options{}))
					b, _ := client(bubbleEngine(t, w, s, "two", Options{}))
					r := Request{Key: "k", Kind: kind, Owner: "me", Lease: 3000}
					mustLock(t, a, Request{Key: "warm", Kind: kind, Owner: "me"}) // so that a connection is there
					mustLock(t, b, r)
					if known {
						mustLock(t, a, r)
					}
					w.Proxy("one").Link(s.Addr()).Delay(200*time.Millisecond, 0)
					over, end := context.WithCancel(context.Background())
					r.Lease, r.Blocks, r.Block = 0, true, 10_000
					ended := make(chan error, 1)
					go func() {
						_, err := a.MultiLock(over, []string{"k", "z"}, r)
						ended <- err
					}()
					eventually(t, 5*time.Second, "it is taken", func() bool { return pttl(t, s, "k") > 10_000 })
					end()
					if err := <-ended; err == nil {
						t.Fatal("it has not ended")
					}
					if time.Sleep(10 * time.Second); pttl(t, s, "k") > 0 {
						t.Errorf("it has %d ms left", pttl(t, s, "k"))
					}
				})
			})
		}
	}
}

// A LOCK whose owner's hold is reported lost before it is sent makes a new hold, under a name of its own: by that the hold is known for this LOCK's
// if the reply is lost.
func TestLockOfWhatWasLostMeanwhileHasItsOwnName(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", Options{})
		a, _ := client(m)
		r := Request{Key: "k", Owner: "job"}
		mustLock(t, a, r)
		id, _ := a.id(Plain, 0, "k", "job")
		h, err := m.holds.enter(context.Background(), id, true)
		if err != nil {
			t.Fatal(err)
		}
		defer m.holds.leave(h)
		again := a.newAcquire(h, r, nil)
		known := again.Registration
		if again.fresh {
			t.Error("the hold is there, and its name is used")
		}
		m.holds.mu.Lock()
		m.holds.lose(h, reasonUnrenewed)
		m.holds.mu.Unlock()
		if _, err := again.ask(context.Background()); err != nil || !again.fresh || again.Registration == known {
			t.Errorf("%v, %q after %q", err, again.Registration, known)
		}
	})
}
