package lock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// Clients of several proxies take turns at a lock while two nodes of five are dead, so that each of the other three is needed: nobody waits
// for long, whether the dead ones refuse connections or say nothing, and whether the nodes are near or far.
func TestQuorumTurns(t *testing.T) {
	const clients, turns, longest = 20, 3, 8 * time.Second
	for _, far := range []time.Duration{0, 5 * time.Millisecond} {
		for what, dead := range map[string]func(n *world.Node, first bool){
			"killed":  func(n *world.Node, _ bool) { n.Kill() },
			"stopped": func(n *world.Node, _ bool) { n.Stop() },
			"both": func(n *world.Node, first bool) {
				if n.Stop(); first {
					n.Kill()
				}
			},
		} {
			for _, proxies := range []int{2, 5} {
				t.Run(fmt.Sprint(what, far, proxies), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						ns := bubbleNodes(w, 5)
						var ms []*Manager
						for p := range proxies {
							name := fmt.Sprint("proxy", p)
							for i := range ns.servers {
								ns.link(name, i).Far(max(far, world.Base), max(far/2, world.Spread))
							}
							m := ns.engine(t, name, 0, ManagerOptions{}, quorum.StoreOptions{NodeTimeout: 800 * time.Millisecond})
							c, _ := client(m)
							mustLock(t, c, Request{Key: "warm", Blocks: true})
							mustUnlock(t, c, UnlockRequest{Key: "warm"}, true)
							ms = append(ms, m)
						}
						dead(ns.servers[0], true)
						dead(ns.servers[3], false)
						defer ns.servers[3].Cont()
						defer ns.servers[0].Cont()
						var all sync.WaitGroup
						begun := time.Now()
						for i := range clients {
							all.Go(func() {
								c, _ := client(ms[i%proxies])
								for range turns {
									asked := time.Now()
									mustLock(t, c, Request{Key: "k", Blocks: true, Self: true})
									if took := time.Since(asked); took > longest {
										t.Errorf("a turn came after %v", took)
									}
									mustUnlock(t, c, UnlockRequest{Key: "k"}, true)
								}
							})
						}
						all.Wait()
						t.Logf("%v a turn", time.Since(begun)/(clients*turns))
					})
				})
			}
		}
	}
}

// A lock whose holder has it on a node that this proxy does not reach looks as if votes had been split. It is not asked for all the
// time, and had when it is free.
func TestQuorumHolderOnANodeOutOfReach(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		one, two := ns.engine(t, "one", 0, ManagerOptions{}), ns.engine(t, "two", 0, ManagerOptions{})
		holder, _ := client(one)
		waiter, _ := client(two)
		mustLock(t, waiter, Request{Key: "warm", Blocks: true})
		mustLock(t, holder, Request{Key: "k", Blocks: true, Lease: 20_000})
		ns.servers[0].Do(t, "DEL", "k")
		ns.link("two", 2).Swallow(world.Both)
		ran := scriptsOf(ns.servers[0])
		had := make(chan error, 1)
		go func() {
			_, err := waiter.Lock(context.Background(), Request{Key: "k", Blocks: true})
			had <- err
		}()
		time.Sleep(10 * time.Second)
		if n := ran.Load(); n < 2 || n > 300 {
			t.Errorf("%d scripts in ten seconds on the node that gives its vote", n)
		} else {
			t.Logf("%d scripts in ten seconds on the node that gives its vote", n)
		}
		if len(had) > 0 {
			t.Fatalf("the lock was had twice: %v", <-had)
		}
		mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
		freed := time.Now()
		if err := <-had; err != nil || time.Since(freed) > time.Second {
			t.Errorf("%v after %v", err, time.Since(freed))
		}
		ns.link("two", 2).Heal()
	})
}

// Many clients of two proxies contend for one lock of each kind, so that votes are split all the time and taken back: whoever was given the lock
// has it until its UNLOCK.
func TestQuorumContendersLoseNothing(t *testing.T) {
	for what, kinds := range map[string][]Kind{"plain": {Plain}, "writers": {Write}, "both sides": {Read, Write}} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 3)
				var all sync.WaitGroup
				for p := range 2 {
					name := fmt.Sprint("proxy", p)
					for i := range ns.servers {
						ns.link(name, i).Far(world.Base, 3*time.Millisecond)
					}
					m := ns.engine(t, name, 0, ManagerOptions{}, quorum.StoreOptions{NodeTimeout: 800 * time.Millisecond})
					for i := range 6 {
						all.Go(func() {
							c, told := client(m)
							for range 50 {
								mustLock(t, c, Request{Key: "k", Kind: kinds[i%len(kinds)], Blocks: true, Self: true})
								mustUnlock(t, c, UnlockRequest{Key: "k"}, true)
							}
							if reasons := told.reasons(); reasons != "" {
								t.Errorf("told of a loss: %q", reasons)
							}
						})
					}
				}
				all.Wait()
			})
		})
	}
}
