package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What is handed on over connections that break is told to one only, and nobody waits for ever.
func TestHandoffCut(t *testing.T) {
	for name, pick := range map[string]func(i int) Request{
		"plain": func(int) Request { return Request{} },
		"named": func(i int) Request { return Request{Owner: fmt.Sprint("owner ", i), Fence: true, Lease: 30_000} },
		"fair":  func(int) Request { return Request{Fair: true} },
		"all": func(i int) Request {
			r := Request{Fair: rand.N(2) == 0, Lease: []int64{0, 5, 2000}[rand.N(3)], Block: []int64{0, 20, 1500}[rand.N(3)]}
			if r.Lease == 5 {
				r.Block = 20 // it may always be over before it is told
			}
			if rand.N(2) == 0 {
				r.Owner = fmt.Sprintf("%d %d", i, rand.Uint64())
			}
			return r
		},
		"sides": func(i int) Request { return Request{Kind: []Kind{Read, Write}[rand.N(2)]} },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				link := w.Proxy("far").Link(s.Addr())
				link.Delay(3*time.Millisecond, 0) // so that each cut finds replies on the way
				o := ManagerOptions{Watchdog: 3 * time.Second, Poll: time.Second}
				engines := []*Manager{bubbleEngine(t, w, s, "far", o), bubbleEngine(t, w, s, "near", o)}
				var group sync.WaitGroup
				var done atomic.Bool
				var granted, failed atomic.Int64
				var inside [2]atomic.Int64 // readers, writers
				for i := range 24 {
					m := engines[min(i%8, 1)*(i%2)]
					group.Go(func() {
						for !done.Load() {
							c, _ := client(m)
							r := pick(i)
							r.Key, r.Blocks = "k", true
							ctx, cancel := context.WithCancel(context.Background())
							if rand.N(10) == 0 {
								time.AfterFunc(rand.N(5*time.Millisecond), cancel)
							}
							_, err := c.Lock(ctx, r)
							if err == nil && r.Lease != 5 {
								side := 1
								if r.Kind == Read {
									side = 0
								}
								granted.Add(1)
								if n := inside[side].Add(1); side == 1 && n != 1 || inside[1-side].Load() != 0 {
									t.Errorf("%d readers and %d writers are inside", inside[0].Load(), inside[1].Load())
								}
								time.Sleep(rand.N(time.Millisecond))
								inside[side].Add(-1)
							}
							if err == nil {
								_, err = c.Unlock(ctx, UnlockRequest{Key: "k", Owner: r.Owner})
							}
							if err != nil && !errors.Is(err, ErrNotAcquired) {
								failed.Add(1)
								time.Sleep(time.Millisecond) // else the clock stands still while it fails
							}
							cancel()
							c.Close(Gone)
						}
					})
				}
				for range 6 {
					time.Sleep(rand.N(200 * time.Millisecond))
					link.Drop()
				}
				done.Store(true)
				ended := make(chan struct{})
				go func() { group.Wait(); close(ended) }()
				select {
				case <-ended:
				case <-time.After(time.Minute):
					for _, m := range engines {
						t.Errorf("%+v", m.Stats())
					}
					t.Fatal("somebody waits for ever")
				}
				t.Logf("%d grants, %d errors", granted.Load(), failed.Load())
				if granted.Load() == 0 {
					t.Error("it stood still")
				}
				for _, m := range engines {
					eventually(t, 20*time.Second, "nothing held or worked on", func() bool { return idle(m) })
				}
			})
		})
	}
}
