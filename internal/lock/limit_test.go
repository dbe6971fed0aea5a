package lock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// TestLimitManyWaiters: of a thousand clients of some proxies never more than five have a place, none is left free for long while they wait,
// and a grant costs a few scripts.
func TestLimitManyWaiters(t *testing.T) {
	const places, clients = 5, 1000
	for _, c := range []struct {
		proxies int
		section time.Duration
	}{{2, 0}, {1, 5 * time.Millisecond}, {40, 5 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%d proxies, work of %v", c.proxies, c.section), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				ran := scriptsOf(s)
				var stop atomic.Bool
				var inside, most, grants atomic.Int64
				var group sync.WaitGroup
				for p := range c.proxies {
					m := bubbleEngine(t, w, s, fmt.Sprint("p", p), ManagerOptions{})
					for range clients / c.proxies {
						a, _ := client(m)
						group.Go(func() {
							defer a.Close(Gone)
							for !stop.Load() {
								if _, err := a.Lock(context.Background(), Request{Key: "k", Kind: Limit, Limit: places, Blocks: true}); err != nil {
									t.Error(err)
									return
								}
								grants.Add(1)
								now := inside.Add(1)
								for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
								}
								time.Sleep(c.section)
								inside.Add(-1)
								if _, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"}); err != nil {
									t.Error(err)
									return
								}
							}
						})
					}
				}
				eventually(t, time.Minute, "a start", func() bool { return grants.Load() > clients/5 })
				from, before, began := grants.Load(), ran.Load(), time.Now()
				eventually(t, time.Minute, "500 grants", func() bool { return grants.Load() > from+500 })
				count, took := grants.Load()-from, time.Since(began)
				per := float64(ran.Load()-before) / float64(count)
				stop.Store(true)
				group.Wait()
				t.Logf("%.2f scripts a grant, %d at most at once, %v for %d", per, most.Load(), took, count)
				if got := most.Load(); got > places || c.section > 0 && got < places || per > 4 {
					t.Errorf("%d at most at once, %.2f scripts a grant", most.Load(), per)
				}
				if fair := time.Duration(count/places) * c.section; c.section > 0 && took > 2*fair {
					t.Errorf("%v, it would be %v if no place was ever free", took, fair)
				}
				eventually(t, time.Minute, "nothing is left", func() bool { return len(texts(t, s, "KEYS", "*")) == 0 })
			})
		})
	}
}

// TestLimitEndedPlaces: those that wait, at whichever proxy, get the places whose leases end, as many as there are.
func TestLimitEndedPlaces(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Hour}), bubbleEngine(t, w, s, "two", ManagerOptions{Poll: time.Hour})
		a, _ := client(m)
		ask := Request{Key: "k", Kind: Limit, Limit: 3}
		for _, owner := range []string{"x", "y", "z"} {
			r := ask
			r.Owner, r.Lease = owner, 2000
			mustLock(t, a, r)
		}
		began := time.Now()
		var waiting []<-chan error
		for i := range 4 {
			c, _ := client([]*Manager{m, n}[i%2])
			r := ask
			r.Blocks, r.Block = true, 30_000
			waiting = append(waiting, locking(c, r))
		}
		got := 0
		eventually(t, 10*time.Second, "three have a place", func() bool {
			for _, one := range waiting {
				select {
				case err := <-one:
					if err != nil {
						t.Error(err)
					}
					got++
				default:
				}
			}
			return got == 3
		})
		if took := time.Since(began); took < 1900*time.Millisecond || took > 2500*time.Millisecond {
			t.Errorf("the leases of 2 s ended after %v", took)
		}
		time.Sleep(time.Minute)
		if held := m.Stats().Held + n.Stats().Held; held != 3 {
			t.Errorf("%d have a place", held)
		}
	})
}

// TestLimitOfTheRequest: whoever asks with a lower limit waits until fewer than that hold the lock.
func TestLimitOfTheRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		var all []*Client
		for range 3 {
			c, _ := client(m)
			mustLock(t, c, Request{Key: "k", Kind: Limit, Limit: 3})
			all = append(all, c)
		}
		few, _ := client(m)
		got := locking(few, Request{Key: "k", Kind: Limit, Limit: 1, Blocks: true})
		for _, c := range all {
			time.Sleep(time.Second)
			select {
			case err := <-got:
				t.Fatal("it has the lock while others have it", err)
			default:
			}
			mustUnlock(t, c, UnlockRequest{Key: "k"}, true)
		}
		granted(t, got, "k")
		if left := string(s.Do(t, "GET", "k").([]byte)); left != "0" {
			t.Error(left, "are left")
		}
	})
}

// TestLimitIsShown: who has a place is told as of other locks; a permit of Redisson's by the id that Java has of it, by which it can be given back.
func TestLimitIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, lost := client(m)
		b, _ := client(m)
		s.Do(t, "SET", "k", "4")
		s.Do(t, "ZADD", "{k}:timeout", "922337203685477", "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff")
		mustLock(t, a, Request{Key: "k", Kind: Limit, Limit: 5})
		mustLock(t, a, Request{Key: "k", Kind: Limit, Limit: 5})
		mustLock(t, b, Request{Key: "k", Kind: Limit, Limit: 5, Owner: "job", Lease: 60_000})
		in, err := m.Info(context.Background(), 0, "k")
		const id = "000102030405060708090a0b0c0d0eff"
		owners := map[string]bool{}
		for _, h := range in.Holders {
			owners[h.Owner] = h.Local && h.Kind == Limit
		}
		if err != nil || in.Kind != "limit" || len(owners) != 3 || !owners[a.Owner()] || !owners["job"] || owners[id] {
			t.Errorf("%+v %v", in, err)
		}
		if all := m.List("", ""); len(all) != 2 || all[0].Kind != Limit || all[1].Kind != Limit {
			t.Errorf("%+v", all)
		}
		if _, there := owners[id]; !there {
			t.Error("Redisson's permit is not shown")
		}
		mustUnlock(t, b, UnlockRequest{Key: "k", Owner: id}, true)
		mustUnlock(t, a, UnlockRequest{Key: "k"}, false)
		mustUnlock(t, b, UnlockRequest{Key: "k", Force: true, From: []lockstore.Owned{{Owner: a.Owner(), Kind: Limit}}}, true)
		eventually(t, time.Minute, "told", func() bool { return lost.reasons() == "k:forced " })
		mustUnlock(t, b, UnlockRequest{Key: "k", Force: true}, true)
		if left := string(s.Do(t, "GET", "k").([]byte)); left != "5" || len(texts(t, s, "KEYS", "*")) != 1 {
			t.Errorf("%s are left, keys %v", left, texts(t, s, "KEYS", "*"))
		}
	})
}
