// Package retry is the time between two tries.
package retry

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/jitter"
)

// Sleep lets d pass, and says whether it has passed in full: the end of ctx, and early, which may be nil, end it sooner.
func Sleep(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-early:
	case <-ctx.Done():
	}
	return false
}

// Wake has whoever reads c, which has one slot, look again, or not fall asleep. It never blocks.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // that one has not looked yet
	}
}

// Around is d, give or take a half: those who failed together do not try again together.
func Around(d time.Duration) time.Duration { return d/2 + jitter.N(d) }

// Backoff is a pause that doubles with each failure, from First to Most. The pauses are around that.
type Backoff struct {
	First, Most time.Duration

	last time.Duration // before jitter; 0: there was none
}

// Insist is the pauses between the tries of a request that must come to an end.
func Insist() Backoff { return Backoff{First: 5 * time.Millisecond, Most: time.Second / 2} }

// Next is the pause before the next try.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.First), b.Most)
	return Around(b.last)
}

// Reset says that a try went well: the next pause is the first again.
func (b *Backoff) Reset() { b.last = 0 }

// Failed says whether there was a pause since the last success.
func (b *Backoff) Failed() bool { return b.last > 0 }
