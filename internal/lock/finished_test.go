package lock

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestUnlockSentAgainAfterManyOfOthers: what others give back does not have a named owner's UNLOCK forgotten.
func TestUnlockSentAgainAfterManyOfOthers(t *testing.T) {
	m := engine(t, testredis.Start(t).URL(), Options{})
	victim, _ := client(m)
	pool, _ := client(m)
	mustLock(t, victim, Request{Key: "k", Owner: "o"})
	mustUnlock(t, victim, UnlockRequest{Key: "k", Owner: "o"}, true)
	other := &Client{m: m}
	for i := range 5 * finishedOfOne {
		m.done.add(lockstore.ID{Key: fmt.Sprint(i), Owner: "x"}, other, time.Now())
		m.done.add(lockstore.ID{Key: fmt.Sprint("nobody's ", i), Owner: "x"}, nil, time.Now())
	}
	mustUnlock(t, pool, UnlockRequest{Key: "k", Owner: "o"}, true) // sent again over another connection
	if n := len(m.done.known); n > 2*finishedOfOne+1 {
		t.Errorf("%d are remembered", n)
	}
	if m.done.sweep(time.Now().Add(finishedFor)); len(m.done.known) != 0 || m.done.all.Len() != 0 || other.finished.all.Len() != 0 {
		t.Errorf("%d are remembered for ever", len(m.done.known))
	}
}
