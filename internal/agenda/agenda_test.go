package agenda

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

type task struct {
	at    time.Time
	place int32
}

// TestOrder: whatever is added, moved and dropped, the first thing to do is the earliest of those that there are.
func TestOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	began := time.Now()
	a := New(func(x *task) *int32 { return &x.place })
	there := map[*task]bool{}
	all := make([]*task, 200)
	for i := range all {
		all[i] = &task{}
	}
	for range 20000 {
		x := all[r.IntN(len(all))]
		if r.IntN(3) == 0 {
			a.Drop(x)
			delete(there, x)
		} else {
			x.at = began.Add(time.Duration(r.IntN(1000)))
			a.Put(x, x.at)
			there[x] = true
		}
		if a.Len() != len(there) {
			t.Fatalf("%d things instead of %d", a.Len(), len(there))
		}
		for x := range there {
			if x.at.Before(a.First().at) {
				t.Fatalf("%v is said to be first, and %v is there", a.First().at.Sub(began), x.at.Sub(began))
			}
		}
	}
	var times []time.Time
	for x, due := a.Due(began.Add(time.Hour)); due; x, due = a.Due(began.Add(time.Hour)) {
		times = append(times, x.at)
		a.Drop(x)
		delete(there, x)
	}
	if len(there) > 0 || !slices.IsSortedFunc(times, time.Time.Compare) {
		t.Errorf("%d things were never due, and the others were at %v", len(there), times)
	}
}
