package lock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// loseMany makes a client lose so many locks, as the watchdog does, without asking Redis.
func loseMany(c *Client, n int, prefix, owner string) {
	for i := range n {
		id, named := c.id(Plain, 0, fmt.Sprint(prefix, i), owner)
		c.m.holds.mu.Lock()
		h := c.m.holds.entry(id, named)
		c.m.holds.begin(h, c, 1)
		h.lease = time.Millisecond
		c.m.holds.lose(h, reasonExpired)
		c.m.holds.forget(h)
		c.m.holds.mu.Unlock()
	}
}

// TestLossIsRemembered: what other clients lose makes nobody forget a loss, neither a connection nor a named owner, who may ask over
// any connection; UNLOCK, RENEW and FENCED tell it until the lock is taken again.
func TestLossIsRemembered(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), Options{})
	c, lost := client(m)
	mustLock(t, c, Request{Key: "mine"})
	mustLock(t, c, Request{Key: "named", Owner: "me"})
	s.Do(t, "DEL", "mine", "named")
	m.holds.recheckIf(func(string, string) string { return reasonGone })
	eventually(t, 30*time.Second, "told", func() bool { return strings.Count(lost.reasons(), ":gone ") == 2 })

	other, _ := client(m)
	loseMany(other, 20000, "z", "")
	loseMany(other, 20000, "z", "somebody")
	third, _ := client(m)
	for key, by := range map[string]*Client{"mine": c, "named": third} {
		owner := map[string]string{"named": "me"}[key]
		for range 2 {
			if _, err := by.Unlock(context.Background(), UnlockRequest{Key: key, Owner: owner}); !isCode(err, "LOCKLOST") {
				t.Errorf("UNLOCK %s: %v", key, err)
			}
			if err := by.Renew(context.Background(), RenewRequest{Key: key, Owner: owner}); !isCode(err, "LOCKLOST") {
				t.Errorf("RENEW %s: %v", key, err)
			}
			if err := by.NotHeld(context.Background(), HoldRequest{Key: key, Owner: owner}); !isCode(err, "LOCKLOST") {
				t.Errorf("FENCED %s: %v", key, err)
			}
		}
		mustLock(t, by, Request{Key: key, Owner: owner})
		mustUnlock(t, by, UnlockRequest{Key: key, Owner: owner}, true)
		if _, err := by.Unlock(context.Background(), UnlockRequest{Key: key, Owner: owner}); isCode(err, "LOCKLOST") {
			t.Errorf("UNLOCK %s after it was taken again: %v", key, err)
		}
	}
}

// TestLossMemoryIsBounded: by what one connection has lost itself, and by time for named owners.
func TestLossMemoryIsBounded(t *testing.T) {
	var own ownLosses
	const name = 4096
	for i := range lossesOfOne / name * 2 {
		own.add(lockstore.ID{Key: fmt.Sprintf("%*d", name, i)}, lossRecord{"gone", time.Now()})
	}
	if own.bytes > lossesOfOne || own.bytes < lossesOfOne/2 {
		t.Errorf("%d bytes are remembered of %d", own.bytes, lossesOfOne)
	}
	last := lockstore.ID{Key: fmt.Sprintf("%*d", name, lossesOfOne/name*2-1)}
	if _, ok := own.get(last); !ok {
		t.Error("the last loss is forgotten")
	}
	named, now := newNamedLosses(), time.Now()
	for i := range 1000 {
		named.add(lockstore.ID{Key: fmt.Sprint(i)}, &account{}, lossRecord{"gone", now}, now.Add(time.Duration(i)*time.Minute))
	}
	if _, ok := named.get(lockstore.ID{Key: "0"}); ok {
		t.Error("one is told whose time is over")
	}
	if named.sweep(now.Add(10 * time.Minute)); len(named.known) != 989 || named.ends.Len() != 989 {
		t.Errorf("%d are kept of 989", len(named.known))
	}
}

// TestNamedLossesOfOneAreBounded: a connection that loses locks of named owners again and again makes those forgotten that it lost first,
// and nobody else's.
func TestNamedLossesOfOneAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		c, _ := client(m)
		other, _ := client(m)
		mustLock(t, c, Request{Key: "k", Owner: "me", Lease: 3600000})
		s.Do(t, "DEL", "k")
		_, err := c.Unlock(t.Context(), UnlockRequest{Key: "k", Owner: "me"})
		wantCode(t, err, "LOCKLOST")
		if id, _ := c.id(Plain, 0, "k", "me"); c.namedLosses.bytes != sized(id).size {
			t.Error("what the connection lost is not counted as its own")
		}
		loseMany(other, 1, "other", "me")
		const name = 4096
		const n = lossesOfOne / name * 2
		long := strings.Repeat("x", name)
		loseMany(c, n, long, "me")
		m.namedLosses.mu.Lock()
		kept, bytes := len(m.namedLosses.known), c.namedLosses.bytes
		m.namedLosses.mu.Unlock()
		if kept > lossesOfOne/name+1 || kept < lossesOfOne/name/2 || bytes > lossesOfOne {
			t.Errorf("%d losses are kept, and %d bytes of %d", kept, bytes, lossesOfOne)
		}
		for key, want := range map[string]bool{"other0": true, "k": false, long + "0": false, long + fmt.Sprint(n-1): true} {
			id, _ := c.id(Plain, 0, key, "me")
			if _, ok := c.lossOf(id); ok != want {
				t.Errorf("…%s is remembered: %v", key[max(0, len(key)-6):], ok)
			}
		}
		m.namedLosses.sweep(time.Now().Add(2 * lossKeptMost))
		if left := c.namedLosses; left.bytes != 0 || left.all.Len() != 0 || len(m.namedLosses.known) != 0 {
			t.Errorf("%d of %d bytes are left when their time is over", left.all.Len(), left.bytes)
		}
	})
}

// TestForHowLongIsRemembered: a named owner's UNLOCK, sent again, is answered alike for 30 s. Its loss is told for as long as the lease was,
// but at least for a minute, and at most for an hour.
func TestForHowLongIsRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		c, _ := client(m)
		unlock := UnlockRequest{Key: "k", Owner: "me"}
		mustLock(t, c, Request{Key: "k", Owner: "me"})
		mustUnlock(t, c, unlock, true)
		time.Sleep(29 * time.Second)
		mustUnlock(t, c, unlock, true)
		time.Sleep(2 * time.Second)
		_, err := c.Unlock(t.Context(), unlock)
		wantCode(t, err, "NOTHELD")

		for lease, kept := range map[time.Duration]time.Duration{
			5 * time.Second: time.Minute, 10 * time.Minute: 10 * time.Minute, 2 * time.Hour: time.Hour,
		} {
			mustLock(t, c, Request{Key: "k", Owner: "me", Lease: lease.Milliseconds()})
			s.Do(t, "DEL", "k")
			last := time.Duration(0)
			for _, at := range []struct {
				after time.Duration
				code  string
			}{{0, "LOCKLOST"}, {kept - 5*time.Second, "LOCKLOST"}, {kept + 5*time.Second, "NOTHELD"}} {
				time.Sleep(at.after - last)
				last = at.after
				if _, err := c.Unlock(t.Context(), unlock); !isCode(err, at.code) {
					t.Errorf("of a lease of %v, %v after the loss: %v, want %s", lease, at.after, err, at.code)
				}
			}
		}
	})
}

// TestNamedLossesOfOneWhoConnectsAgainAreBounded: those of all connections of a user that have closed, before the loss or after it, are as many as
// those of one. Those of others are remembered, and those of connections that live.
func TestNamedLossesOfOneWhoConnectsAgainAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", Options{})
		of := func(user string) *Client { return m.NewClient(ClientInfo{User: func() string { return user }}) }
		const name = 4096
		const n = lossesOfOne / name / 2
		long := strings.Repeat("x", name)
		lives, somebody := of("again"), of("somebody")
		loseMany(lives, 1, "lives", "me")
		loseMany(somebody, 1, "somebody", "me")
		somebody.Close(Gone)
		loseMany(somebody, 1, "somebody late", "me")
		for round := range 10 {
			c := of("again")
			loseMany(c, n, fmt.Sprint(long, round, "before"), "me")
			c.Close(Gone)
			loseMany(c, n, fmt.Sprint(long, round, "after"), "me")
		}
		m.namedLosses.mu.Lock()
		kept := len(m.namedLosses.known)
		m.namedLosses.mu.Unlock()
		if kept > lossesOfOne/name+3 || kept < lossesOfOne/name/2 {
			t.Errorf("%d losses are kept", kept)
		}
		for key, want := range map[string]bool{
			"lives0": true, "somebody0": true, "somebody late0": true, long + "9before" + fmt.Sprint(n-1): true, long + "9after0": true, long + "8before0": false,
		} {
			id, _ := lives.id(Plain, 0, key, "me")
			if _, ok := lives.lossOf(id); ok != want {
				t.Errorf("…%s is remembered: %v", key[max(0, len(key)-12):], ok)
			}
		}
		m.namedLosses.sweep(time.Now().Add(2 * lossKeptMost))
		if len(m.namedLosses.known) != 0 || len(m.namedLosses.left) != 0 || lives.namedLosses.bytes != 0 {
			t.Errorf("%d, and the accounts of %d users, are left when their time is over", len(m.namedLosses.known), len(m.namedLosses.left))
		}
	})
}
