package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// MULTILOCKs of a named owner on a quorum, beside what else the owner does.

// alone is the kind of a lock that keeps out one of that kind.
func alone(k Kind) Kind {
	if k == Read {
		return Write
	}
	return k
}

// giveBackInPart gives locks of the owner job back through proxy one, which does not reach just under half of the nodes. So many of the others do
// not answer the proxy called away from then on.
func (ns *simulated) giveBackInPart(t *testing.T, by *Client, keys []string, away string, silent int) {
	t.Helper()
	for i := range len(ns.servers) / 2 { // these keep them
		ns.link("one", i).Swallow(world.Both)
	}
	if n, err := by.MultiUnlock(context.Background(), keys, UnlockRequest{Owner: "job"}); n != int64(len(keys)) || err != nil {
		t.Fatal(n, err)
	}
	for i := range silent {
		ns.link(away, len(ns.servers)-1-i).Cut()
	}
	time.Sleep(2 * time.Second)
}

// A MULTILOCK of what was given back through another proxy, though one node has it still and another one does not answer, ends when the longer of
// the leases is over.
func TestQuorumMultiLockOfWhatWasGivenBackElsewhere(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, nodes)
			one, two := ns.engine(t, "one", 0, ManagerOptions{}), ns.engine(t, "two", 0, ManagerOptions{})
			a, _ := client(one)
			b, lost := client(two)
			time.Sleep(2 * time.Second) // the nodes' clocks are known
			keys, r := []string{"k", "m"}, Request{Owner: "job", Lease: 55_000}
			if _, err := b.MultiLock(context.Background(), keys, r); err != nil {
				t.Fatal(err)
			}
			ns.giveBackInPart(t, a, keys, "two", nodes/2)
			r.Lease = 10_000
			if _, err := b.MultiLock(context.Background(), keys, r); err != nil {
				t.Fatal(err)
			}
			for _, e := range two.List("job", "") {
				if e.Left > 55_000 {
					t.Errorf("%d nodes: for too long: %+v", nodes, e)
				}
			}
			time.Sleep(60 * time.Second)
			if ns.holding(t, "k") > 0 || ns.holding(t, "m") > 0 || two.Stats().Held > 0 {
				t.Errorf("%d nodes: %d and %d of them have the locks for ever, lost: %q", nodes, ns.holding(t, "k"), ns.holding(t, "m"), lost.reasons())
			}
		})
	}
}

// A MULTILOCK that fails leaves what its owner held: that is there to be given back through another proxy, and nobody is told of a loss.
func TestQuorumUnlockElsewhereAfterAMultiLockFailed(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			engines, c, told := ns.jobs(t, "locks", "unlocks")
			other, _ := client(engines["locks"])
			mustLock(t, other, Request{Key: "z", Kind: alone(kind)})
			r := Request{Key: "k", Kind: kind, Owner: "job", Lease: 30_000}
			mustLock(t, c["locks"], r)
			r.Lease = 5000
			if _, err := c["locks"].MultiLock(context.Background(), []string{"k", "z"}, r); !errors.Is(err, ErrNotAcquired) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			heldOn(t, ns, "k", 3, "it stays")
			u := UnlockRequest{Key: "k", Side: kind, Owner: "job"}
			mustUnlock(t, c["unlocks"], u, true)
			time.Sleep(20 * time.Second)
			_, err := c["locks"].Unlock(context.Background(), u)
			if wantCode(t, err, "NOTHELD"); told["locks"].reasons() != "" {
				t.Error(told["locks"].reasons())
			}
		})
	}
}

// A MULTILOCK of what two nodes have something left of, while two others do not answer in time, leaves nothing for ever, whether it fails or not.
func TestQuorumMultiLockThatCannotLook(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		engines, c, _ := ns.jobs(t, "locks")
		for _, s := range ns.servers[:2] {
			s.Do(t, "HSET", "k", "job", 1)
			s.Do(t, "PEXPIRE", "k", 60_000)
		}
		for i := range ns.servers {
			ns.link("locks", i).Delay(300*time.Millisecond, 0)
		}
		time.AfterFunc(200*time.Millisecond, func() {
			for i := range 3 {
				ns.link("locks", i).Heal()
			}
		})
		if _, err := c["locks"].MultiLock(context.Background(), []string{"k", "m"}, Request{Owner: "job", Lease: 500}); err != nil {
			wantCode(t, err, "NOQUORUM")
		}
		time.Sleep(61 * time.Second)
		if n := engines["locks"].Stats().Held; n > 0 || ns.holding(t, "k")+ns.holding(t, "m") > 0 {
			t.Errorf("%d holds are known here, %d nodes have k, %d m", n, ns.holding(t, "k"), ns.holding(t, "m"))
		}
	})
}

// A MULTILOCK that waits for another lock does not shorten a lease that its owner takes through another proxy meanwhile, after a third MULTILOCK of the
// owner has failed.
func TestQuorumMultiLockKeepsALeaseTakenMeanwhile(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] {
		t.Run(kind.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 3)
				a, _ := client(ns.engine(t, "one", 0, ManagerOptions{}))
				b, _ := client(ns.engine(t, "two", 0, ManagerOptions{}))
				c, _ := client(ns.engine(t, "three", 0, ManagerOptions{}))
				other, _ := client(a.m)
				time.Sleep(2 * time.Second)
				mustLock(t, other, Request{Key: "m", Kind: alone(kind)})
				mustLock(t, other, Request{Key: "x", Kind: alone(kind)})
				done := make(chan error, 1)
				go func() {
					_, err := a.MultiLock(context.Background(), []string{"k", "m"}, Request{Kind: kind, Owner: "job", Blocks: true, Lease: 5000})
					done <- err
				}()
				time.Sleep(time.Second)
				if _, err := b.MultiLock(context.Background(), []string{"k", "x"}, Request{Kind: kind, Owner: "job", Lease: 2000}); !errors.Is(err, ErrNotAcquired) {
					t.Fatal(err)
				}
				mustLock(t, c, Request{Key: "k", Kind: kind, Owner: "job", Lease: 50_000})
				mustUnlock(t, other, UnlockRequest{Key: "m", Side: alone(kind)}, true)
				if err := <-done; err != nil {
					t.Error(err)
				}
				time.Sleep(45 * time.Second)
				if n := ns.holding(t, "k"); n < 2 {
					t.Errorf("%d nodes have it before its end", n)
				}
				time.Sleep(time.Minute)
				if n := ns.holding(t, "k"); n > 0 {
					t.Errorf("%d nodes have it for ever", n)
				}
			})
		})
	}
}

// A MULTILOCK that waits for another lock leaves one that its owner has taken through another proxy meanwhile as it is there.
func TestQuorumMultiLockBesideItsOwner(t *testing.T) {
	for _, when := range []time.Duration{0, 10 * time.Second} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			one, two := ns.engine(t, "one", 0, ManagerOptions{}), ns.engine(t, "two", 0, ManagerOptions{}, hasty)
			a, lost := client(one)
			b, _ := client(two)
			other, _ := client(one)
			time.Sleep(2 * time.Second)
			mustLock(t, other, Request{Key: "m"})
			done := make(chan error, 1)
			go func() {
				_, err := b.MultiLock(context.Background(), []string{"k", "m"}, Request{Owner: "job", Blocks: true, Lease: 15_000})
				done <- err
			}()
			time.Sleep(when)
			mustLock(t, a, Request{Key: "k", Owner: "job", Lease: 55_000})
			time.Sleep(time.Second)
			mustUnlock(t, other, UnlockRequest{Key: "m"}, true)
			if err := <-done; err != nil {
				t.Error(err)
			}
			time.Sleep(50 * time.Second)
			if n := ns.holding(t, "k"); n != 3 || lost.reasons() != "" {
				t.Errorf("after %v: %d nodes have it, lost: %q", when, n, lost.reasons())
			}
			if n := ns.holding(t, "m"); n != 0 {
				t.Errorf("after %v: %d nodes have the other lock still", when, n)
			}
			mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "job"}, true)
		})
	}
}

// A MULTILOCK with a lease, through a proxy that does not reach a node with the longer lease that the owner was told, does not shorten that.
func TestQuorumMultiLockDoesNotShorten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		a, _ := client(ns.engine(t, "one", 0, ManagerOptions{}))
		b, _ := client(ns.engine(t, "two", 0, ManagerOptions{}))
		time.Sleep(2 * time.Second)
		mustLock(t, a, Request{Key: "k", Owner: "job", Lease: 10_000})
		ns.link("one", 2).Cut()
		if err := a.Renew(context.Background(), RenewRequest{Key: "k", Owner: "job", Lease: 50_000}); err != nil {
			t.Fatal(err)
		}
		ns.link("two", 0).Cut()
		if _, err := b.MultiLock(context.Background(), []string{"k", "m"}, Request{Owner: "job", Lease: 5000}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if n := ns.holding(t, "k"); n < 2 {
			t.Errorf("%d nodes have it 10 s before its end", n)
		}
		time.Sleep(time.Minute)
		if n := ns.holding(t, "k"); n > 0 {
			t.Errorf("%d nodes have it for ever", n)
		}
	})
}

// A MULTILOCK of what just under half of the nodes have already gets its lease there, too, when fewer than a majority have made the hold.
func TestQuorumMultiLockOfWhatSomeNodesHave(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] {
		for _, keys := range [][]string{{"m"}, {"k", "m"}} {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 5)
				_, c, _ := ns.jobs(t, "one", "two")
				r := Request{Key: "m", Kind: kind, Owner: "job", Lease: 1000}
				mustLock(t, c["one"], r)
				for _, s := range ns.servers[2:] {
					s.Do(t, "FLUSHALL")
				}
				ns.link("one", 4).Cut()
				r.Lease = 20_000
				if _, err := c["one"].MultiLock(context.Background(), keys, r); err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * time.Second)
				if _, err := c["two"].Lock(context.Background(), Request{Key: "m", Kind: alone(kind)}); !errors.Is(err, ErrNotAcquired) {
					t.Errorf("%v: %q: another one gets it 5 s before its end: %v", kind, keys, err)
				}
				time.Sleep(10 * time.Second)
				heldOn(t, ns, "m", 0, "its lease is over")
			})
		}
	}
}

// A MULTILOCK that has its last lock renews the earlier ones on the nodes, too, that gave their votes when the lock had been won without them.
func TestQuorumMultiLockRenewsLateVotes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, ManagerOptions{})
		other, _ := client(m)
		time.Sleep(2 * time.Second)
		mustLock(t, other, Request{Key: "m"})
		ns.link("one", 2).Delay(50*time.Millisecond, 0)
		c, _ := client(m)
		done := make(chan error, 1)
		go func() {
			_, err := c.MultiLock(context.Background(), []string{"k", "m"}, Request{Owner: "job", Blocks: true, Lease: 45_000})
			done <- err
		}()
		time.Sleep(40 * time.Second)
		heldOn(t, ns, "k", 3, "its first lease is not over")
		mustUnlock(t, other, UnlockRequest{Key: "m"}, true)
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(44 * time.Second)
		heldOn(t, ns, "k", 3, "its lease is not over")
		time.Sleep(2 * time.Second)
		heldOn(t, ns, "k", 0, "its lease is over")
	})
}

// A lock that the nodes lose while a MULTILOCK waits for its last one fails the whole, and what it made is given back.
func TestQuorumMultiLockLosesOne(t *testing.T) {
	for _, r := range []Request{{}, {Lease: 20_000}, {Owner: "job", Lease: 20_000}} {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			m := ns.engine(t, "one", 0, ManagerOptions{})
			other, _ := client(m)
			stranger, _ := client(ns.engine(t, "two", 0, ManagerOptions{}))
			time.Sleep(2 * time.Second)
			mustLock(t, other, Request{Key: "m"})
			c, _ := client(m)
			done := make(chan error, 1)
			r.Blocks = true
			go func() { done <- multi(c, r, "j", "k", "m") }()
			time.Sleep(time.Second)
			for _, s := range ns.servers {
				s.Do(t, "DEL", "k")
			}
			mustLock(t, stranger, Request{Key: "k"})
			mustUnlock(t, other, UnlockRequest{Key: "m"}, true)
			switch err := <-done; {
			case r.Owner == "":
				wantCode(t, err, "LOCKLOST")
			case !errors.Is(err, ErrNotAcquired):
				t.Error(err)
			}
			mustUnlock(t, stranger, UnlockRequest{Key: "k"}, true)
			time.Sleep(time.Second)
			for _, key := range []string{"j", "k", "m"} {
				heldOn(t, ns, key, 0, "given back")
			}
		})
	}
}

// A MULTILOCK whose locks cannot be given the lease that was asked for fails.
func TestQuorumMultiLockThatCannotSetItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		c, _ := client(ns.engine(t, "one", 0, ManagerOptions{}))
		b := &multiLock{c: c, r: Request{Owner: "job", Lease: 50_000}}
		if err := b.take(context.Background(), "k", false); err != nil {
			t.Fatal(err)
		}
		ns.away("one", 0, 1)
		wantCode(t, b.settle(context.Background(), b.taken[0]), "NOQUORUM")
	})
}
