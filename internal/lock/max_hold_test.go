package lock

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// TestMaxHoldIsNotPutOff: whatever a holder does before a third of its lease is over, and however often, a renewed lock ends at max-hold.
func TestMaxHoldIsNotPutOff(t *testing.T) {
	const most = 5 * time.Minute
	ctx := context.Background()
	for name, c := range map[string]struct {
		does func(c *Client) error
	}{
		"enters": {does: func(c *Client) error {
			if _, err := c.Lock(ctx, Request{Key: "k"}); err != nil {
				return err
			}
			_, err := c.Unlock(ctx, UnlockRequest{Key: "k"})
			return err
		}},
		"renews":           {does: func(c *Client) error { return c.Renew(ctx, RenewRequest{Key: "k"}) }},
		"has it looked at": {does: func(c *Client) error { return c.NotHeld(ctx, HoldRequest{Key: "k"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", ManagerOptions{MaxHold: most})
				a, lost := client(m)
				taken := time.Now()
				mustLock(t, a, Request{Key: "k"})
				for next := taken.Add(9 * time.Second); next.Before(taken.Add(most)); next = next.Add(9 * time.Second) {
					time.Sleep(time.Until(next))
					if err := c.does(a); err != nil && !isCode(err, "NOTHELD") || lost.reasons() != "" {
						t.Fatalf("after %v: %v %v", time.Since(taken), err, lost.reasons())
					}
				}
				eventually(t, time.Until(taken.Add(most+time.Second)), "lost", func() bool { return lost.reasons() == "k:max-hold " })
				if held := time.Since(taken); held < most {
					t.Errorf("lost after %v", held)
				}
			})
		})
	}
}

// A max-hold that is longer than any time ends nothing, and does not have the watchdog come without a pause.
func TestMaxHoldForEver(t *testing.T) {
	hs := newHolds(ManagerOptions{Logger: testLog(), Watchdog: 30 * time.Second, MaxHold: math.MaxInt64}, nil)
	hs.drift = func(time.Duration) time.Duration { return 0 }
	now := hs.now()
	h, _ := hold{}.on(acquired{counts: lockstore.Counts{Writes: 1}, ttl: 30 * time.Second, sent: now}, now, hs.terms)
	if next := h.visit.sub(now); next != 10*time.Second {
		t.Errorf("it is visited in %v", next)
	}
}

// A lock that RENEW hands to the watchdog is looked at when it is to end, and not a third of its lease later.
func TestMaxHoldOfWhatIsHandedOver(t *testing.T) {
	hs := newHolds(ManagerOptions{Logger: testLog(), Watchdog: 30 * time.Second, MaxHold: time.Minute}, nil)
	hs.drift = func(time.Duration) time.Duration { return 0 }
	now := hs.now()
	h, _ := hold{}.on(acquired{counts: lockstore.Counts{Writes: 1}, lease: time.Hour, ttl: time.Hour, sent: now}, now, hs.terms)
	h.visit = now.add(65 * time.Second)
	h, _ = h.on(handedOver{}, now.add(55*time.Second), hs.terms)
	if next := h.visit.sub(now); next != time.Minute {
		t.Errorf("it is visited in %v", next)
	}
}
