package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// While nobody knows what became of one verb, the next ones on the same hold are answered all the same, in the time in which they would be
// by themselves. What the first one has left is put right when Redis is back.
func TestVerbsBehindOneOfUnknownOutcome(t *testing.T) {
	ctx := context.Background()
	type verb struct {
		what string
		most time.Duration
		send func(c *Client, key string) error
	}
	lock := verb{"LOCK", patience, func(c *Client, key string) error {
		_, err := c.Lock(ctx, Request{Key: key, Lease: 3_600_000})
		return err
	}}
	unlock := verb{"UNLOCK", patience, func(c *Client, key string) error {
		_, err := c.Unlock(ctx, UnlockRequest{Key: key})
		return err
	}}
	verbs := []verb{
		lock,
		{"LOCK BLOCK", patience, func(c *Client, key string) error {
			_, err := c.Lock(ctx, Request{Key: key, Blocks: true, Block: 1000})
			return err
		}},
		unlock,
		{"RENEW", patience, func(c *Client, key string) error { return c.Renew(ctx, RenewRequest{Key: key, Lease: 1000}) }},
		{"FENCED", patience, func(c *Client, key string) error { return c.NotHeld(ctx, HoldRequest{Key: key}) }},
	}
	for _, before := range []verb{lock, unlock} {
		for _, after := range verbs {
			t.Run(fmt.Sprintf("%s after %s", after.what, before.what), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m := bubbleEngine(t, w, s, "one", ManagerOptions{})
					link := w.Proxy("one").Link(s.Addr())
					c, told := client(m)
					mustLock(t, c, Request{Key: "k", Lease: 3_600_000})
					link.Swallow(world.Replies)
					time.AfterFunc(100*time.Millisecond, link.Cut)
					wantCode(t, before.send(c, "k"), "ERR")
					time.Sleep(time.Second)
					began := time.Now()
					if err := after.send(c, "k"); err == nil {
						t.Error("it is done, without Redis")
					}
					if took := time.Since(began); took > after.most+time.Second {
						t.Errorf("it took %v", took)
					}
					link.Heal()
					eventually(t, time.Minute, "Redis has what the connection is told", func() bool {
						count := ""
						if has := m.holds.peek(lockstore.ID{Key: "k", Owner: c.Owner()}); has.live() && has.is != givenUp {
							count = fmt.Sprint(has.counts.Writes)
						}
						return hash(t, s, "k")[c.Owner()] == count
					})
					if got := told.reasons(); got != "" {
						t.Errorf("told %q", got)
					}
				})
			})
		}
	}
}

// A LOCK of a lock that its connection has waits for what is at work on that for as long as its BLOCK, but no less than without BLOCK.
func TestLockedAgainBehindAVerb(t *testing.T) {
	for block, busy := range map[int64]time.Duration{10: time.Second, 60_000: 20 * time.Second, 0: 20 * time.Second} {
		t.Run(fmt.Sprint("BLOCK ", block), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", ManagerOptions{Watchdog: time.Minute})
				c, _ := client(m)
				mustLock(t, c, Request{Key: "k"})
				id := c.id(Plain, 0, "k", "")
				rec, err := entered(context.Background(), c, id)
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(busy, func() { m.holds.leave(rec) })
				began := time.Now()
				mustLock(t, c, Request{Key: "k", Self: true, Blocks: true, Block: block})
				if took := time.Since(began); took < busy {
					t.Errorf("granted after %v", took)
				}
			})
		})
	}
}

// RESET does not wait longer either, and gives back what the connection held when Redis is back.
func TestResetBehindAVerbOfUnknownOutcome(t *testing.T) {
	for _, verb := range []string{"LOCK", "UNLOCK"} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, taken again %v", verb, again), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m := bubbleEngine(t, w, s, "one", ManagerOptions{})
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
						eventually(t, time.Minute, "LOCK is sent, once the pause between two attempts to connect is over", func() bool {
							_, err := c.Lock(context.Background(), Request{Key: "k", Blocks: true, Block: 30000})
							if err != nil && !lockstore.NotSent(err) {
								t.Errorf("LOCK after RESET: %v", err)
							}
							return !lockstore.NotSent(err)
						})
					}
					time.Sleep(time.Minute)
					if has := hash(t, s, "k")[c.Owner()]; has != left || lost.reasons() != "" {
						t.Errorf("its count is %q, told %q", has, lost.reasons())
					}
				})
			})
		}
	}
}

// A record that nobody works on is entered also when there is no time to wait for one.
func TestFreeHoldIsEnteredInNoTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", ManagerOptions{})
		c, _ := client(m)
		over, cancel := context.WithCancel(context.Background())
		cancel()
		for range 100 {
			rec, err := entered(over, c, lockstore.ID{Key: "k", Owner: c.Owner()})
			if err != nil {
				t.Fatal(err)
			}
			m.holds.leave(rec)
		}
	})
}
