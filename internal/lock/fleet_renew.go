package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
)

// slotOf is what parts renewals on a cluster: Redis refuses a script with keys of two slots, even where one node has both.
func (m *Manager) slotOf(key string) int {
	if m.fleet == nil {
		return 0
	}
	return cluster.Slot([]byte(key))
}

// oneByOne renews the holds of a batch that Redis refused as a whole because its slot is on its way: some are here already, or
// still, and Redis does what is about one of them.
func (f *fleet) oneByOne(ctx context.Context, b *batch) ([]int64, error) {
	out := make([]int64, len(b.holds))
	var failed error
	done := false
	for i := range b.holds {
		one := &batch{batchKey: b.batchKey, holds: b.holds[i : i+1], marks: b.marks[i : i+1]}
		codes, err := node.Ints(f.eval(ctx, one.call(f.mark)))
		if err == nil && codes[0] == scripts.Late {
			err = errLate
		}
		if err == nil {
			out[i], done = codes[0], true
			continue
		}
		out[i], failed = tally.Undecided, err
		if isUnknown(err) {
			f.m.mu.Lock()
			b.holds[i].late = time.Now().Add(b.allow)
			f.m.mu.Unlock()
		}
	}
	if done {
		return out, nil
	}
	return out, failed
}

// renew sends a renewal to the node of its slot.
func (f *fleet) renew(ctx context.Context, b *batch) ([]int64, error) {
	ctx = bounded(ctx, min(b.lease/12, time.Second/4))
	out, err := node.Ints(f.eval(ctx, b.call(f.mark)))
	if len(b.holds) > 1 && errors.Is(err, errMoving) {
		return f.oneByOne(ctx, b)
	}
	return out, err
}
