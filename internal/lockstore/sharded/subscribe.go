package sharded

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// subscription is one channel that somebody waits on, and where: at the node that has its slot.
type subscription struct {
	users map[chan<- struct{}]int
	at    *shard // nil: nobody has the slot
}

// ready waits for the node that has the slot, whichever that is meanwhile, and for all its subscribers.
func (m *masters) ready(ctx context.Context, name string, over <-chan time.Time) error {
	return node.Await(ctx, over, func() (changed <-chan struct{}, enough, failing bool) {
		at := m.subscribers(name)
		changed, on, away := at.State(name)
		return changed, on == len(at), away > 0
	}, func() { m.subscribers(name).Missed(name) })
}

func (m *masters) Subscribe(name string, wake chan<- struct{}) lockstore.Subscription {
	m.mu.Lock()
	defer m.mu.Unlock()
	sub := m.subscriptions[name]
	if sub == nil {
		sub = &subscription{users: map[chan<- struct{}]int{}, at: m.shardOf(m.ownerSeen(name))}
		m.subscriptions[name] = sub
	}
	sub.users[wake]++
	if sub.at != nil {
		sub.at.subscribers.Subscribe(name, wake)
	}
	return lockstore.Subscription{
		Ready: func(ctx context.Context, over <-chan time.Time) error { return m.ready(ctx, name, over) },
		Close: func() { m.unsubscribe(name, wake) },
	}
}

func (m *masters) unsubscribe(name string, wake chan<- struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sub := m.subscriptions[name]
	if sub.at != nil {
		sub.at.subscribers.Unsubscribe(name, wake)
	}
	if sub.users[wake]--; sub.users[wake] == 0 {
		delete(sub.users, wake)
	}
	if len(sub.users) == 0 {
		delete(m.subscriptions, name)
	}
}

// subscribers are where name is subscribed to.
func (m *masters) subscribers(name string) node.Subscribers {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sub := m.subscriptions[name]; sub != nil && sub.at != nil {
		return sub.at.subscribers
	}
	return nil
}

// ownerSeen is who has a name's slot in the topology that channels were last brought in line with. mu is held.
func (m *masters) ownerSeen(name string) *cluster.Node {
	s := m.seen
	if s == nil {
		s = m.c.Snapshot()
	}
	return s.Owner(cluster.Slot([]byte(name)))
}

// rehome moves the subscriptions of every channel to the node that has its slot now. mu is held.
func (m *masters) rehome(now *cluster.Snapshot) {
	for name, sub := range m.subscriptions {
		at := m.shardOf(now.Owner(cluster.Slot([]byte(name))))
		if at == sub.at {
			continue
		}
		for wake, times := range sub.users {
			for range times {
				if sub.at != nil {
					sub.at.subscribers.Unsubscribe(name, wake)
				}
				if at != nil {
					at.subscribers.SubscribeAgain(name, wake)
				}
			}
		}
		sub.at = at
	}
}
