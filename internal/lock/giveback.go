package lock

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// undo gives back a grant that does not count and that nobody was told of. When that takes too long it goes on alone.
func (m *Manager) undo(ctx context.Context, a *acquire, ans lockstore.Acquired) error {
	rel := m.newRelease(a.h, a.c, false)
	if a.Named {
		rel.Attempt = ans.Attempt
	}
	if ans.Raised == 0 && rel.Attempt == "" {
		return nil
	}
	rel.Alone = a.Named && !m.store.Votes()
	rel.Count = ans.Count
	if a.Registration != "" {
		rel.Registration = a.Registration
	}
	rel.until = until(ans)
	work := func() settled {
		code, left, err := rel.complete()
		if err == nil {
			m.released(a.h, a.c, code, left)
			m.done.remove(a.h.id)
		}
		return settled{err: err}
	}
	undone, ok := patiently(ctx, m, work, func(settled) { m.holds.leave(a.h) })
	if !ok {
		a.handedOn = true
		return &Error{Code: "ERR", Text: "the lock was granted too late and could not be given back yet"}
	}
	return undone.err
}

// releaseAtOnce is how many locks of one client that has gone are released side by side.
const releaseAtOnce = 32

// releaseLater gives back holds of a connection that has gone.
func (m *Manager) releaseLater(holds []*hold, grace time.Duration, release func(*hold)) {
	if len(holds) == 0 {
		return
	}
	m.background(func() {
		if grace > 0 {
			m.sleep(context.Background(), grace)
		}
		var group errgroup.Group
		group.SetLimit(releaseAtOnce)
		for _, h := range holds {
			group.Go(func() error { release(h); return nil })
		}
		_ = group.Wait() // giveBack reports by itself
	})
}

// enterAndGiveBack is giveBack for a hold that others may be working on.
func (m *Manager) enterAndGiveBack(was *hold) {
	if h, err := m.holds.enter(context.Background(), was.id, was.explicit); err == nil {
		m.giveBack(h)
	}
}

// giveBack releases all of one owner's holds, unless an effect of the owner may still come to pass. The hold is busy, and left.
func (m *Manager) giveBack(h *hold) {
	defer m.holds.leave(h)
	rel := m.newRelease(h, nil, true)
	m.holds.mu.Lock()
	h.watched = false
	doubt := h.doubt
	if doubt {
		m.holds.endUnreleased(h)
	}
	m.holds.mu.Unlock()
	if rel.Count == 0 || doubt {
		return
	}
	code, left, err := rel.complete()
	if err != nil {
		m.log.Warn("cannot release a lock whose client has gone, it runs out", "key", h.id.Key, "owner", h.id.Owner, "error", err)
	} else {
		m.released(h, nil, code, left)
	}
	m.holds.mu.Lock()
	m.holds.endUnreleased(h)
	m.holds.mu.Unlock()
}

// A lock that was told lost stays lost, also when Redis turns out to have it for longer, by an answer that came too late: it is
// given back then, so that nobody waits for a lease that nobody uses.

// surrenderLater gives back holds that were told lost. Their holders were told by when they end, so none is given back before.
func (m *Manager) surrenderLater(holds ...*hold) {
	var end time.Duration
	m.holds.mu.Lock()
	for _, h := range holds {
		end = max(end, time.Until(h.deadline))
	}
	m.holds.mu.Unlock()
	m.releaseLater(holds, end, m.enterAndSurrender)
}

// enterAndSurrender gives back one hold, unless its owner has taken it again.
func (m *Manager) enterAndSurrender(was *hold) {
	h, err := m.holds.enter(context.Background(), was.id, was.explicit)
	if err != nil {
		return
	}
	defer m.holds.leave(h)
	m.holds.mu.Lock()
	again := h.count > 0
	// A named owner may be back through another proxy: only what this one renewed is given back.
	registration, until := was.registration, time.Now().Add(was.lease)
	m.holds.mu.Unlock()
	if again {
		return
	}
	rel := m.newRelease(h, nil, true)
	rel.Count, rel.OnlyOurs, rel.Registration, rel.until = 0, h.explicit, registration, until
	if _, _, err := rel.complete(); err != nil {
		m.log.Warn("cannot give back a lock that was told lost, it runs out", "key", h.id.Key, "owner", h.id.Owner, "error", err)
	}
}
