package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// PubSub says over which channels wake-ups go on a cluster.
type PubSub string

const (
	// PubSubBoth publishes, and listens, both ways: for whatever else works with the same locks.
	PubSubBoth PubSub = "both"
	// PubSubSharded uses SPUBLISH only, as Redisson of today by itself: the other nodes hear nothing of it.
	PubSubSharded PubSub = "sharded"
	// PubSubClassic uses PUBLISH only, which every node passes to all others: before Redis 7, for Redisson before 3.22, and
	// where shardedSubscriptionMode is OFF.
	PubSubClassic PubSub = "classic"
)

// verb is what the scripts are told to publish with.
func (p PubSub) verb() string {
	switch p {
	case PubSubSharded:
		return "SPUBLISH"
	case PubSubClassic:
		return "PUBLISH"
	}
	return "BOTH"
}

// publishedBy is the way whose verb that is.
func publishedBy(verb string) PubSub {
	for _, p := range []PubSub{PubSubSharded, PubSubClassic} {
		if p.verb() == verb {
			return p
		}
	}
	return PubSubBoth
}

// ways says for each subscriber that a node needs whether it is for sharded channels.
func (p PubSub) ways() []bool {
	switch p {
	case PubSubSharded:
		return []bool{true}
	case PubSubClassic:
		return []bool{false}
	}
	return []bool{true, false}
}

// hearing is one channel that somebody waits on, and where: at the node that has its slot.
type hearing struct {
	lines map[*line]int
	at    *member // nil: nobody has the slot
}

func (m *Manager) subscribe(name string, l *line) {
	if m.fleet == nil {
		m.subscribers.Subscribe(name, l)
		return
	}
	m.fleet.subscribe(name, l)
}

func (m *Manager) unsubscribe(name string, l *line) {
	if m.fleet == nil {
		m.subscribers.Unsubscribe(name, l)
		return
	}
	m.fleet.unsubscribe(name, l)
}

func (m *Manager) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	if m.fleet == nil {
		waited, err = m.subscribers.Ready(ctx, name, over)
	} else {
		waited, err = m.fleet.ready(ctx, name, over)
	}
	if errors.Is(err, node.ErrOver) {
		err = ErrNotAcquired
	}
	return waited, err
}

// ready is node.Subscribers.Ready of the node that has the slot, whichever that is meanwhile, and of all its subscribers.
func (f *fleet) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	unserved := false
	waited, err = node.Await(ctx, over, func() (<-chan struct{}, bool) {
		at := f.subscribers(name)
		changed, on := at.State(name)
		unserved = at == nil
		return changed, on == len(at)
	})
	return waited || unserved, err // it polls while nobody has the slot
}

func (f *fleet) subscribe(name string, l *line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.heard[name]
	if h == nil {
		h = &hearing{lines: map[*line]int{}, at: f.memberOf(f.ownerSeen(name))}
		f.heard[name] = h
	}
	h.lines[l]++
	if h.at != nil {
		h.at.subscribers.Subscribe(name, l)
	}
}

func (f *fleet) unsubscribe(name string, l *line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.heard[name]
	if h.at != nil {
		h.at.subscribers.Unsubscribe(name, l)
	}
	if h.lines[l]--; h.lines[l] == 0 {
		delete(h.lines, l)
	}
	if len(h.lines) == 0 {
		delete(f.heard, name)
	}
}

// subscribers are where name is subscribed to.
func (f *fleet) subscribers(name string) node.Subscribers {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.heard[name]; h != nil && h.at != nil {
		return h.at.subscribers
	}
	return nil
}

// ownerSeen is who has a name's slot in the topology that channels were last brought in line with. mu is held.
func (f *fleet) ownerSeen(name string) *cluster.Node {
	s := f.seen
	if s == nil {
		s = f.c.Snapshot()
	}
	return s.Owner(cluster.Slot([]byte(name)))
}

// rehome has every channel heard at the node that has its slot now. mu is held.
func (f *fleet) rehome(now *cluster.Snapshot) {
	for name, h := range f.heard {
		at := f.memberOf(now.Owner(cluster.Slot([]byte(name))))
		if at == h.at {
			continue
		}
		for l, times := range h.lines {
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
