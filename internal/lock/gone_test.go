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
)

// leaver is a client that goes without its context's end, as when its last packet is here and nobody has read it yet.
func leaver(m *Manager, gone *atomic.Bool) *Client {
	return m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "leaver", Gone: gone.Load})
}

// A grant to a client that has gone is given back, whoever granted it and for whomever. It wakes those that wait elsewhere.
func TestGrantToTheGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Minute}), bubbleEngine(t, w, s, "two", ManagerOptions{Poll: time.Minute})
		i := 0
		for name, r := range map[string]Request{
			"plain": {}, "fair": {Fair: true}, "read": {Kind: Read}, "write": {Kind: Write}, "lease": {Lease: 60000},
			"owner": {Owner: "me", Lease: 60000}, "owner-fair": {Owner: "me", Fair: true, Lease: 60000},
			"owner-read": {Owner: "me", Kind: Read, Lease: 60000}, "owner-write": {Owner: "me", Kind: Write, Lease: 60000},
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
			eventually(t, 5*time.Second, "nothing is thought to be held", func() bool { return idle(e) && e.leases.count() == 0 })
		}
	})
}

// Of a MULTILOCK whose client has gone nothing is kept, and what its owner had before stays.
func TestMultiGrantToTheGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
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

// What an owner had before one of its clients left stays, through whichever proxy that client asked, and has the longer of the leases.
func TestGoneKeepsWhatTheOwnerHad(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
		for _, kind := range lockstore.Kinds {
			for name, elsewhere := range map[string]*Manager{"here": m, "elsewhere": n} {
				for _, second := range []int64{5000, 600_000} {
					stays, _ := client(m)
					r := Request{Key: fmt.Sprint(kind, name, second), Kind: kind, Owner: "me", Lease: 60_000}
					mustLock(t, stays, r)
					var gone atomic.Bool
					gone.Store(true)
					leaves := leaver(elsewhere, &gone)
					r.Blocks, r.Lease = true, second
					if _, err := leaves.Lock(context.Background(), r); !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", r.Key, err)
					}
					leaves.Close(Gone)
					if left := pttl(t, s, r.Key); left < 50_000 {
						t.Errorf("%s: %d ms are left", r.Key, left)
					}
					mustUnlock(t, stays, UnlockRequest{Key: r.Key, Side: kind, Owner: "me"}, true)
				}
			}
		}
	})
}

// A grant that is given back is left to the same owner when it has asked again, or has said RENEW, meanwhile, through another proxy: that one was
// told that it holds the lock.
func TestGoneWhileTheOwnerAsksAgain(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for what, meanwhile := range map[string]func(b *Client, r Request) error{
			"nothing": nil,
			"LOCK":    func(b *Client, r Request) error { _, err := b.Lock(context.Background(), r); return err },
			"RENEW": func(b *Client, r Request) error {
				return b.Renew(context.Background(), RenewRequest{Key: r.Key, Side: r.Kind, Owner: r.Owner, Lease: r.Lease})
			},
		} {
			for _, second := range []int64{1000, 60_000} {
				t.Run(fmt.Sprintf("%v, then %s of %d ms", kind, what, second), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						s := w.NewNode(bubbleAddr)
						m, n := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
						r := Request{Key: "k", Kind: kind, Owner: "me", Lease: 20_000}
						a, _ := client(m)
						b, _ := client(n)
						asked := a.newAcquire(r, nil, 0)
						got, err := asked.ask(context.Background())
						if err != nil || got.Code != lockstore.Granted || !got.Made {
							t.Fatal(got, err)
						}
						if r.Lease = second; meanwhile != nil {
							if err := meanwhile(b, r); err != nil {
								t.Fatal(err)
							}
						}
						asked.undo(context.Background(), got)
						if left := s.Do(t, "EXISTS", "k").(int64); (left == 1) != (meanwhile != nil) {
							t.Errorf("it is held: %v", hash(t, s, "k"))
						}
					})
				})
			}
		}
	}
}

// A named owner's LOCK whose reply was lost joins what it has made when it is sent again, and is granted.
func TestLostReplyOfAnOwnersGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, link := bubbleSlow(t, w, s, ManagerOptions{})
		for _, kind := range lockstore.Kinds {
			c, _ := client(m)
			r := Request{Key: fmt.Sprint(kind), Kind: kind, Owner: "me", Lease: 60_000, Fence: kind != Read}
			got := locking(c, r)
			eventually(t, 5*time.Second, "it is there", func() bool { return s.Do(t, "EXISTS", r.Key).(int64) > 0 })
			link.Drop()
			granted(t, got, r.Key)
			if left := pttl(t, s, r.Key); left < 50_000 {
				t.Errorf("%s: %d ms are left", r.Key, left)
			}
			mustUnlock(t, c, UnlockRequest{Key: r.Key, Side: kind, Owner: "me"}, true)
		}
	})
}

// Holds that somebody has counted in a named owner's field are freed by one UNLOCK.
func TestUnlockOfWhatRedissonHasEntered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		c, _ := client(m)
		for _, kind := range lockstore.Kinds[:3] { // of a place Redis has no count
			id := c.id(kind, 0, "k", "me")
			s.Do(t, "HSET", "k", id.Field(), 3)
			if kind != Plain {
				s.Do(t, "HSET", "k", "mode", kind.String())
			}
			for i := range 3 {
				if kind == Read {
					s.Do(t, "SET", id.ReadHold(int64(i+1)), 1, "PX", 60000)
				}
			}
			s.Do(t, "PEXPIRE", "k", 60000)
			mustLock(t, c, Request{Key: "k", Kind: kind, Owner: "me", Lease: 60_000})
			in, err := m.Info(context.Background(), 0, "k")
			if err != nil || len(in.Holders) != 1 {
				t.Errorf("%v: %+v %v", kind, in, err)
			}
			mustUnlock(t, c, UnlockRequest{Key: "k", Owner: "me"}, true)
			if keys := texts(t, s, "KEYS", "*"); len(keys) > 0 {
				t.Errorf("%v: left: %v", kind, keys)
			}
		}
	})
}

// A lease that another proxy has set anew for the owner, and that is over, is not held, as any proxy says.
func TestLeaseSetElsewhereIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
		for _, kind := range lockstore.Kinds {
			a, _ := client(m)
			b, _ := client(n)
			other, _ := client(n)
			r := Request{Key: fmt.Sprint(kind), Kind: kind, Owner: "me", Lease: 20_000}
			mustLock(t, a, r)
			if err := b.Renew(context.Background(), RenewRequest{Key: r.Key, Side: r.Kind, Owner: "me", Lease: 500}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			mustLock(t, other, Request{Key: r.Key, Kind: []Kind{Plain, Write, Write, Limit}[kind]})
			_, err := a.Unlock(context.Background(), UnlockRequest{Key: r.Key, Side: r.Kind, Owner: "me"})
			wantCode(t, err, "NOTHELD")
		}
	})
}
