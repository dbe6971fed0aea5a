package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// leaver is a client that goes without its context's end, as when its last packet is here and nobody has read it yet.
func leaver(m *Manager, gone *atomic.Bool) *Client {
	return m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "leaver", Gone: gone.Load})
}

// A grant to a client that has gone is given back, whoever granted it and for whomever.
func TestGrantToTheGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", Options{Poll: time.Minute}), bubbleEngine(t, w, s, "two", Options{})
		i := 0
		for name, r := range map[string]Request{
			"plain": {}, "fair": {Fair: true}, "read": {Kind: Read}, "write": {Kind: Write}, "lease": {Lease: 60000},
			"owner": {Owner: "me"}, "owner-fair": {Owner: "me", Fair: true}, "owner-read": {Owner: "me", Kind: Read}, "owner-write": {Owner: "me", Kind: Write},
			"owner-lease": {Owner: "me", Lease: 60000}, "owner-read-lease": {Owner: "me", Kind: Read, Lease: 60000},
			"owner-write-lease": {Owner: "me", Kind: Write, Lease: 60000},
		} {
			for how, holders := range map[string]*Manager{"handed on": m, "elsewhere": n, "free": nil} {
				i++
				what := name + ", " + how
				r.Key, r.Blocks = fmt.Sprint("k", i), true
				var gone atomic.Bool
				var holder *Client
				if holders != nil {
					holder, _ = client(holders)
					blocker := Request{Key: r.Key}
					if r.Kind != Plain {
						blocker.Kind = Write
					}
					mustLock(t, holder, blocker)
				}
				gone.Store(holder == nil)
				got := locking(leaver(m, &gone), r)
				if holder != nil {
					eventually(t, 10*time.Second, what+" waits", func() bool { return parkedAt(m, r) })
					gone.Store(true)
					mustUnlock(t, holder, UnlockRequest{Key: r.Key}, true)
				}
				if err := <-got; !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", what, err)
				}
				if left := s.Do(t, "EXISTS", r.Key).(int64); left != 0 {
					t.Errorf("%s: it is held: %v", what, hash(t, s, r.Key))
				}
			}
		}
		for _, e := range []*Manager{m, n} {
			eventually(t, 5*time.Second, "nothing is thought to be held", func() bool { return idle(e) })
		}
	})
}

// idle says that nobody holds a lock or waits for one.
func idle(m *Manager) bool {
	m.lines.mu.Lock()
	defer m.lines.mu.Unlock()
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	return len(m.holds.byID) == 0 && len(m.lines.byKey) == 0
}

// parkedAt says that somebody waits in the line of a request, and may be handed the lock.
func parkedAt(m *Manager, r Request) bool {
	m.lines.mu.Lock()
	defer m.lines.mu.Unlock()
	key := lockstore.ID{DB: r.DB, Key: r.Key, Kind: r.Kind}.Line()
	key.Fair = r.Fair
	l := m.lines.byKey[key]
	return l != nil && l.waiters.Front().Value.(*waiter).parked && time.Until(l.tryAt) > 0
}

// Of a MULTILOCK whose client has gone nothing is kept, and what its owner had before stays.
func TestMultiGrantToTheGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		var gone atomic.Bool
		c := leaver(m, &gone)
		mustLock(t, c, Request{Key: "b", Owner: "me", Lease: 60000})
		gone.Store(true)
		if _, err := c.MultiLock(context.Background(), []string{"a", "b", "c"}, Request{Owner: "me", Blocks: true, Lease: 5000}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got := fmt.Sprint(hash(t, s, "a"), hash(t, s, "b"), hash(t, s, "c")); got != "map[] map[me:1] map[]" {
			t.Error(got)
		}
	})
}

// What an owner had before one of its clients left stays as it was: with its client, and its renewals.
func TestGoneKeepsWhatTheOwnerHad(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		for _, r := range []Request{{Key: "plain", Owner: "me"}, {Key: "read", Owner: "me", Kind: Read}, {Key: "write", Owner: "me", Kind: Write}} {
			stays, _ := client(m)
			mustLock(t, stays, r)
			var gone atomic.Bool
			gone.Store(true)
			leaves := leaver(m, &gone)
			r.Blocks = true
			if _, err := leaves.Lock(context.Background(), r); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", r.Key, err)
			}
			leaves.Close(Gone)
			id, _ := stays.id(r.Kind, 0, r.Key, "me")
			m.holds.mu.Lock()
			h := m.holds.byID[id]
			if h == nil || h.count != 1 || !h.watched || h.client != stays {
				t.Errorf("%s: %+v", r.Key, h)
			}
			m.holds.mu.Unlock()
			if got := hash(t, s, r.Key)[id.Field()]; got != "1" {
				t.Errorf("%s: count %q", r.Key, got)
			}
			mustUnlock(t, stays, UnlockRequest{Key: r.Key, Owner: "me"}, true)
		}
	})
}

// A grant that is given back is left to the same owner when it has asked again meanwhile, through another proxy: that one was
// told that it holds the lock.
func TestGoneWhileTheOwnerAsksAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
		i := 0
		for _, kind := range []Kind{Plain, Read, Write} {
			for _, first := range []int64{0, 60000} {
				for _, second := range []int64{-1, 0, 60000} {
					i++
					r := Request{Key: fmt.Sprint("k", i), Kind: kind, Owner: "me", Lease: first}
					what := fmt.Sprintf("%v, leases %d and %d", kind, first, second)
					a, _ := client(m)
					b, _ := client(n)
					id, _ := a.id(kind, 0, r.Key, "me")
					asked, ans := askedFor(t, a, r)
					if second >= 0 {
						r.Lease = second
						mustLock(t, b, r)
					}
					if err := m.giveBacks.undo(context.Background(), asked, ans); err != nil {
						t.Fatal(err)
					}
					m.holds.leave(asked.h)
					got, want := hash(t, s, r.Key)[id.Field()], "1"
					if second < 0 {
						want = ""
					}
					if got != want {
						t.Errorf("%s: %q, not %q", what, got, want)
					}
					if second >= 0 {
						mustUnlock(t, b, UnlockRequest{Key: r.Key, Owner: "me"}, true)
					}
				}
			}
		}
	})
}

// A LOCK whose reply was lost is known to have made the hold when it is asked again, and is given back whole.
func TestLostReplyOfAnOwnersGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		for i, lease := range []int64{0, 60000} {
			c, _ := client(m)
			r := Request{Key: fmt.Sprint("k", i), Owner: "me", Lease: lease}
			a, ans := askedFor(t, c, r)
			g, _, err := a.finish(context.Background(), lockstore.Acquired{NotAfter: ans.NotAfter}, &upstream.LostError{Cause: errors.New("cut")})
			if err != nil || g.again {
				t.Fatal(g, err)
			}
			m.holds.mu.Lock()
			if h := a.h; h.registration != a.Registration || h.watched != (lease == 0) {
				t.Errorf("lease %d: %q, not %q, watched %v", lease, h.registration, a.Registration, h.watched)
			}
			m.holds.mu.Unlock()
		}
	})
}

// A grant is given back also under a name that another proxy had in use for the same lock, and that proxy hears that its own hold was not
// lost, but given back.
func TestGivenBackUnderAUsedName(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
		b, lost := client(n)
		c, _ := client(m)
		r := Request{Key: "k", Owner: "me", Lease: 5000}
		mustLock(t, b, Request{Key: "k", Owner: "me"})
		mustUnlock(t, c, UnlockRequest{Key: "k", Owner: "me"}, true)
		a, ans := askedFor(t, c, r)
		if !ans.Raised {
			t.Fatal(ans)
		}
		if err := m.giveBacks.undo(context.Background(), a, ans); err != nil {
			t.Fatal(err)
		}
		m.holds.leave(a.h)
		if ttl := pttl(t, s, "k"); ttl != -2 {
			t.Fatal(ttl)
		}
		eventually(t, time.Minute, "ended", func() bool { return n.Stats().Held == 0 })
		if lost.reasons() != "" {
			t.Fatal(lost.reasons())
		}
	})
}

// Holds that somebody has counted in a named owner's field are freed by one UNLOCK, and stay as they are until then.
func TestUnlockOfWhatRedissonHasEntered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		c, _ := client(m)
		for _, kind := range lockstore.Kinds {
			id, _ := c.id(kind, 0, "k", "me")
			s.Do(t, "HSET", "k", id.Field(), 3)
			if kind != Plain {
				s.Do(t, "HSET", "k", "mode", kind.String())
			}
			for i := range 3 {
				if kind == Read {
					s.Do(t, "SET", fmt.Sprintf("%s:%d", id.Keys()[1], i+1), 1, "PX", 60000)
				}
			}
			s.Do(t, "PEXPIRE", "k", 60000)
			mustLock(t, c, Request{Key: "k", Kind: kind, Owner: "me"})
			if got := hash(t, s, "k")[id.Field()]; got != "3" {
				t.Errorf("%v: %q", kind, got)
			}
			in, err := m.Info(context.Background(), 0, "k")
			if err != nil || len(in.Holders) != 1 || in.Holders[0].Holds != 3 {
				t.Errorf("%v: %+v %v", kind, in, err)
			}
			mustUnlock(t, c, UnlockRequest{Key: "k", Owner: "me"}, true)
			for _, key := range texts(t, s, "KEYS", "*") {
				if key != id.WatchKey() { // its registration took none's place, and is not the one known
					t.Errorf("%v: %s is left", kind, key)
				}
			}
			s.Do(t, "FLUSHALL")
		}
	})
}

// A lease that another proxy has set anew for the owner, and that is over, is a loss: nobody gave the lock back.
func TestLeaseSetElsewhereIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
		for _, kind := range lockstore.Kinds {
			for _, lease := range []int64{0, 20000} {
				a, _ := client(m)
				b, _ := client(n)
				other, _ := client(n)
				r := Request{Key: fmt.Sprint(kind, lease), Kind: kind, Owner: "me", Lease: lease}
				mustLock(t, a, r)
				if err := b.Renew(context.Background(), RenewRequest{Key: r.Key, Side: r.Kind, Owner: "me", Lease: 500}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				mustLock(t, other, Request{Key: r.Key, Kind: []Kind{Plain, Write, Write}[kind]})
				_, err := a.Unlock(context.Background(), UnlockRequest{Key: r.Key, Side: r.Kind, Owner: "me"})
				wantCode(t, err, "LOCKLOST")
			}
		}
	})
}
