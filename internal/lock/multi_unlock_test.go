package lock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A MULTIUNLOCK that may have given one of its locks back does not say that nothing was sent, whatever becomes of the others.
func TestMultiUnlockOfUnknownOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		a, _ := client(bubbleEngine(t, w, s, "one", Options{}))
		b, _ := client(bubbleEngine(t, w, s, "two", Options{}))
		if err := multi(a, Request{Owner: "o", Lease: 60_000}, "k1", "k2"); err != nil {
			t.Fatal(err)
		}
		mustLock(t, b, Request{Key: "warm", Owner: "o"}) // so that a connection is there
		link := w.Proxy("two").Link(s.Addr())
		link.Delay(200*time.Millisecond, 0)
		defer link.Heal()
		time.AfterFunc(500*time.Millisecond, func() { link.Swallow(world.Replies) }) // the UNLOCK of k2 is on its way
		time.AfterFunc(time.Second, link.Cut)
		n, err := b.MultiUnlock(context.Background(), []string{"k1", "k2"}, UnlockRequest{Owner: "o"})
		if pttl(t, s, "k1") <= 0 || pttl(t, s, "k2") > 0 {
			t.Fatalf("k1 has %d ms left, k2 %d", pttl(t, s, "k1"), pttl(t, s, "k2"))
		}
		if err == nil || strings.HasPrefix(err.Error(), "upstream unavailable") {
			t.Errorf("%d, %v", n, err)
		}
	})
}
