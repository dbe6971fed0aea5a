package harness

import (
	"testing"
	"time"
)

// MayStall is how long a process may be kept from its work by others on the machine, beside which all must be as it should.
const MayStall = 50 * time.Millisecond

// WatchStalls measures, until the function that it returns is called, for how long at most this process was kept from its work.
func WatchStalls() (stop func() (longest time.Duration)) {
	over, longest := make(chan struct{}), make(chan time.Duration)
	go watchFor(over, longest)
	return func() time.Duration {
		close(over)
		return <-longest
	}
}

func watchFor(over <-chan struct{}, longest chan<- time.Duration) {
	const pause = 5 * time.Millisecond
	worst := time.Duration(0)
	for {
		began := time.Now()
		select {
		case <-over:
			longest <- worst
			return
		case <-time.After(pause):
			worst = max(worst, time.Since(began)-pause)
		}
	}
}

// Undisturbed is for what is about short times. f says what is wrong, "" if nothing is; it is done again when the machine has kept this
// process from its work meanwhile, and lockproxy perhaps for longer. The long forms have the machine for themselves.
func Undisturbed(t *testing.T, f func() (wrong string)) {
	t.Helper()
	for range 3 {
		stalled := WatchStalls()
		wrong := f()
		stall := stalled()
		if wrong == "" {
			return
		}
		if stall < MayStall || Long() {
			t.Fatal(wrong)
		}
		t.Logf("%s; but this process was kept from its work for %v: this shows nothing", wrong, stall)
	}
}
