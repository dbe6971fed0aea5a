package lock

import (
	"context"
	"time"
)

// ears are the hubs of all nodes that keep the locks: one, or a quorum's. What any of them hears wakes. On a cluster they are
// those of one node, for both kinds of channel.
type ears []*hub

func (e ears) hear(name string, l *line) {
	for _, h := range e {
		h.hear(name, l)
	}
}

func (e ears) unhear(name string, l *line) {
	for _, h := range e {
		h.unhear(name, l)
	}
}

// ready is hub.ready of a majority, of two both: a waiter does not wait for a node that is down.
func (e ears) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	if len(e) == 1 {
		return e[0].ready(ctx, name, over)
	}
	timer := time.NewTimer(subscribeWait)
	defer timer.Stop()
	for {
		changed, on := e.state(name)
		if on > len(e)/2 {
			return waited, nil
		}
		waited = true
		tick := time.NewTimer(20 * time.Millisecond)
		select {
		case <-changed:
		case <-tick.C:
		case <-timer.C:
			tick.Stop()
			return true, nil
		case <-over:
			tick.Stop()
			return true, ErrNotAcquired
		case <-ctx.Done():
			tick.Stop()
			return true, ctx.Err()
		}
		tick.Stop()
	}
}

// state is on how many nodes messages on name are heard, and a channel that closes when they are on one more.
func (e ears) state(name string) (changed <-chan struct{}, on int) {
	for _, h := range e {
		h.mu.Lock()
		if c := h.chans[name]; c != nil && c.on {
			on++
		} else if c != nil && changed == nil {
			changed = c.ready
		}
		h.mu.Unlock()
	}
	return changed, on
}
