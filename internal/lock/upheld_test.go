package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A named owner's hold is renewed by the proxy that its last LOCK or RENEW came through. When that one fails, but has been done in Redis, the
// former proxy has stopped all the same: the hold goes on being renewed, and is not lost without a word.
func TestFailedVerbsLeaveAnOwnersHoldRenewed(t *testing.T) {
	lost := func(link *world.Link, verb func() error) error {
		link.Swallow(world.Replies)
		time.AfterFunc(100*time.Millisecond, link.Cut)
		defer link.Heal()
		return verb()
	}
	for how, fail := range map[string]func(c *Client, r Request, link *world.Link) error{
		"NOREPLICAS": func(c *Client, r Request, _ *world.Link) error {
			r.Replicas = 1
			_, err := c.Lock(context.Background(), r)
			return err
		},
		"NOREPLICAS, several": func(c *Client, r Request, _ *world.Link) error {
			r.Replicas = 1
			_, err := c.MultiLock(context.Background(), []string{r.Key, r.Key + " too"}, r)
			return err
		},
		"LOCK whose reply is lost": func(c *Client, r Request, link *world.Link) error {
			return lost(link, func() error {
				_, err := c.Lock(context.Background(), r)
				return err
			})
		},
		"LOCK … FENCE whose reply is lost": func(c *Client, r Request, link *world.Link) error {
			r.Fence = r.Kind != Read
			return lost(link, func() error {
				_, err := c.Lock(context.Background(), r)
				return err
			})
		},
		"RENEW whose reply is lost": func(c *Client, r Request, link *world.Link) error {
			return lost(link, func() error {
				return c.Renew(context.Background(), RenewRequest{Key: r.Key, Owner: r.Owner, Side: r.Kind})
			})
		},
	} {
		for _, kind := range lockstore.Kinds {
			for _, before := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %v, known there %v", how, kind, before), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						s := w.NewNode(bubbleAddr)
						m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
						a, lostA := client(m)
						b, lostB := client(n)
						r := Request{Key: "k", Kind: kind, Owner: "me"}
						warm := r
						warm.Key = "warm" // so that what is sent first does what it asks for
						mustLock(t, b, warm)
						if err := b.Renew(context.Background(), RenewRequest{Key: warm.Key, Owner: r.Owner}); err != nil {
							t.Fatal(err)
						}
						if before {
							leased := r
							leased.Lease = 20000
							mustLock(t, b, leased)
						}
						mustLock(t, a, r)
						if err := fail(b, r, w.Proxy("two").Link(s.Addr())); err == nil {
							t.Fatal("it has not failed")
						}
						time.Sleep(2 * time.Minute)
						if count := hash(t, s, r.Key)[lockstore.ID{Key: r.Key, Owner: r.Owner, Kind: kind}.Field()]; count != "1" {
							t.Errorf("its count is %q after four leases", count)
						}
						if told := lostA.reasons() + lostB.reasons(); told != "" {
							t.Errorf("told %q", told)
						}
						mustUnlock(t, a, UnlockRequest{Key: r.Key, Owner: r.Owner, Side: kind}, true)
					})
				})
			}
		}
	}
}

// A LOCK or MULTILOCK without its replicas leaves an owner's hold that nobody renews: it ends.
func TestFailedVerbsLeaveAnOwnersLeaseItsEnd(t *testing.T) {
	const gone = "one, its connection has gone"
	for how, fail := range map[string]func(c *Client, r Request) error{
		"LOCK":      func(c *Client, r Request) error { _, err := c.Lock(context.Background(), r); return err },
		"MULTILOCK": func(c *Client, r Request) error { return multi(c, r, r.Key, r.Key+" too") },
		"MULTILOCK with a lease": func(c *Client, r Request) error {
			r.Lease = 5000
			return multi(c, r, r.Key, r.Key+" too")
		},
	} {
		for _, kind := range lockstore.Kinds {
			for _, proxies := range []string{"one", "two", gone} {
				t.Run(fmt.Sprintf("%s, %v, %s", how, kind, proxies), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						s := w.NewNode(bubbleAddr)
						m := bubbleEngine(t, w, s, "one", Options{})
						n := m
						if proxies == "two" {
							n = bubbleEngine(t, w, s, "two", Options{})
						}
						a, _ := client(m)
						b, _ := client(n)
						r := Request{Key: "k", Kind: kind, Owner: "me", Lease: 20000}
						if proxies == gone {
							r.Lease = 0
						}
						mustLock(t, a, r)
						if proxies == gone {
							a.Close(Gone)
						}
						r.Lease, r.Replicas = 0, 1
						for range 2 { // it says after the first time, too, that nobody renews it
							wantCode(t, fail(b, r), "NOREPLICAS")
						}
						time.Sleep(2 * time.Minute)
						if left := pttl(t, s, r.Key); left > 0 {
							t.Errorf("it is renewed: it has %v left", left)
						}
					})
				})
			}
		}
	}
}

// So it does if the other LOCK came to the same owner, with a lease, while the one that fails was under way: what that one has made cannot be
// given back any more, and saying it again does not have it renewed.
func TestFailedVerbsLeaveALeaseOfMeanwhile(t *testing.T) {
	for how, fail := range map[string]func(c *Client, r Request) error{
		"LOCK": func(c *Client, r Request) error {
			r.Replicas = 1
			_, err := c.Lock(context.Background(), r)
			return err
		},
		"MULTILOCK": func(c *Client, r Request) error {
			r.Blocks, r.Block = true, 2000
			return multi(c, r, r.Key, "taken")
		},
	} {
		for _, kind := range lockstore.Kinds {
			t.Run(fmt.Sprintf("%s, %v", how, kind), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					a, _ := client(bubbleEngine(t, w, s, "one", Options{}))
					b, _ := client(bubbleEngine(t, w, s, "two", Options{}))
					r := Request{Key: "k", Kind: kind, Owner: "me"}
					taken := Request{Key: "taken", Kind: kind}
					if kind == Read {
						taken.Kind = Write
					}
					mustLock(t, b, taken)
					mustLock(t, a, Request{Key: "warm", Kind: kind, Owner: "me"}) // so that a connection is there
					w.Proxy("one").Link(s.Addr()).Delay(200*time.Millisecond, 0)
					defer w.Proxy("one").Link(s.Addr()).Heal()
					failed := make(chan error, 1)
					go func() { failed <- fail(a, r) }()
					eventually(t, 5*time.Second, "it is taken", func() bool { return pttl(t, s, r.Key) > 0 })
					leased := r
					leased.Lease = 60_000
					mustLock(t, b, leased)
					if err := <-failed; err == nil {
						t.Fatal("it has not failed")
					}
					if err := fail(a, r); err == nil {
						t.Fatal("it has not failed again")
					}
					if left := pttl(t, s, r.Key); left < 50_000 {
						t.Errorf("of the lease of 60 s it has %d ms left", left)
					}
					time.Sleep(2 * time.Minute)
					if left := pttl(t, s, r.Key); left > 0 {
						t.Errorf("it is renewed: it has %v left", left)
					}
				})
			})
		}
	}
}

// A LOCK whose reply is lost does not make anybody forget that nobody renewed the hold.
func TestFailedVerbWithoutItsReplyLeavesALease(t *testing.T) {
	for _, replicas := range []int64{0, 1} {
		for _, kind := range lockstore.Kinds {
			t.Run(fmt.Sprintf("REPLICAS %d, %v", replicas, kind), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					b, _ := client(bubbleEngine(t, w, s, "one", Options{}))
					link := w.Proxy("one").Link(s.Addr())
					r := Request{Key: "k", Kind: kind, Owner: "me", Lease: 60_000}
					mustLock(t, b, Request{Key: "warm", Kind: kind, Owner: "me"}) // so that what is sent first does what it asks for
					mustLock(t, b, r)
					r.Lease, r.Replicas = 0, replicas
					link.Swallow(world.Replies)
					time.AfterFunc(100*time.Millisecond, link.Cut)
					back := 200 * time.Millisecond
					if replicas == 0 {
						back = 10 * time.Second // after the client has its error
					}
					time.AfterFunc(back, link.Heal)
					if _, err := b.Lock(context.Background(), r); err == nil {
						t.Fatal("it has not failed")
					}
					time.Sleep(3 * time.Minute)
					if left := pttl(t, s, r.Key); left > 0 {
						t.Errorf("it is renewed: it has %v left", left)
					}
				})
			})
		}
	}
}

// What is no longer renewed here may be renewed through another proxy by now: a LOCK that fails here keeps it.
func TestFailedVerbKeepsWhatWasTakenOver(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
			r := Request{Key: "k", Kind: kind, Owner: "me"}
			a, _ := client(m)
			mustLock(t, a, r)
			a.Close(Gone)
			b, lost := client(n)
			mustLock(t, b, r)
			c, _ := client(m)
			failing := r
			failing.Replicas = 1
			_, err := c.Lock(context.Background(), failing)
			wantCode(t, err, "NOREPLICAS")
			time.Sleep(2 * time.Minute)
			if left := pttl(t, s, r.Key); left <= 0 || lost.reasons() != "" {
				t.Errorf("%v: it has %v left, lost %q", kind, left, lost.reasons())
			}
		})
	}
}

func multi(c *Client, r Request, keys ...string) error {
	_, err := c.MultiLock(context.Background(), keys, r)
	return err
}

// What fails so after its client has gone ends as the client's other holds do.
func TestFailedVerbOfOneWhoHasGone(t *testing.T) {
	const grace = time.Minute
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{OwnerGrace: grace})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Owner: "me"})
		b, _ := client(n)
		mustLock(t, b, Request{Key: "warm", Owner: "me"})
		link := w.Proxy("two").Link(s.Addr())
		link.Swallow(world.Replies)
		time.AfterFunc(100*time.Millisecond, link.Cut)
		_, err := b.Lock(context.Background(), Request{Key: "k", Owner: "me"})
		wantCode(t, err, "ERR")
		b.Close(Gone)
		link.Heal()
		time.Sleep(grace)
		if pttl(t, s, "k") <= 0 {
			t.Error("it is not renewed for as long as it is when a connection has gone")
		}
		time.Sleep(grace)
		if pttl(t, s, "k") > 0 {
			t.Error("it is renewed for ever")
		}
	})
}

// On a quorum a RENEW that no majority has is taken back wherever it may have been done, and the former proxy goes on.
func TestQuorumFailedRenewLeavesAnOwnersHoldRenewed(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for cut := 2; cut <= 3; cut++ {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 3)
				m, n := ns.engine(t, "one", 0, Options{}), ns.engine(t, "two", 0, Options{})
				a, lostA := client(m)
				b, lostB := client(n)
				mustLock(t, b, Request{Key: "warm", Owner: "me", Kind: kind})
				if err := b.Renew(context.Background(), RenewRequest{Key: "warm", Owner: "me", Side: kind}); err != nil {
					t.Fatal(err)
				}
				mustLock(t, a, Request{Key: "k", Owner: "me", Kind: kind})
				time.Sleep(time.Second)
				for i := range cut {
					ns.link("two", i).Swallow(world.Replies)
				}
				err := b.Renew(context.Background(), RenewRequest{Key: "k", Owner: "me", Side: kind})
				if err == nil {
					t.Fatal("it has not failed")
				}
				time.Sleep(time.Second)
				for i := range cut {
					ns.link("two", i).Cut()
					ns.link("two", i).Heal()
				}
				time.Sleep(2 * time.Minute)
				if has := ns.holding(t, "k"); has < 2 {
					t.Errorf("%v, %d: %d nodes have it", kind, cut, has)
				}
				if told := lostA.reasons() + lostB.reasons(); told != "" {
					t.Errorf("told %q", told)
				}
			})
		}
	}
}

// A LOCK with a lease whose reply is lost, after a RENEW with one whose reply was lost, did not make the hold: it is not given back.
func TestLockAfterARenewWithoutTheReply(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		t.Run(kind.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				a, _ := client(bubbleEngine(t, w, s, "one", Options{}))
				r := Request{Key: "k", Kind: kind, Owner: "me"}
				mustLock(t, a, r)
				link := w.Proxy("one").Link(s.Addr())
				link.Swallow(world.Replies)
				renewed := a.Renew(context.Background(), RenewRequest{Key: r.Key, Side: kind, Owner: "me", Lease: 60_000})
				r.Lease = 50_000
				_, locked := a.Lock(context.Background(), r)
				if renewed == nil || locked == nil {
					t.Fatal(renewed, locked)
				}
				link.Cut()
				link.Heal()
				if time.Sleep(20 * time.Second); pttl(t, s, r.Key) <= 0 {
					t.Errorf("it was given back; RENEW: %v, LOCK: %v", renewed, locked)
				}
			})
		})
	}
}

// Nor does a LOCK whose reply is lost if its owner has given the lock back through another proxy, of which this one has not heard yet.
func TestTakenAgainWithoutTheReply(t *testing.T) {
	for name, verb := range map[string]func(c *Client, r Request) error{
		"LOCK": func(c *Client, r Request) error {
			_, err := c.Lock(context.Background(), r)
			return err
		},
		"MULTILOCK": func(c *Client, r Request) error { return multi(c, r, r.Key, "more") },
	} {
		for _, kind := range lockstore.Kinds {
			for _, first := range []time.Duration{0, 300, 500, 700, 900, 1100} { // of a MULTILOCK's requests the first ones may be answered
				t.Run(fmt.Sprint(name, " ", kind, " ", first), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						s := w.NewNode(bubbleAddr)
						a, lost := client(bubbleEngine(t, w, s, "one", Options{}))
						b, _ := client(bubbleEngine(t, w, s, "two", Options{}))
						r := Request{Key: "k", Kind: kind, Owner: "me"}
						mustLock(t, a, r)
						mustUnlock(t, b, UnlockRequest{Key: r.Key, Owner: "me"}, true)
						link := w.Proxy("one").Link(s.Addr())
						link.Delay(200*time.Millisecond, 0)
						time.AfterFunc(first*time.Millisecond, func() { link.Swallow(world.Replies) })
						time.AfterFunc((first+300)*time.Millisecond, link.Cut)
						time.AfterFunc((first+400)*time.Millisecond, link.Heal)
						r.Lease = 20_000
						err := verb(a, r)
						if time.Sleep(15 * time.Second); err == nil && pttl(t, s, r.Key) <= 0 || lost.reasons() != "" {
							t.Errorf("it has %d ms left, and was told lost: %q", pttl(t, s, r.Key), lost.reasons())
						}
						time.Sleep(time.Minute)
						if left := pttl(t, s, r.Key); left > 0 {
							t.Errorf("it is renewed: it has %d ms left; %v", left, err)
						}
					})
				})
			}
		}
	}
}
