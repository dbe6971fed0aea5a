package lock

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
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

// ways says for each hub that a node needs whether it is for sharded channels.
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

func (m *Manager) hear(name string, l *line) {
	if m.fleet == nil {
		m.hub.hear(name, l)
		return
	}
	m.fleet.hear(name, l)
}

func (m *Manager) unhear(name string, l *line) {
	if m.fleet == nil {
		m.hub.unhear(name, l)
		return
	}
	m.fleet.unhear(name, l)
}

func (m *Manager) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	if m.fleet == nil {
		return m.hub.ready(ctx, name, over)
	}
	return m.fleet.ready(ctx, name, over)
}

// ready is hub.ready of all hubs of the node that has the slot, whichever that is meanwhile.
func (f *fleet) ready(ctx context.Context, name string, over <-chan time.Time) (waited bool, err error) {
	timer := time.NewTimer(subscribeWait)
	defer timer.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		at := f.ears(name)
		changed, on := at.state(name)
		if at == nil || on == len(at) {
			return waited || at == nil, nil // it polls while nobody has the slot
		}
		waited = true
		select {
		case <-changed:
		case <-tick.C:
		case <-timer.C:
			return true, nil
		case <-over:
			return true, ErrNotAcquired
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

func (f *fleet) hear(name string, l *line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.heard[name]
	if h == nil {
		h = &hearing{lines: map[*line]int{}, at: f.memberOf(f.ownerSeen(name))}
		f.heard[name] = h
	}
	h.lines[l]++
	if h.at != nil {
		h.at.ears.hear(name, l)
	}
}

func (f *fleet) unhear(name string, l *line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.heard[name]
	if h.at != nil {
		h.at.ears.unhear(name, l)
	}
	if h.lines[l]--; h.lines[l] == 0 {
		delete(h.lines, l)
	}
	if len(h.lines) == 0 {
		delete(f.heard, name)
	}
}

// ears are the hubs where name is heard.
func (f *fleet) ears(name string) ears {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.heard[name]; h != nil && h.at != nil {
		return h.at.ears
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
					h.at.ears.unhear(name, l)
				}
				if at != nil {
					at.ears.hearAgain(name, l)
				}
			}
		}
		h.at = at
	}
}

// hearAgain is hear, after messages may have been missed: they count as heard when the subscription is there.
func (e ears) hearAgain(name string, l *line) {
	for _, h := range e {
		h.hear(name, l)
		h.missed(name)
	}
}
