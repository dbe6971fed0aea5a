package lock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// askedFor is a request of a client that was granted, and of which nobody has been told. Its hold is busy.
func askedFor(t *testing.T, c *Client, r Request) (*acquire, lockstore.Acquired) {
	t.Helper()
	id, named := c.id(r.Kind, r.DB, r.Key, r.Owner)
	h, err := c.m.holds.enter(context.Background(), id, named)
	if err != nil {
		t.Fatal(err)
	}
	a := c.newAcquire(h, r, nil)
	ans, err := a.ask(context.Background())
	if err != nil || ans.Code != 1 {
		t.Fatal(ans, err)
	}
	a.notAfter = ans.NotAfter
	return a, ans
}

// A grant of which nobody heard, because its reply was lost and its client did not wait for the answer, is given back, unless its
// owner had the lock before or counts on it through another proxy. What it had before is renewed here from then on, if that was asked for: the
// other proxy finds the registration of this request beside it, and stops.
func TestAbandonedGrantOfAnOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
		b, _ := client(n)
		for _, kind := range lockstore.Kinds {
			for _, lease := range []int64{0, 60000} {
				for _, when := range []string{"never", "before", "after"} {
					what := fmt.Sprintf("%v, lease %d, held elsewhere %s", kind, lease, when)
					c, _ := client(m)
					r := Request{Key: fmt.Sprint(kind, lease, when), Kind: kind, Owner: "me", Lease: lease}
					if when == "before" {
						mustLock(t, b, r)
					}
					a, _ := askedFor(t, c, r)
					id := a.ID
					if when == "after" {
						mustLock(t, b, r)
					}
					a.abandon(a.findOutcome()) // leaves the hold
					if left := hash(t, s, r.Key)[id.Field()]; (left == "1") != (when != "never") {
						t.Errorf("%s: %q is left", what, left)
					}
					if here := m.holds.held(id); here != (when == "before" && lease == 0) {
						t.Errorf("%s: renewed here %v", what, here)
					}
				}
			}
		}
	})
}

// TestAbandonedWhileRedisIsAway: what its owner does not want is given back as soon as Redis can be asked again, also when that
// takes longer than a second, and not at the end of its lease.
func TestAbandonedWhileRedisIsAway(t *testing.T) {
	const away, lease = 15 * time.Second, 10 * time.Minute
	for how, prepare := range map[string]func(*Client, *acquire, settled) (abandon func()){
		"grant": func(_ *Client, a *acquire, s settled) func() { return func() { a.abandon(s) } },
		"too late": func(c *Client, a *acquire, s settled) func() {
			return func() {
				if _ = c.m.giveBacks.undo(context.Background(), a, s.Acquired); !a.handedOn {
					c.m.holds.leave(a.h)
				}
			}
		},
		"told lost": func(c *Client, a *acquire, _ settled) func() {
			a.h.lease = lease
			return func() { c.m.holds.leave(a.h); c.m.giveBacks.enterAndSurrender(a.h) }
		},
		"unlock": func(c *Client, a *acquire, _ settled) func() {
			r := c.m.giveBacks.newRelease(a.h, c, true)
			r.Registration, r.Count, r.notAfter, r.sent = a.Registration, 1, a.notAfter, time.Now()
			s := r.findOutcome()
			return func() { r.abandon(s) }
		},
	} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m := bubbleEngine(t, w, s, "one", Options{})
				link := w.Proxy("one").Link(s.Addr())
				for _, kind := range lockstore.Kinds {
					for _, owner := range []string{"", "me"} {
						what := fmt.Sprintf("%v, owner %q", kind, owner)
						c, _ := client(m)
						r := Request{Key: what, Kind: kind, Owner: owner, Lease: lease.Milliseconds()}
						a, _ := askedFor(t, c, r)
						a.h.registration = a.Registration
						abandon := prepare(c, a, a.findOutcome())
						link.Cut()
						var abandoned sync.WaitGroup
						abandoned.Go(abandon)
						time.Sleep(away)
						link.Heal()
						eventually(t, away, what+" is free", func() bool { return s.Do(t, "EXISTS", r.Key).(int64) == 0 })
						abandoned.Wait()
					}
				}
			})
		})
	}
}

// A re-entry that nobody heard of is taken back as soon as Redis can be asked, for as long as the lock that was entered may last, however short
// a lease the re-entry asked for.
func TestAbandonedReentryWhileRedisIsAway(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for _, away := range []time.Duration{6 * time.Second, 18 * time.Second} {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m := bubbleEngine(t, w, s, "one", Options{})
				link := w.Proxy("one").Link(s.Addr())
				c, lost := client(m)
				r := Request{Key: "k", Kind: kind}
				for range 2 {
					mustLock(t, c, r)
				}
				mustUnlock(t, c, UnlockRequest{Key: "k", Side: kind}, false)
				r.Lease = 100
				link.Swallow(world.Replies)
				time.AfterFunc(50*time.Millisecond, link.Cut)
				began := time.Now()
				_, err := c.Lock(context.Background(), r)
				wantCode(t, err, "ERR")
				time.Sleep(time.Until(began.Add(away)))
				link.Heal()
				id, _ := c.id(kind, 0, "k", "")
				eventually(t, 10*time.Second, "the count is lowered", func() bool { return hash(t, s, "k")[id.Field()] == "1" })
				time.Sleep(time.Minute)
				mustUnlock(t, c, UnlockRequest{Key: "k", Side: kind}, true)
				if told := lost.reasons(); told != "" || s.Do(t, "EXISTS", "k").(int64) != 0 {
					t.Errorf("%v, away for %v: told %q", kind, away, told)
				}
			})
		}
	}
}
