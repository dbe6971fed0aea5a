package main

import (
	"testing"
	"time"
)

// However many keys there are, the clock leaves clients time.
func TestClockLeavesTime(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: clockTick, time.Millisecond: clockTick, 10 * time.Millisecond: 90 * time.Millisecond, time.Second: 9 * time.Second,
	} {
		if got := rest(took); got != want {
			t.Errorf("%v after a tick of %v, not %v", got, took, want)
		}
	}
}
