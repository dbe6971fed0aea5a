package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// An UNLOCK that was answered NOQUORUM, and was done on the nodes all the same, is no loss, also if the watchdog finds out before it is said
// again.
func TestQuorumUnlockDoneUnheard(t *testing.T) {
	const again = "again" // an owner that has had the lock through another proxy
	for _, owner := range []string{"", "me", again} {
		for _, kind := range lockstore.Kinds {
			t.Run(fmt.Sprint(kind, " ", owner), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					ns := bubbleNodes(w, 3)
					times := quorum.Options{NodeTimeout: 200 * time.Millisecond}
					a, lost := client(ns.engine(t, "one", 0, Options{}, times))
					if owner == again {
						b, _ := client(ns.engine(t, "two", 0, Options{}, times))
						mustLock(t, b, Request{Key: "k", Kind: kind, Owner: owner})
						mustUnlock(t, a, UnlockRequest{Key: "k", Owner: owner, Side: kind}, true)
					}
					mustLock(t, a, Request{Key: "k", Kind: kind, Owner: owner})
					for i := 1; i < 3; i++ {
						ns.link("one", i).Swallow(world.Replies)
					}
					_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: owner, Side: kind})
					wantCode(t, err, "NOQUORUM")
					for i := 1; i < 3; i++ {
						ns.link("one", i).Cut()
						ns.link("one", i).Heal()
					}
					time.Sleep(5 * time.Second)
					if has := ns.holding(t, "k"); has != 0 {
						t.Errorf("%d nodes have it", has)
					}
					if told := lost.reasons(); told != "" {
						t.Errorf("told %q", told)
					}
					mustUnlock(t, a, UnlockRequest{Key: "k", Owner: owner, Side: kind}, true)
				})
			})
		}
	}
}

// A lease that is taken through another proxy, where that one does not reach a node that still has the former hold, and another node never had
// it, is not renewed for the former hold's sake: the node without it does not take the new one for that.
func TestQuorumLeaseBesideANodeOutOfReach(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		t.Run(kind.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 3)
				times := quorum.Options{NodeTimeout: 200 * time.Millisecond}
				m, n := ns.engine(t, "one", 0, Options{}, times), ns.engine(t, "two", 0, Options{}, times)
				a, lostA := client(m)
				b, lostB := client(n)
				r := Request{Key: "k", Kind: kind, Owner: "me"}
				mustLock(t, a, Request{Key: "warm", Kind: kind})
				ns.link("two", 2).Cut()
				mustLock(t, b, r)
				ns.link("two", 2).Heal()
				ns.link("one", 1).Swallow(world.Both)
				mustUnlock(t, a, UnlockRequest{Key: r.Key, Owner: r.Owner, Side: kind}, true)
				r.Lease = 20_000
				mustLock(t, a, r)
				time.Sleep(2 * time.Minute)
				if has := ns.holding(t, r.Key); has > 1 {
					t.Errorf("%d nodes have it", has)
				}
				if told := lostA.reasons() + lostB.reasons(); told != "" {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}
