package sharded

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// hearing is one channel that somebody waits on, and where: at the node that has its slot.
type hearing struct {
	users map[lockstore.Listener]int
	at    *shard // nil: nobody has the slot
}

// ready waits for the node that has the slot, whichever that is meanwhile, and for all its subscribers.
func (m *masters) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	unserved := false
	waited, err = node.Await(ctx, over, func() (<-chan struct{}, bool) {
		at := m.subscribers(name)
		changed, on := at.State(name)
		unserved = at == nil
		return changed, on == len(at)
	})
	return waited || unserved, err // it polls while nobody has the slot
}

func (m *masters) Subscribe(name string, l lockstore.Listener) lockstore.Subscription {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.heard[name]
	if h == nil {
		h = &hearing{users: map[lockstore.Listener]int{}, at: m.shardOf(m.ownerSeen(name))}
		m.heard[name] = h
	}
	h.users[l]++
	if h.at != nil {
		h.at.subscribers.Subscribe(name, l)
	}
	return lockstore.Subscription{
		Ready: func(ctx context.Context, over <-chan time.Time) (bool, error) { return m.ready(ctx, name, over) },
		Close: func() { m.unsubscribe(name, l) },
	}
}

func (m *masters) unsubscribe(name string, l lockstore.Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.heard[name]
	if h.at != nil {
		h.at.subscribers.Unsubscribe(name, l)
	}
	if h.users[l]--; h.users[l] == 0 {
		delete(h.users, l)
	}
	if len(h.users) == 0 {
		delete(m.heard, name)
	}
}

// subscribers are where name is subscribed to.
func (m *masters) subscribers(name string) node.Subscribers {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.heard[name]; h != nil && h.at != nil {
		return h.at.subscribers
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
	for name, h := range m.heard {
		at := m.shardOf(now.Owner(cluster.Slot([]byte(name))))
		if at == h.at {
			continue
		}
		for l, times := range h.users {
			for range times {
				if h.at != nil {
					h.at.subscribers.Unsubscribe(name, l)
				}
				if at != nil {
					at.subscribers.SubscribeAgain(name, l)
				}
			}
		}
		h.at = at
	}
}
