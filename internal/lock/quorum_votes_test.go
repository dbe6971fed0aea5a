package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// everyKind is a request for each kind of lock, with and without a lease of its own, each of another key.
func everyKind() (all []Request) {
	for _, kind := range []Kind{Plain, Read, Write} {
		for _, lease := range []int64{0, 20000} {
			all = append(all, Request{Key: fmt.Sprintf("%v-%d", kind, lease), Kind: kind, Lease: lease})
		}
	}
	return all
}

// holds waits until so many nodes have a key. It may be called by any goroutine.
func heldOn(t *testing.T, ns *simulated, key string, want int64, what string) bool {
	t.Helper()
	var n int64
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if n = ns.holding(t, key); n == want {
			return true
		}
	}
	t.Errorf("%s: %s: %d nodes have it, not %d", key, what, n, want)
	return false
}

// notes is the keys that the nodes have beside locks, of attempts.
func (ns *simulated) notes(t *testing.T) (all []string) {
	t.Helper()
	for _, s := range ns.servers {
		names, err := redis.Strings(s.Do(t, "KEYS", "lockproxy_votes*"), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, names...)
	}
	return all
}

// far has all messages of a proxy be on their way for as long as between machines 30 to 50 ms apart.
func (ns *simulated) far(proxy string) {
	for i := range ns.servers {
		ns.link(proxy, i).Delay(time.Duration(15+5*i)*time.Millisecond, 0)
	}
}

// Named owners that contend for locks through proxies far from three healthy nodes leave no votes behind: when all have given up, each
// lock is to be had within two node time-outs.
func TestQuorumLeavesNoGhosts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		const timeout = 2 * time.Second
		ns := bubbleNodes(w, 3)
		var ms []*Manager
		for _, proxy := range []string{"one", "two", "three"} {
			ns.far(proxy)
			ms = append(ms, ns.engine(t, proxy, 0, Options{}, quorum.Options{NodeTimeout: timeout}))
		}
		var all sync.WaitGroup
		end := time.Now().Add(1500 * time.Millisecond)
		for i, m := range ms {
			for j := range 5 {
				all.Go(func() {
					c, _ := client(m)
					for try := 0; time.Now().Before(end); try++ {
						r := everyKind()[(try+j)%6]
						r.Owner = fmt.Sprintf("o%d-%d-%d", i, j, try)
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
		for _, r := range append(everyKind(), Request{Key: "multi"}) {
			all.Go(func() {
				c, _ := client(ms[0])
				if r.Kind == Read {
					r.Kind = Write // which nobody shares
				}
				r.Owner = "last"
				for {
					_, err := c.Lock(context.Background(), r)
					took := time.Since(given)
					if err == nil || took > 3*timeout {
						t.Logf("%s: %v after %v", r.Key, err, took)
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
		eventually(t, 10*time.Second, "nothing is left", func() bool { return len(ns.notes(t)) == 0 })
	})
}

// A node gives its vote when the LOCK has failed elsewhere, and its reply is lost: it is taken back all the same, for every kind of lock and
// owner. What others have there stays.
func TestQuorumTakesBackLateAndLostVotes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		late := ns.link("one", 2)
		m := ns.engine(t, "one", 0, Options{})
		c, _ := client(m)
		mustLock(t, c, Request{Key: "warm"})
		mustUnlock(t, c, UnlockRequest{Key: "warm"}, true)
		eventually(t, 10*time.Second, "no notes", func() bool { return len(ns.notes(t)) == 0 })
		for _, r := range everyKind() {
			for _, s := range ns.servers[:2] {
				if r.Kind == Plain {
					s.Do(t, "HSET", r.Key, "else", 1)
				} else {
					s.Do(t, "HSET", r.Key, "mode", "write", "else:write", 1)
				}
				s.Do(t, "PEXPIRE", r.Key, 60000)
			}
		}
		late.Delay(400*time.Millisecond, 0)
		var all sync.WaitGroup
		for _, r := range everyKind() {
			for _, owner := range []string{"", "job"} {
				r := r
				all.Go(func() {
					c, _ := client(m)
					r.Owner = owner
					if r.Kind == Write && owner == "" {
						return // one of the two has it there
					}
					if _, err := c.Lock(context.Background(), r); !errors.Is(err, ErrNotAcquired) {
						t.Error(r.Key, owner, err)
					}
				})
			}
		}
		all.Wait()
		eventually(t, 10*time.Second, "the late node has given its votes", func() bool { return len(ns.notes(t)) > 0 })
		late.Drop() // the replies that are on their way
		late.Heal()
		eventually(t, 10*time.Second, "all is taken back", func() bool { return len(ns.notes(t)) == 0 })
		for _, r := range everyKind() {
			heldOn(t, ns, r.Key, 2, "the other owner's")
		}
	})
}

// What a proxy cannot take back, since it is cut off from the node, ends there with its lease.
func TestQuorumLeaseEndsWhatCannotBeTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		late := ns.link("one", 2)
		m := ns.engine(t, "one", 0, Options{})
		c, _ := client(m)
		mustLock(t, c, Request{Key: "warm"})
		heldOn(t, ns, "warm", 3, "the script is known to all nodes")
		for _, s := range ns.servers[:2] {
			s.Do(t, "HSET", "k", "else", 1)
		}
		late.Delay(800*time.Millisecond, 0)
		if _, err := c.Lock(context.Background(), Request{Key: "k", Owner: "job", Lease: 20000}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		heldOn(t, ns, "k", 3, "the late node has given its vote")
		late.Cut()
		late.Heal()
		time.Sleep(200 * time.Millisecond)
		for _, name := range []string{"k", "lockproxy_votes:{k}:job"} {
			if left := ns.servers[2].Do(t, "PTTL", name).(int64); left <= 0 || left > 20000 {
				t.Errorf("%s is there for %d ms", name, left)
			}
		}
	})
}

// A client that goes while its LOCK is on the way leaves nothing behind, with a name or without, and takes nothing from its own owner.
func TestQuorumClientGoesInTheMiddle(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		ns.far("one")
		m := ns.engine(t, "one", 0, Options{})
		warm, _ := client(m)
		mustLock(t, warm, Request{Key: "held", Owner: "job"})
		heldOn(t, ns, "held", 3, "on all")
		var all sync.WaitGroup
		for _, r := range append(everyKind(), Request{Key: "held", Owner: "job"}) {
			for i := range 3 {
				r := r
				all.Go(func() {
					c, _ := client(m)
					if r.Key != "held" {
						r.Key, r.Owner = fmt.Sprint(r.Key, i), []string{"", "job", "job"}[i]
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
			notes := ns.notes(t)
			return len(notes) == 3 && strings.HasPrefix(notes[0], "lockproxy_votes:{held}:")
		})
		mustUnlock(t, warm, UnlockRequest{Key: "held", Owner: "job"}, true)
		heldOn(t, ns, "held", 0, "given back")
	})
}

// A node that misses the UNLOCK of a named owner is told of it later, but does not drop what that owner has taken meanwhile.
func TestQuorumUnlockReachesANodeLater(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		one := ns.engine(t, "one", 0, Options{}, quorum.Options{NodeTimeout: 500 * time.Millisecond})
		two := ns.engine(t, "two", 0, Options{})
		a, _ := client(one)
		b, bl := client(two)
		for _, key := range []string{"left", "back"} {
			mustLock(t, a, Request{Key: key, Owner: "job"})
			heldOn(t, ns, key, 3, "on all")
		}
		ns.link("one", 2).Cut()
		mustUnlock(t, a, UnlockRequest{Key: "left", Owner: "job"}, true)
		mustUnlock(t, a, UnlockRequest{Key: "back", Owner: "job"}, true)
		mustLock(t, b, Request{Key: "back", Owner: "job", Lease: 30000})
		heldOn(t, ns, "left", 1, "missed")
		ns.link("one", 2).Heal()
		heldOn(t, ns, "left", 0, "made up for")
		time.Sleep(200 * time.Millisecond)
		if heldOn(t, ns, "back", 3, "taken anew"); bl.reasons() != "" {
			t.Error(bl.reasons())
		}
		mustUnlock(t, b, UnlockRequest{Key: "back", Owner: "job"}, true)
		heldOn(t, ns, "back", 0, "given back")
	})
}

// LOCKINFO shows the token that the holder was given, and none while it cannot be known.
func TestQuorumInfoShowsTheHoldersToken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{}, quorum.Options{NodeTimeout: 500 * time.Millisecond})
		c, _ := client(m)
		ns.servers[2].Do(t, "SET", lockstore.TokenKey("k"), 1<<51) // as a LOCK that failed may leave it on one node
		for i := range 10 {
			key := []string{"k", "l", "m"}[i%3]
			g := mustLock(t, c, Request{Key: key, Fence: true, Owner: fmt.Sprint("o", i)})
			in, err := m.Info(context.Background(), 0, key)
			if err != nil || !in.Fenced || in.Token != g.Token {
				t.Errorf("the holder was given %d, LOCKINFO shows %d, %v, %v", g.Token, in.Token, in.Fenced, err)
			}
			mustUnlock(t, c, UnlockRequest{Key: key, Owner: fmt.Sprint("o", i)}, true)
		}
		ns.servers[0].Do(t, "SET", lockstore.TokenKey("n"), 7)
		ns.link("one", 2).Cut()
		if in, err := m.Info(context.Background(), 0, "n"); err != nil || in.Fenced {
			t.Errorf("shown %d, which no majority has: %v", in.Token, err)
		}
	})
}

// Nodes that have just started are said to be too young, and for how long; LOCK with BLOCK waits for them.
func TestQuorumWaitsForYoungNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 3*time.Second, Options{})
		a, _ := client(m)
		b, _ := client(m)
		got := locking(b, Request{Key: "multi", Blocks: true, Block: 30000, Owner: "job"})
		_, err := a.Lock(context.Background(), Request{Key: "k"})
		if wantCode(t, err, "NOQUORUM"); !strings.Contains(err.Error(), "0 of 3 nodes count, 2 are needed: the lock was not taken; 3 were started, or their clocks set, "+
			"too recently, and enough nodes count in ") || strings.Contains(err.Error(), "unavailable") {
			t.Error(err)
		}
		began := time.Now()
		_, err = a.Lock(context.Background(), Request{Key: "k", Blocks: true, Block: 50})
		if wantCode(t, err, "NOQUORUM"); time.Since(began) < 50*time.Millisecond {
			t.Error("did not wait")
		}
		if _, err = a.Lock(context.Background(), Request{Key: "k", Blocks: true, Block: 30000}); err != nil {
			t.Fatal(err)
		}
		granted(t, got, "a named owner")
	})
}

// An UNLOCK … FORCE whose time is over is not done any more.
func TestQuorumForceIsNotDoneLater(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		const timeout = 500 * time.Millisecond
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{}, quorum.Options{NodeTimeout: timeout})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Lease: 60000})
		mustLock(t, a, Request{Key: "rw", Kind: Write, Lease: 60000})
		heldOn(t, ns, "k", 3, "on all")
		heldOn(t, ns, "rw", 3, "on all")
		for i := range ns.servers {
			ns.link("one", i).Delay(timeout+200*time.Millisecond, 0)
		}
		for key, side := range map[string]Kind{"k": Plain, "rw": Write} {
			if _, err := a.Unlock(context.Background(), UnlockRequest{Key: key, Side: side, Force: true}); err == nil {
				t.Fatal("answered without the nodes")
			}
		}
		time.Sleep(10 * time.Second)
		heldOn(t, ns, "k", 3, "not freed")
		heldOn(t, ns, "rw", 3, "not freed")
	})
}
