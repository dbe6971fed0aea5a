package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What becomes of votes for a lock that was not won.

// Named owners that contend for locks through proxies far from three healthy nodes leave no votes behind: when all have given up, each
// lock is to be had within two node time-outs.
func TestQuorumLeavesNoGhosts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		const timeout = 2 * time.Second
		ns := bubbleNodes(w, 3)
		var ms []*Manager
		for _, proxy := range []string{"one", "two", "three"} {
			ns.far(proxy)
			ms = append(ms, ns.engine(t, proxy, 0, ManagerOptions{}, quorum.StoreOptions{NodeTimeout: timeout}))
		}
		var all sync.WaitGroup
		end := time.Now().Add(1500 * time.Millisecond)
		for i, m := range ms {
			for j := range 5 {
				all.Go(func() {
					c, _ := client(m)
					for try := 0; time.Now().Before(end); try++ {
						r := everyLease(fmt.Sprintf("o%d-%d-%d", i, j, try))[(try+j)%6]
						if r.Kind == Plain && j == 4 {
							if _, err := c.MultiLock(context.Background(), []string{r.Key, "multi"}, r); err == nil {
								_, _ = c.MultiUnlock(context.Background(), []string{r.Key, "multi"}, UnlockRequest{Owner: r.Owner})
							}
							continue
						}
						if _, err := c.Lock(context.Background(), r); err == nil {
							if _, err = c.Unlock(context.Background(), UnlockRequest{Key: r.Key, Owner: r.Owner, Side: r.Kind}); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
		}
		all.Wait()
		given := time.Now()
		for _, r := range append(everyLease("last"), Request{Key: "multi", Owner: "last", Lease: 30_000}) {
			all.Go(func() {
				c, _ := client(ms[0])
				if r.Kind == Read {
					r.Kind = Write // which nobody shares
				}
				for {
					_, err := c.Lock(context.Background(), r)
					took := time.Since(given)
					if err == nil || took > 3*timeout {
						if err != nil || took > 2*timeout {
							t.Errorf("%s is free, and was had after %v: %v", r.Key, took, err)
						}
						_, _ = c.Unlock(context.Background(), UnlockRequest{Key: r.Key, Owner: r.Owner, Side: r.Kind})
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// A node gives its vote when the LOCK has failed elsewhere: it is taken back, for every kind of lock and owner. If its reply is lost, too, a
// connection's is taken back all the same, and a named owner's ends with its lease. What others have there stays.
func TestQuorumTakesBackLateAndLostVotes(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			late := ns.link("one", 2)
			m := ns.engine(t, "one", 0, ManagerOptions{})
			c, _ := client(m)
			for _, kind := range []Kind{Plain, Write} { // the nodes have the scripts
				mustLock(t, c, Request{Key: "warm", Kind: kind})
				mustUnlock(t, c, UnlockRequest{Key: "warm"}, true)
			}
			var requests []Request
			for _, r := range append(everyKind(), everyLease("job")...) {
				r.Key += r.Owner
				requests = append(requests, r)
				for _, s := range ns.servers[:2] {
					if r.Kind == Plain {
						s.Do(t, "HSET", r.Key, "else", 1)
					} else {
						s.Do(t, "HSET", r.Key, "mode", "write", "else:write", 1)
					}
					s.Do(t, "PEXPIRE", r.Key, 600_000)
				}
			}
			late.Delay(400*time.Millisecond, 0)
			var all sync.WaitGroup
			for _, r := range requests {
				all.Go(func() {
					c, _ := client(m)
					if _, err := c.Lock(context.Background(), r); !errors.Is(err, ErrNotAcquired) {
						t.Error(r.Key, err)
					}
				})
			}
			all.Wait()
			for _, r := range requests {
				heldOn(t, ns, r.Key, 3, "the late node has given its vote")
			}
			if lost {
				late.Drop() // the replies that are on their way
			}
			late.Heal()
			time.Sleep(10 * time.Second)
			for _, r := range requests {
				if want := int64(2); lost && r.Owner != "" {
					heldOn(t, ns, r.Key, want+1, "left to its lease")
				} else {
					heldOn(t, ns, r.Key, want, "the other owner's")
				}
			}
			time.Sleep(30 * time.Second)
			for _, r := range requests {
				heldOn(t, ns, r.Key, 2, "the other owner's, when the leases are over")
			}
		})
	}
}

// What a proxy cannot take back, since it is cut off from the node, ends there with its lease.
func TestQuorumLeaseEndsWhatCannotBeTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		late := ns.link("one", 2)
		m := ns.engine(t, "one", 0, ManagerOptions{})
		c, _ := client(m)
		mustLock(t, c, Request{Key: "warm"})
		heldOn(t, ns, "warm", 3, "the script is known to all nodes")
		time.Sleep(time.Second) // of simulated time: the trial lock of each node has been given back, too
		for _, owner := range []string{"", "job"} {
			key := "k" + owner
			for _, s := range ns.servers[:2] {
				s.Do(t, "HSET", key, "else", 1)
			}
			late.Delay(800*time.Millisecond, 0)
			if _, err := c.Lock(context.Background(), Request{Key: key, Owner: owner, Lease: 20000}); !errors.Is(err, ErrNotAcquired) {
				t.Fatal(err)
			}
			heldOn(t, ns, key, 3, "the late node has given its vote")
			late.Cut()
			time.Sleep(10 * time.Second)
			if left := ns.servers[2].Do(t, "PTTL", key).(int64); left <= 0 || left > 10_100 {
				t.Errorf("%s is there for %d ms", key, left)
			}
			time.Sleep(10 * time.Second)
			heldOn(t, ns, key, 2, "the lease is over")
			late.Heal()
			time.Sleep(5 * time.Second)
		}
	})
}

// A client that goes while its LOCK is on the way leaves nothing behind, with a name or without, and takes nothing from its own owner.
func TestQuorumClientGoesInTheMiddle(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		ns.far("one")
		m := ns.engine(t, "one", 0, ManagerOptions{})
		warm, _ := client(m)
		held := Request{Key: "held", Owner: "job", Lease: 60_000}
		mustLock(t, warm, held)
		heldOn(t, ns, "held", 3, "on all")
		var all sync.WaitGroup
		for _, r := range append(everyKind(), append(everyLease("job"), held)...) {
			for i := range 3 {
				all.Go(func() {
					c, _ := client(m)
					r := r // each goroutine's own
					if r.Key != "held" {
						r.Key = fmt.Sprint(r.Key, r.Owner, i)
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(5+12*i)*time.Millisecond)
					defer cancel()
					if _, err := c.Lock(ctx, r); err == nil {
						t.Error(r.Key, "was given to a client that has gone")
					}
					c.Close(Gone)
				})
			}
		}
		all.Wait()
		eventually(t, 10*time.Second, "only what was had before is left", func() bool {
			n := int64(0)
			for _, s := range ns.servers {
				n += s.Do(t, "DBSIZE").(int64)
			}
			return n == 3
		})
		heldOn(t, ns, "held", 3, "it stays")
		mustUnlock(t, warm, UnlockRequest{Key: "held", Owner: "job"}, true)
		heldOn(t, ns, "held", 0, "given back")
	})
}

// What a MULTILOCK that fails has taken, and has given back without hearing of it, is nobody's here, and nobody is told of it.
func TestQuorumTakesBackUnheard(t *testing.T) {
	for _, r := range []Request{{Lease: 30_000, Owner: "job"}, {}} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			m := ns.engine(t, "one", 0, ManagerOptions{}, quorum.StoreOptions{NodeTimeout: 500 * time.Millisecond})
			a, lost := client(m)
			b := &multiLock{c: a, r: r}
			if err := b.take(context.Background(), "k", false); err != nil {
				t.Fatal(err)
			}
			heldOn(t, ns, "k", 3, "on all")
			time.Sleep(time.Second) // the last one's answer has come, too
			for i := range ns.servers {
				ns.link("one", i).Swallow(world.Replies)
			}
			time.AfterFunc(time.Second, func() {
				for i := range ns.servers {
					ns.link("one", i).Cut()
					ns.link("one", i).Heal()
				}
			})
			b.giveBack()
			heldOn(t, ns, "k", 0, "given back")
			eventually(t, 20*time.Second, "not held here", func() bool { return m.Stats().Held == 0 })
			time.Sleep(time.Minute)
			if lost.reasons() != "" {
				t.Error(lost.reasons())
			}
		})
	}
}
