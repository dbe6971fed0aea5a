package lock

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// TestClockAhead: with a new master whose clock is ahead the locks end earlier by that, since Redis keeps when they end, and
// each is believed in no longer.
func TestClockAhead(t *testing.T) {
	hs := newHolds(Options{}, nil, nil, nil)
	now := time.Now()
	soon, later, fresh := &hold{id: lockstore.ID{Key: "soon"}}, &hold{id: lockstore.ID{Key: "later"}}, &hold{id: lockstore.ID{Key: "fresh"}}
	soon.promise(now.Add(5*time.Second), now.Add(-time.Second))
	later.promise(now.Add(time.Minute), now.Add(-time.Second))
	fresh.promise(now.Add(time.Minute), now.Add(time.Second)) // the new master has answered
	for _, h := range []*hold{soon, later, fresh} {
		hs.list(h)
		hs.plan(h, h.deadline)
	}
	hs.plan(later, now) // somebody wants it looked at
	hs.shorten(10*time.Second, now, func(string) bool { return true })
	if want := now.Add(-5 * time.Second); !soon.deadline.Equal(want) || !soon.next.Equal(want) {
		t.Errorf("deadline %v from now, looked at %v from now", soon.deadline.Sub(now), soon.next.Sub(now))
	}
	if !later.deadline.Equal(now.Add(50*time.Second)) || !later.next.Equal(now) {
		t.Errorf("deadline %v from now, looked at %v from now", later.deadline.Sub(now), later.next.Sub(now))
	}
	if !fresh.deadline.Equal(now.Add(time.Minute)) {
		t.Errorf("of the new master: deadline %v from now", fresh.deadline.Sub(now))
	}
}
