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
	users map[lockstore.Listener]int
	at    *shard // nil: nobody has the slot
}

// ready waits for the node that has the slot, whichever that is meanwhile, and for all its subscribers.
func (m *masters) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	unserved := false
	waited, err = node.Await(ctx, over, func() (changed <-chan struct{}, enough, failing bool) {
		at := m.subscribers(name)
		changed, on, away := at.State(name)
		unserved = at == nil
		return changed, on == len(at), away > 0
	}, func() { m.subscribers(name).Missed(name) })
	return waited || unserved, err // it polls while nobody has the slot
}

func (m *masters) Subscribe(name string, l lockstore.Listener) lockstore.Subscription {
	m.mu.Lock()
	defer m.mu.Unlock()
	sub := m.subscriptions[name]
	if sub == nil {
		sub = &subscription{users: map[lockstore.Listener]int{}, at: m.shardOf(m.ownerSeen(name))}
		m.subscriptions[name] = sub
	}
	sub.users[l]++
	if sub.at != nil {
		sub.at.subscribers.Subscribe(name, l)
	}
	return lockstore.Subscription{
		Ready: func(ctx context.Context, over <-chan time.Time) (bool, error) { return m.ready(ctx, name, over) },
		Close: func() { m.unsubscribe(name, l) },
	}
}

func (m *masters) unsubscribe(name string, l lockstore.Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sub := m.subscriptions[name]
	if sub.at != nil {
		sub.at.subscribers.Unsubscribe(name, l)
	}
	if sub.users[l]--; sub.users[l] == 0 {
		delete(sub.users, l)
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
		for l, times := range sub.users {
			for range times {
				if sub.at != nil {
					sub.at.subscribers.Unsubscribe(name, l)
				}
				if at != nil {
					at.subscribers.SubscribeAgain(name, l)
				}
			}
		}
		sub.at = at
	}
}
