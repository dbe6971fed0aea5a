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

// While nobody knows what became of one verb, the next ones on the same hold are answered all the same, in the time in which they would be
// by themselves. What they ask for is done when Redis is back.
func TestVerbsBehindOneOfUnknownOutcome(t *testing.T) {
	ctx := context.Background()
	type verb struct {
		what string
		most time.Duration
		send func(c *Client, key, owner string) error
	}
	lock := verb{"LOCK", patience, func(c *Client, key, owner string) error {
		_, err := c.Lock(ctx, Request{Key: key, Owner: owner, Lease: 3_600_000})
		return err
	}}
	unlock := verb{"UNLOCK", patience, func(c *Client, key, owner string) error {
		_, err := c.Unlock(ctx, UnlockRequest{Key: key, Owner: owner})
		return err
	}}
	verbs := []verb{
		lock,
		{"LOCK BLOCK", time.Second, func(c *Client, key, owner string) error {
			_, err := c.Lock(ctx, Request{Key: key, Owner: owner, Blocks: true, Block: 1000})
			return err
		}},
		{"MULTILOCK", patience, func(c *Client, key, owner string) error {
			_, err := c.MultiLock(ctx, []string{key, "another"}, Request{Owner: owner})
			return err
		}},
		unlock,
		{"RENEW", patience, func(c *Client, key, owner string) error {
			return c.Renew(ctx, RenewRequest{Key: key, Owner: owner, Lease: 1000})
		}},
		{"FENCED", patience, func(c *Client, key, owner string) error {
			return c.NotHeld(ctx, HoldRequest{Key: key, Owner: owner})
		}},
	}
	for _, before := range []verb{lock, unlock} {
		for _, owner := range []string{"", "me"} {
			for _, after := range verbs {
				t.Run(fmt.Sprintf("%s after %s, owner %q", after.what, before.what, owner), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						s := w.NewNode(bubbleAddr)
						m := bubbleEngine(t, w, s, "one", Options{})
						link := w.Proxy("one").Link(s.Addr())
						c, _ := client(m)
						if mustLock(t, c, Request{Key: "k", Owner: owner, Lease: 3_600_000}); before.what == "LOCK" && owner != "" {
							mustUnlock(t, c, UnlockRequest{Key: "k", Owner: owner}, true) // or else it is a re-entry
						}
						link.Swallow(world.Replies)
						time.AfterFunc(100*time.Millisecond, link.Cut)
						wantCode(t, before.send(c, "k", owner), "ERR")
						time.Sleep(time.Second)
						began := time.Now()
						if err := after.send(c, "k", owner); !lockstore.NotSent(err) {
							t.Error(err)
						}
						most := after.most
						if before.what == "UNLOCK" || owner == "" { // it is a re-entry
							most = patience
						}
						if took := time.Since(began); took > most+time.Second {
							t.Errorf("it took %v", took)
						}
						link.Heal()
						eventually(t, time.Minute, "the first one has been made good", func() bool {
							if owner != "" {
								return hash(t, s, "k")[owner] == ""
							}
							count := hash(t, s, "k")[c.Owner()]
							return before.what == "LOCK" && count == "1" || before.what == "UNLOCK" && count == ""
						})
					})
				})
			}
		}
	}
}

// A LOCK of a lock that its owner has waits for what is at work on that for as long as its BLOCK, but no less than without BLOCK: it may be a
// renewal that waits for replicas.
func TestLockedAgainBehindAVerb(t *testing.T) {
	for _, owner := range []string{"", "me"} {
		for block, busy := range map[int64]time.Duration{10: time.Second, 60_000: 20 * time.Second, 0: 20 * time.Second} {
			t.Run(fmt.Sprintf("owner %q, BLOCK %d", owner, block), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", Options{Watchdog: time.Minute})
					c, _ := client(m)
					mustLock(t, c, Request{Key: "k", Owner: owner})
					id, named := c.id(Plain, 0, "k", owner)
					h, err := m.holds.enter(context.Background(), id, named)
					if err != nil {
						t.Fatal(err)
					}
					time.AfterFunc(busy, func() { m.holds.leave(h) })
					began := time.Now()
					mustLock(t, c, Request{Key: "k", Owner: owner, Self: owner == "", Blocks: true, Block: block})
					if took := time.Since(began); took < busy {
						t.Errorf("granted after %v", took)
					}
				})
			})
		}
	}
}

// If the lock turns out to be another owner's by then, it is waited for in what is left of BLOCK.
func TestLockedAgainWhenItIsAnothers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		c, _ := client(m)
		other, _ := client(bubbleEngine(t, w, s, "two", Options{}))
		mustLock(t, c, Request{Key: "k", Owner: "me", Lease: 60_000})
		mustUnlock(t, other, UnlockRequest{Key: "k", Owner: "me"}, true)
		mustLock(t, other, Request{Key: "k"})
		id, _ := c.id(Plain, 0, "k", "me")
		h, err := m.holds.enter(context.Background(), id, true)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(6*time.Second, func() { m.holds.leave(h) })
		began := time.Now()
		_, err = c.Lock(context.Background(), Request{Key: "k", Owner: "me", Blocks: true, Block: 8_000})
		if took := time.Since(began); !errors.Is(err, ErrNotAcquired) || took < 8*time.Second || took > 9*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// RESET does not wait longer either, and gives back what the connection held when what became of the verb before is known.
func TestResetBehindAVerbOfUnknownOutcome(t *testing.T) {
	for _, verb := range []string{"LOCK", "UNLOCK"} {
		for _, again := range []bool{false, true} {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m := bubbleEngine(t, w, s, "one", Options{})
				link := w.Proxy("one").Link(s.Addr())
				c, lost := client(m)
				for range 2 {
					mustLock(t, c, Request{Key: "k", Lease: 3_600_000})
				}
				link.Swallow(world.Replies)
				time.AfterFunc(100*time.Millisecond, link.Cut)
				var err error
				if verb == "LOCK" {
					_, err = c.Lock(context.Background(), Request{Key: "k", Lease: 3_600_000})
				} else {
					_, err = c.Unlock(context.Background(), UnlockRequest{Key: "k"})
				}
				wantCode(t, err, "ERR")
				began := time.Now()
				c.Reset()
				if took := time.Since(began); took > patience+time.Second {
					t.Errorf("it took %v", took)
				}
				link.Heal()
				left := ""
				if again {
					left = "1"
					granted(t, locking(c, Request{Key: "k", Blocks: true, Block: 30000}), "LOCK after RESET")
				}
				time.Sleep(time.Minute)
				if has := hash(t, s, "k")[c.Owner()]; has != left || lost.reasons() != "" {
					t.Errorf("%s, taken again %v: its count is %q, told %q", verb, again, has, lost.reasons())
				}
			})
		}
	}
}

// A hold that nobody works on is entered also when there is no time to wait for one.
func TestFreeHoldIsEnteredInNoTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", Options{})
		over, cancel := context.WithCancel(context.Background())
		cancel()
		for range 100 {
			h, err := m.holds.enter(over, lockstore.ID{Key: "k", Owner: "me"}, true)
			if err != nil {
				t.Fatal(err)
			}
			m.holds.leave(h)
		}
	})
}

// A look whose reply is lost holds up no shorter lease, as a renewal does that may still be done.
func TestLostLookHoldsUpNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		link := w.Proxy("one").Link(s.Addr())
		c, _ := client(m)
		mustLock(t, c, Request{Key: "k", Owner: "me", Lease: 60_000})
		link.Swallow(world.Replies)
		time.AfterFunc(10*time.Millisecond, link.Cut)
		_ = m.watchdog.lookAgain(context.Background(), lockstore.ID{Key: "k", Owner: "me"}, true, patience)
		link.Heal()
		m.holds.mu.Lock()
		defer m.holds.mu.Unlock()
		if late := m.holds.byID[lockstore.ID{Key: "k", Owner: "me"}].late; !late.IsZero() {
			t.Errorf("a shorter lease waits for %v", time.Until(late))
		}
	})
}
