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
// process from its work meanwhile, and lockproxy perhaps for longer. It is done again once when this process was not kept, since
// lockproxy alone may have been. The long forms have the machine for themselves.
func Undisturbed(t *testing.T, f func() (wrong string)) {
	t.Helper()
	untilUndisturbed(t, WatchStalls, f)
}

func untilUndisturbed(t testing.TB, watch func() (stop func() time.Duration), f func() (wrong string)) {
	t.Helper()
	const tries, strikes = 8, 2
	undisturbed := 0
	for try := 1; ; try++ {
		stalled := watch()
		wrong := f()
		stall := stalled()
		if wrong == "" {
			return
		}
		if stall < MayStall {
			undisturbed++
		}
		if Long() || undisturbed == strikes || try == tries {
			t.Fatalf("%s (try %d)", wrong, try)
		}
		t.Logf("%s; this process was kept from its work for %v: it is tried again", wrong, stall)
	}
}
