package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/share"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What a named owner is told of a lock by another connection, while a MULTILOCK of its waits for another one, holds whatever comes of the MULTILOCK.
func TestMultiLockBesideItsOwner(t *testing.T) {
	const long = 120_000
	type how struct {
		name    string
		does    func(c *Client) error
		watched bool
	}
	renews := func(lease int64) func(c *Client) error {
		return func(c *Client) error {
			return c.Renew(context.Background(), RenewRequest{Key: "k1", Owner: "o", Lease: lease})
		}
	}
	locks := func(lease int64) func(c *Client) error {
		return func(c *Client) error {
			_, err := c.Lock(context.Background(), Request{Key: "k1", Owner: "o", Lease: lease})
			return err
		}
	}
	anew := func(c *Client) error {
		if _, err := c.Unlock(context.Background(), UnlockRequest{Key: "k1", Owner: "o"}); err != nil {
			return err
		}
		return locks(long)(c)
	}
	for _, h := range []how{
		{"RENEW EX", renews(long), false}, {"RENEW", renews(0), true}, {"LOCK EX", locks(long), false}, {"LOCK", locks(0), true}, {"UNLOCK, LOCK EX", anew, false},
	} {
		for _, through := range []string{"one", "two"} {
			for _, before := range []int64{0, 30_000} {
				for _, waits := range []time.Duration{7 * time.Second, 40 * time.Second} {
					for _, succeeds := range []bool{false, true} {
						if succeeds && h.name == "UNLOCK, LOCK EX" {
							continue // one of its locks was given back meanwhile
						}
						t.Run(fmt.Sprintf("%s through %s, before %d, waits %v, succeeds %v", h.name, through, before, waits, succeeds), func(t *testing.T) {
							inBubble(t, func(t *testing.T, w *world.World) {
								s := w.NewNode(bubbleAddr)
								engines := map[string]*Manager{"one": bubbleEngine(t, w, s, "one", Options{}), "two": bubbleEngine(t, w, s, "two", Options{})}
								a, _ := client(engines[through])
								b, _ := client(engines["one"])
								other, _ := client(engines["one"])
								mustLock(t, other, Request{Key: "k2"})
								if before > 0 {
									mustLock(t, a, Request{Key: "k1", Owner: "o", Lease: before})
								}
								r := Request{Owner: "o", Blocks: true, Block: waits.Milliseconds()}
								if succeeds {
									r.Lease = 5000
								}
								done := make(chan error, 1)
								go func() { _, err := b.MultiLock(context.Background(), []string{"k1", "k2"}, r); done <- err }()
								time.Sleep(5 * time.Second)
								if err := h.does(a); err != nil {
									t.Fatal(err)
								}
								time.Sleep(waits - 6*time.Second)
								if succeeds {
									mustUnlock(t, other, UnlockRequest{Key: "k2"}, true)
								}
								if err := <-done; succeeds && err != nil || !succeeds && !errors.Is(err, ErrNotAcquired) {
									t.Fatal(err)
								}
								time.Sleep(30 * time.Second)
								if ttl := pttl(t, s, "k1"); ttl <= 0 || !h.watched && ttl < long-(waits+30*time.Second).Milliseconds() {
									t.Errorf("k1 has %d ms", ttl)
								}
								time.Sleep(2 * long * time.Millisecond)
								if ttl := pttl(t, s, "k1"); h.watched != (ttl > 0) {
									t.Errorf("much later k1 has %d ms", ttl)
								}
							})
						})
					}
				}
			}
		}
	}
}

// A hold that a MULTILOCK has come upon lives by the connection that had it before when that MULTILOCK has failed, also when this connection
// closes before that is known.
func TestMultiLockLeavesItsOwnersConnection(t *testing.T) {
	for _, lease := range []int64{0, 300_000} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("EX %d, closes early %v", lease, early), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m := bubbleEngine(t, w, s, "one", Options{})
					a, lost := client(m)
					b, _ := client(m)
					users := share.New(share.Limits{Locks: 1}, testLog())
					var of [2]*share.User
					for i, c := range []*Client{a, b} {
						of[i], _ = users.Join(fmt.Sprint("user", i))
						c.SetUser(of[i])
					}
					mustLock(t, a, Request{Key: "k1", Owner: "o", Lease: lease})
					taken := &multiLock{c: b, r: Request{Owner: "o"}, began: time.Now()}
					if err := taken.take(context.Background(), "k1", true); err != nil {
						t.Fatal(err)
					}
					if a.Held() != 0 || b.Held() != 1 {
						t.Fatal(a.Held(), b.Held())
					}
					if early {
						b.Close(Gone)
					}
					taken.giveBack()
					if !early {
						b.Close(Gone)
					}
					if a.Held() != 1 || b.Held() != 0 {
						t.Error("they hold", a.Held(), b.Held())
					}
					if of[0].Ask() == nil || of[1].Ask() != nil {
						t.Error("the lock counts for the wrong user")
					}
					time.Sleep(2 * time.Minute)
					if ttl := pttl(t, s, "k1"); ttl <= 0 || lost.reasons() != "" {
						t.Error(ttl, lost.reasons())
					}
					a.Close(Gone)
					eventually(t, 4*time.Minute, "it ends with that connection", func() bool { return pttl(t, s, "k1") < 0 })
				})
			})
		}
	}
}

// A MULTILOCK that fails on another proxy than the owner's has the hold renewed there, for as long as its own connection lives, unless the
// owner is named again.
func TestMultiLockElsewhereTakesTheRenewals(t *testing.T) {
	for _, again := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			a, _ := client(bubbleEngine(t, w, s, "one", Options{}))
			b, _ := client(bubbleEngine(t, w, s, "two", Options{}))
			other, _ := client(b.m)
			mustLock(t, other, Request{Key: "k2"})
			mustLock(t, a, Request{Key: "k1", Owner: "o"})
			if _, err := b.MultiLock(context.Background(), []string{"k1", "k2"}, Request{Owner: "o", Blocks: true, Block: 60_000}); !errors.Is(err, ErrNotAcquired) {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if pttl(t, s, "k1") <= 0 {
				t.Fatal("not renewed while the connection of the MULTILOCK lives")
			}
			if again {
				mustLock(t, a, Request{Key: "k1", Owner: "o"})
			}
			b.Close(Gone)
			time.Sleep(2 * time.Minute)
			if renewed := pttl(t, s, "k1") > 0; renewed != again {
				t.Errorf("named again %v, renewed %v", again, renewed)
			}
		})
	}
}
