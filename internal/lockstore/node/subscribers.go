package node

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Subscribers receive the messages of one lock, be it on each node of a quorum, or on both kinds of channel of a
// cluster's node. A message to any of them wakes.
type Subscribers []*Subscriber

// Subscribe is Subscriber.Subscribe on all of them.
func (all Subscribers) Subscribe(name string, wake chan<- struct{}) lockstore.Subscription {
	for _, s := range all {
		s.Subscribe(name, wake)
	}
	return lockstore.Subscription{
		Ready: func(ctx context.Context, over <-chan time.Time) error { return all.ready(ctx, name, over) },
		Close: func() { all.Unsubscribe(name, wake) },
	}
}

// Unsubscribe is Subscriber.Unsubscribe on all of them.
func (all Subscribers) Unsubscribe(name string, wake chan<- struct{}) {
	for _, s := range all {
		s.unsubscribe(name, wake)
	}
}

// SubscribeAgain is Subscribe after messages may have been missed: wake is sent on when the subscription is confirmed.
func (all Subscribers) SubscribeAgain(name string, wake chan<- struct{}) {
	for _, s := range all {
		s.Subscribe(name, wake)
		s.missed(name)
	}
}

// ready is Subscriber.ready for a majority, which of two is both: a waiter does not wait for a node that is down.
func (all Subscribers) ready(ctx context.Context, name string, over <-chan time.Time) error {
	if len(all) == 1 {
		return all[0].ready(ctx, name, over)
	}
	return Await(ctx, over, func() (changed <-chan struct{}, enough, failing bool) {
		changed, on, away := all.State(name)
		return changed, on > len(all)/2, len(all)-away <= len(all)/2
	}, func() { all.Missed(name) })
}

// Await waits until state says that there are subscriptions enough, or that there cannot be enough now (failing), as
// Subscription.Ready does. It asks again when changed is closed, and every 20 ms, since that may be another channel by
// then. It calls missed when there are not enough.
func Await(ctx context.Context, over <-chan time.Time, state func() (changed <-chan struct{}, enough, failing bool), missed func()) error {
	timer := time.NewTimer(subscribeWait)
	defer timer.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		changed, enough, failing := state()
		if enough {
			return nil
		}
		if failing {
			missed()
			return nil
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-timer.C:
			missed()
			return nil
		case <-over:
			return lockstore.ErrOver
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Missed notes that messages on name may be missed until each of them is subscribed to it: who waits for the lock polls
// until then.
func (all Subscribers) Missed(name string) {
	for _, s := range all {
		s.missed(name)
	}
}

// State is how many of them are subscribed to name, how many cannot be at present, and a channel that closes when one
// more is, or cannot be.
func (all Subscribers) State(name string) (changed <-chan struct{}, on, failing int) {
	for _, s := range all {
		s.mu.Lock()
		c := s.chans[name]
		switch {
		case c == nil:
		case c.on:
			on++
		default:
			if s.failing {
				c.lost = true // nobody waits for it
				failing++
			} else if changed == nil {
				changed = c.ready
			}
		}
		s.mu.Unlock()
	}
	return changed, on, failing
}
