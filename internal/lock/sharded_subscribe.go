package lock

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// hearing is one channel that somebody waits on, and where: at the node that has its slot.
type hearing struct {
	users map[node.Listener]int
	at    *shard // nil: nobody has the slot
}

// ready is node.Subscribers.Ready of the node that has the slot, whichever that is meanwhile, and of all its subscribers.
func (f *sharded) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	unserved := false
	waited, err = node.Await(ctx, over, func() (<-chan struct{}, bool) {
		at := f.subscribers(name)
		changed, on := at.State(name)
		unserved = at == nil
		return changed, on == len(at)
	})
	return waited || unserved, err // it polls while nobody has the slot
}

func (f *sharded) subscribe(name string, l node.Listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.heard[name]
	if h == nil {
		h = &hearing{users: map[node.Listener]int{}, at: f.shardOf(f.ownerSeen(name))}
		f.heard[name] = h
	}
	h.users[l]++
	if h.at != nil {
		h.at.subscribers.Subscribe(name, l)
	}
}

func (f *sharded) unsubscribe(name string, l node.Listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.heard[name]
	if h.at != nil {
		h.at.subscribers.Unsubscribe(name, l)
	}
	if h.users[l]--; h.users[l] == 0 {
		delete(h.users, l)
	}
	if len(h.users) == 0 {
		delete(f.heard, name)
	}
}

// subscribers are where name is subscribed to.
func (f *sharded) subscribers(name string) node.Subscribers {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.heard[name]; h != nil && h.at != nil {
		return h.at.subscribers
	}
	return nil
}

// ownerSeen is who has a name's slot in the topology that channels were last brought in line with. mu is held.
func (f *sharded) ownerSeen(name string) *cluster.Node {
	s := f.seen
	if s == nil {
		s = f.c.Snapshot()
	}
	return s.Owner(cluster.Slot([]byte(name)))
}

// rehome has every channel heard at the node that has its slot now. mu is held.
func (f *sharded) rehome(now *cluster.Snapshot) {
	for name, h := range f.heard {
		at := f.shardOf(now.Owner(cluster.Slot([]byte(name))))
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
