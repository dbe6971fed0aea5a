package lock

import (
	"context"
	"time"
)

// A lock that was told lost stays lost, also when Redis turns out to have it for longer, by an answer that came too late: it is
// given back then, so that nobody waits for a lease that nobody uses.

// surrenderLater gives back holds that were told lost. Their holders were told by when they end, so none is given back before.
func (m *Manager) surrenderLater(holds ...*hold) {
	var end time.Duration
	m.mu.Lock()
	for _, h := range holds {
		end = max(end, time.Until(h.deadline))
	}
	m.mu.Unlock()
	m.releaseLater(holds, end, m.enterAndSurrender)
}

// enterAndSurrender gives back one hold, unless its owner has taken it again.
func (m *Manager) enterAndSurrender(was *hold) {
	h, err := m.enter(context.Background(), was.id, was.explicit)
	if err != nil {
		return
	}
	defer m.leave(h)
	m.mu.Lock()
	again := h.count > 0
	// A named owner may be back through another proxy: only what this one renewed is given back.
	rel := &release{m: m, h: h, all: true, onlyOurs: h.explicit, registration: was.registration, until: time.Now().Add(was.lease)}
	m.mu.Unlock()
	if again {
		return
	}
	if _, _, err := rel.complete(); err != nil {
		m.log.Warn("cannot give back a lock that was told lost, it runs out", "key", h.id.key, "owner", h.id.owner, "error", err)
	}
}
