package lock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestUnlockSentAgainAfterManyOfOthers: what others give back does not have a named owner's UNLOCK forgotten, and is bounded, whether or not their
// connections have closed.
func TestUnlockSentAgainAfterManyOfOthers(t *testing.T) {
	m := engine(t, testredis.Start(t).URL(), Options{})
	victim, _ := client(m)
	pool, _ := client(m)
	mustLock(t, victim, Request{Key: "k", Owner: "o"})
	mustUnlock(t, victim, UnlockRequest{Key: "k", Owner: "o"}, true)
	const name = 4096
	long := strings.Repeat("x", name)
	for round := range 3 {
		other := m.NewClient(ClientInfo{User: func() string { return "other" }})
		for i := range lossesOfOne / name * 2 {
			m.done.add(lockstore.ID{Key: fmt.Sprint(long, round, i), Owner: "x"}, other, time.Now())
			m.done.add(lockstore.ID{Key: fmt.Sprint(long, round, "nobody's", i), Owner: "x"}, nil, time.Now())
		}
		other.Close(Gone)
	}
	mustUnlock(t, pool, UnlockRequest{Key: "k", Owner: "o"}, true) // sent again over another connection
	if n := len(m.done.known); n > 2*lossesOfOne/name+1 {
		t.Errorf("%d are remembered", n)
	}
	if m.done.sweep(time.Now().Add(finishedFor)); len(m.done.known) != 0 || m.done.all.Len() != 0 || len(m.done.left) != 0 || m.done.nobody.bytes != 0 {
		t.Errorf("%d are remembered for ever", len(m.done.known))
	}
}
