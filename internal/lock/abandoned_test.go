package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// TestAbandonedWhileRedisIsAway: what a connection does not want any more is given back as soon as Redis can be asked again, and not at the end of
// its lease.
func TestAbandonedWhileRedisIsAway(t *testing.T) {
	const away, lease = 15 * time.Second, 10 * time.Minute
	for how, abandon := range map[string]func(t *testing.T, c *Client, r Request, link *world.Link){
		"LOCK without its reply": func(t *testing.T, c *Client, r Request, link *world.Link) {
			link.Swallow(world.Replies)
			time.AfterFunc(50*time.Millisecond, link.Cut)
			_, err := c.Lock(t.Context(), r)
			wantCode(t, err, "ERR")
		},
		"LOCK of a client that goes": func(t *testing.T, c *Client, r Request, link *world.Link) {
			link.Swallow(world.Replies)
			time.AfterFunc(50*time.Millisecond, link.Cut)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			r.Blocks = true
			if _, err := c.Lock(ctx, r); err == nil {
				t.Error("it is granted")
			}
			c.Close(Gone)
		},
		"UNLOCK that is not sent": func(t *testing.T, c *Client, r Request, link *world.Link) {
			mustLock(t, c, r)
			link.Cut()
			if _, err := c.Unlock(t.Context(), UnlockRequest{Key: r.Key, Side: r.Kind}); err == nil {
				t.Error("it is done, without Redis")
			}
			c.Close(Gone)
		},
		"UNLOCK without its reply": func(t *testing.T, c *Client, r Request, link *world.Link) {
			mustLock(t, c, r)
			link.Swallow(world.Requests)
			time.AfterFunc(50*time.Millisecond, link.Cut)
			_, err := c.Unlock(t.Context(), UnlockRequest{Key: r.Key, Side: r.Kind})
			wantCode(t, err, "ERR")
		},
		"client that goes": func(t *testing.T, c *Client, r Request, link *world.Link) {
			mustLock(t, c, r)
			link.Cut()
			c.Close(Gone)
		},
	} {
		for _, kind := range lockstore.Kinds {
			t.Run(fmt.Sprintf("%s, %v", how, kind), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m := bubbleEngine(t, w, s, "one", ManagerOptions{})
					link := w.Proxy("one").Link(s.Addr())
					c, told := client(m)
					warm := Request{Key: "warm", Kind: kind} // so that Redis knows the script that is sent
					mustLock(t, c, warm)
					mustUnlock(t, c, UnlockRequest{Key: "warm", Side: kind}, true)
					began := time.Now()
					abandon(t, c, Request{Key: "k", Kind: kind, Lease: lease.Milliseconds()}, link)
					time.Sleep(time.Until(began.Add(away)))
					link.Heal()
					eventually(t, away, "it is free", func() bool { return s.Do(t, "EXISTS", "k").(int64) == 0 })
					eventually(t, away, "nothing is known of it", func() bool { return idle(m) })
					if got := told.reasons(); got != "" {
						t.Errorf("told %q", got)
					}
				})
			})
		}
	}
}

// A re-entry that nobody heard of is set right as soon as Redis can be asked, however short a lease the re-entry asked for, and the lock that was
// entered goes on.
func TestAbandonedReentryWhileRedisIsAway(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] { // of a place Redis has no count
		for _, away := range []time.Duration{6 * time.Second, 18 * time.Second} {
			t.Run(fmt.Sprintf("%v, away for %v", kind, away), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m := bubbleEngine(t, w, s, "one", ManagerOptions{})
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
					id := c.id(kind, 0, "k", "")
					eventually(t, 15*time.Second, "the count is set", func() bool { return hash(t, s, "k")[id.Field()] == "1" })
					time.Sleep(time.Minute)
					mustUnlock(t, c, UnlockRequest{Key: "k", Side: kind}, true)
					if told := lost.reasons(); told != "" || s.Do(t, "EXISTS", "k").(int64) != 0 {
						t.Errorf("told %q", told)
					}
				})
			})
		}
	}
}
