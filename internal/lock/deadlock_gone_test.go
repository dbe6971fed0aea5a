package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A waiter that goes while Redis is asked about a circle leaves nothing behind, whatever is given back meanwhile.
func TestDeadlockAskerGoesWithAnOffer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, _ := bubbleSlow(t, w, s, ManagerOptions{})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		x, _ := client(m)
		asker, _ := client(m)
		reader, _ := client(m)
		mustLock(t, x, Request{Key: "k2", Kind: Write})
		mustLock(t, asker, Request{Key: "k1"})
		xWaits := make(chan error, 1)
		go func() { _, err := x.Lock(ctx, Request{Key: "k1", Blocks: true}); xWaits <- err }()
		read := Request{Key: "k2", Kind: Read, Blocks: true}
		reading := locking(reader, read)
		time.Sleep(time.Second)
		if !parkedAt(m, read) || !parkedAt(m, Request{Key: "k1"}) {
			t.Fatal("they do not wait")
		}
		// X's hold is at work, so that the question must wait.
		h, err := entered(context.Background(), x, lockstore.ID{Key: "k2", Kind: Write, Owner: x.Owner()})
		if err != nil {
			t.Fatal(err)
		}
		asks := make(chan error, 1)
		go func() { _, err := asker.Lock(ctx, read); asks <- err }()
		synctest.Wait()
		go m.giveBacks.giveBackBusy(h)
		time.Sleep(50 * time.Millisecond) // under way
		cancel()
		if err := <-asks; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-reading; err != nil {
			t.Error(err)
		}
		<-xWaits
		time.Sleep(time.Second)
		m.holds.mu.Lock()
		left := m.holds.byID[lockstore.ID{Key: "k2", Kind: Read, Owner: asker.Owner()}.Hold()]
		m.holds.mu.Unlock()
		if got := hash(t, s, "k2"); left != nil || got[asker.Owner()] != "" {
			t.Error("a hold is left of who has gone:", got)
		}
	})
}
