package lock

import (
	"testing"
	"time"
)

// TestForHowLongReplicasAreWaitedFor: a second, but no longer than the client waits, and for half of the lease.
func TestForHowLongReplicasAreWaitedFor(t *testing.T) {
	for _, c := range []struct {
		r    Request
		want time.Duration
	}{
		{Request{}, time.Second},
		{Request{Blocks: true}, time.Second}, // BLOCK 0
		{Request{Blocks: true, Block: 60}, 60 * time.Millisecond},
		{Request{Blocks: true, Block: 60000}, time.Second},
		{Request{Lease: 300}, 150 * time.Millisecond},
		{Request{Lease: 60000}, time.Second},
		{Request{Blocks: true, Block: 60, Lease: 100}, 50 * time.Millisecond},
	} {
		if got := c.r.within(time.Second); got != c.want {
			t.Errorf("%+v: %v, want %v", c.r, got, c.want)
		}
	}
}
