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
	for _, owner := range []string{"", "me"} {
		for _, kind := range lockstore.Kinds {
			t.Run(fmt.Sprint(kind, " ", owner), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					ns := bubbleNodes(w, 3)
					m := ns.engine(t, "one", 0, Options{}, quorum.Options{NodeTimeout: 200 * time.Millisecond})
					a, lost := client(m)
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
