package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What comes late to a node of a quorum: each test is one order of events in which two had a lock, or nobody could have it any more.

// An UNLOCK of a named owner that a node gets late does not end what the owner has taken through another proxy since it was answered. A node that
// was in trouble when it was to be sent is not sent it; any other is waited for, until it cannot do what it was sent any more.
func TestQuorumUnlockThatComesLate(t *testing.T) {
	for _, troubled := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			one, two := ns.engine(t, "one", 0, ManagerOptions{}, hasty), ns.engine(t, "two", 0, ManagerOptions{}, hasty)
			a, _ := client(one)
			b, _ := client(two)
			time.Sleep(2 * time.Second) // the nodes' clocks are known
			r, u := Request{Key: "k", Kind: Read, Owner: "job", Lease: 30_000}, UnlockRequest{Key: "k", Side: Read, Owner: "job"}
			mustLock(t, a, r)
			mustUnlock(t, a, u, true) // the nodes have the scripts
			mustLock(t, b, r)
			time.Sleep(time.Second)
			if troubled {
				ns.link("one", 0).Delay(300*time.Millisecond, 0)
				mustLock(t, a, Request{Key: "other"})
				time.Sleep(250 * time.Millisecond)
			}
			if ns.link("one", 0).Delay(190*time.Millisecond, 0); !troubled {
				ns.link("one", 0).Delay(250*time.Millisecond, 0)
				ns.servers[0].Jump(-100 * time.Millisecond) // it does for longer what it was sent
			}
			began := time.Now()
			mustUnlock(t, a, u, true)
			if took := time.Since(began); troubled != (took < 100*time.Millisecond) || took > time.Second {
				t.Errorf("troubled %v: answered after %v", troubled, took)
			}
			ns.link("two", 2).Cut() // the other two are the majority
			r.Lease = 20_000
			mustLock(t, b, r)
			time.Sleep(time.Second)
			if n := ns.holding(t, "k", 2); n != 2 {
				t.Errorf("troubled %v: %d of the two nodes still have it", troubled, n)
			}
		})
	}
}

// What an UNLOCK through another proxy than the LOCK leaves behind, which passes a node before the LOCK's vote comes there and does not reach others,
// ends with the lease.
func TestQuorumUnlockOvertakesAVote(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, nodes)
			one, two := ns.engine(t, "one", 0, ManagerOptions{}), ns.engine(t, "two", 0, ManagerOptions{})
			a, _ := client(one)
			b, _ := client(two)
			time.Sleep(2 * time.Second) // the nodes' clocks are known
			for _, r := range everyLease("job") {
				for i := range nodes / 2 {
					ns.link("one", i).Cut()
				}
				ns.link("two", nodes-1).Delay(50*time.Millisecond, 0)
				mustLock(t, b, r)
				mustUnlock(t, a, UnlockRequest{Key: r.Key, Owner: "job", Side: r.Kind}, true)
				ns.link("two", nodes-1).Heal()
				time.Sleep(31 * time.Second)
				if n := ns.holding(t, r.Key); n > 0 {
					t.Errorf("%d nodes, %s: %d nodes have it", nodes, r.Key, n)
				}
				for i := range nodes / 2 {
					ns.link("one", i).Heal()
				}
				time.Sleep(5 * time.Second)
			}
		})
	}
}

// An UNLOCK that is said again where the first one reached too few nodes, right after the LOCK through another proxy, gives the lock back.
func TestQuorumUnlockSaidAgainElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		one := ns.engine(t, "one", 0, ManagerOptions{})
		two := ns.engine(t, "two", 0, ManagerOptions{})
		a, _ := client(one)
		b, _ := client(two)
		mustLock(t, b, Request{Key: "before"}) // two knows the nodes' clocks
		time.Sleep(2 * time.Second)
		for _, r := range everyLease("job") {
			mustLock(t, a, r)
			heldOn(t, ns, r.Key, 5, "on all")
			for _, i := range []int{0, 2, 4} {
				ns.link("two", i).Cut()
			}
			u := UnlockRequest{Key: r.Key, Owner: "job", Side: r.Kind}
			freed, err := b.Unlock(context.Background(), u)
			if !isCode(err, "NOQUORUM") {
				t.Error(r.Key, err)
			}
			for _, i := range []int{0, 2, 4} {
				ns.link("two", i).Heal()
			}
			for isCode(err, "NOQUORUM") { // the nodes are connected to again
				freed, err = b.Unlock(context.Background(), u)
			}
			if !freed && !isCode(err, "NOTHELD") { // the first one has reached the nodes since
				t.Error(r.Key, freed, err)
			}
			if n := ns.holding(t, r.Key); n > 2 {
				t.Error(r.Key, n, "nodes have it")
			}
			time.Sleep(time.Minute) // a node that could not be asked has it until the lease is over
			heldOn(t, ns, r.Key, 0, "for good")
		}
	})
}

// A lease that is taken through another proxy, where that one does not reach a node that still has the former hold, and another node never had
// it, ends when it is over.
func TestQuorumLeaseBesideANodeOutOfReach(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] {
		t.Run(kind.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 3)
				m, n := ns.engine(t, "one", 0, ManagerOptions{}, hasty), ns.engine(t, "two", 0, ManagerOptions{}, hasty)
				a, lostA := client(m)
				b, lostB := client(n)
				r := Request{Key: "k", Kind: kind, Owner: "me", Lease: 30_000}
				mustLock(t, a, Request{Key: "warm", Kind: kind})
				ns.link("two", 2).Cut()
				mustLock(t, b, r)
				ns.link("two", 2).Heal()
				ns.link("one", 1).Swallow(world.Both)
				mustUnlock(t, a, UnlockRequest{Key: r.Key, Owner: r.Owner, Side: kind}, true)
				r.Lease = 20_000
				mustLock(t, a, r)
				time.Sleep(31 * time.Second)
				if has := ns.holding(t, r.Key); has > 0 {
					t.Errorf("%d nodes have it", has)
				}
				if told := lostA.reasons() + lostB.reasons(); told != "" {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}

// A RENEW of a named owner that a node gets late does not shorten what the owner has taken through another proxy since.
func TestQuorumRenewThatComesLate(t *testing.T) {
	for _, unlocks := range []bool{true, false} {
		t.Run(fmt.Sprint("with an UNLOCK: ", unlocks), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 3)
				_, by, told := ns.jobs(t, "renews", "locks", "third")
				r := RenewRequest{Key: "k", Owner: "job", Lease: 30_000}
				mustLock(t, by["renews"], Request{Key: "k", Owner: "job", Lease: 30_000})
				if err := by["renews"].Renew(context.Background(), r); err != nil { // the nodes have the scripts
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				ns.link("renews", 2).Delay(190*time.Millisecond, 0)
				r.Lease = 1000
				if err := by["renews"].Renew(context.Background(), r); err != nil {
					t.Fatal(err)
				}
				if unlocks {
					mustUnlock(t, by["third"], UnlockRequest{Key: "k", Owner: "job"}, true)
				}
				ns.away("locks", 1)
				mustLock(t, by["locks"], Request{Key: "k", Owner: "job", Lease: 30_000})
				time.Sleep(2 * time.Second)
				ns.link("renews", 2).Heal()
				if _, err := by["third"].Lock(context.Background(), Request{Key: "k"}); err == nil {
					t.Error("two have it")
				}
				time.Sleep(time.Minute)
				if lost := told["locks"].reasons(); lost != "" {
					t.Error(lost)
				}
			})
		})
	}
}

// UNLOCK FORCE finds the owners of a read/write lock whose name is one hash tag, Redisson's too, and says what is no lock.
func TestQuorumForceOfOddNames(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "forces", "holds")
		everywhere := func(words ...any) {
			for _, s := range ns.servers {
				s.Do(t, words...)
			}
		}
		for _, kind := range []Kind{Plain, Read, Write} {
			for owner, lease := range map[string]int64{"": 0, "job": 30_000, "a:b": 30_000} {
				mustLock(t, c["holds"], Request{Key: "{k}", Kind: kind, Owner: owner, Lease: lease})
				mustUnlock(t, c["forces"], UnlockRequest{Key: "{k}", Force: true}, true)
				if n := ns.holding(t, "{k}"); n > 0 {
					t.Errorf("%v %q: %d nodes have it", kind, owner, n)
				}
				time.Sleep(time.Minute)
				c["holds"].Reset() // it knows of its loss
			}
		}
		everywhere("HSET", "{k}", "mode", "write", "2b9b13b1-5e5d-47db-8d23-62069555210b:1:write", 1)
		mustUnlock(t, c["forces"], UnlockRequest{Key: "{k}", Force: true}, true)
		everywhere("HSET", "f", "field", "abc")
		everywhere("HSET", "m", "mode", "abc")
		for _, key := range []string{"f", "m"} {
			_, err := c["forces"].Unlock(context.Background(), UnlockRequest{Key: key, Force: true})
			wantCode(t, err, "WRONGTYPE")
		}
	})
}

// A writer that begins to read while UNLOCK FORCE is under way loses both.
func TestQuorumForceOfAWriterThatBeginsToRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "forces", "holds")
		mustLock(t, c["holds"], Request{Key: "other", Kind: Read}) // the nodes have the script
		for i := range ns.servers {
			ns.link("forces", i).Delay(30*time.Millisecond, 0)
		}
		for after := 10 * time.Millisecond; after < 250*time.Millisecond; after += 20 * time.Millisecond {
			mustLock(t, c["holds"], Request{Key: "k", Kind: Write})
			read := make(chan struct{})
			time.AfterFunc(after, func() {
				defer close(read)
				_, _ = c["holds"].Lock(context.Background(), Request{Key: "k", Kind: Read})
			})
			mustUnlock(t, c["forces"], UnlockRequest{Key: "k", Side: Write, Force: true}, true)
			forced := ns.holding(t, "k")
			<-read
			if before := after < 60*time.Millisecond; before && forced > 0 {
				t.Errorf("reading after %v: %d nodes have it", after, forced)
			}
			time.Sleep(2 * time.Second)
			c["holds"].Reset()
			time.Sleep(time.Minute)
		}
	})
}
