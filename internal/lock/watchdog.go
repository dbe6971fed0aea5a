package lock

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// round is the shortest time between two looks at the schedule: what comes due meanwhile goes into one script.
const round = 20 * time.Millisecond

// watch renews the watched holds at a third of their lease, and has those looked at that are suspected, until ctx ends.
// It never waits for Redis: batches that find no place in their lane start when one is free.
func (m *Manager) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		m.named.sweep(time.Now())
		m.done.sweep(time.Now())
		timer.Reset(min(m.startDue(time.Now()), time.Minute))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.holds.schedule.Wake:
		}
	}
}

// startDue starts the renewals that are due, as far as there is room, and says when to come again.
func (m *Manager) startDue(now time.Time) (next time.Duration) {
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	for h, due := m.holds.schedule.Due(now); due; h, due = m.holds.schedule.Due(now) {
		m.holds.schedule.Drop(h)
		m.dispatch(h, now)
	}
	rest := m.startAll()
	return min(rest, m.holds.schedule.Sleep(min(round, m.opts.Watchdog/50)))
}

// dispatch decides what becomes of a hold whose time in the schedule has come. mu is held.
func (m *Manager) dispatch(h *hold, now time.Time) {
	switch {
	case h.count == 0:
		m.holds.forget(h) // it was only kept until a renewal without an answer could no longer be done
	case h.watched && h.abandoned(now):
		m.holds.runOut(h)
	case h.watched && m.opts.MaxHold > 0 && now.Sub(h.grantedAt) > m.opts.MaxHold:
		m.holds.lose(h, reasonMaxHold)
	case !h.watched && !h.explicit && !now.Before(h.deadline):
		// Its end needs no look: watchDeadlines tells it.
	default:
		m.enqueue(h)
	}
}

// renewBatch extends the holds of a batch, or looks at them, and notes for each what came of it. The holds are busy, and left.
func (m *Manager) renewBatch(b *batch) outcomeOf {
	if b.allow == 0 {
		b.allow = lockstore.Allowed
	}
	ctx, span := telemetry.Span(context.Background(), "renew")
	defer span.End()
	sent := time.Now()
	telemetry.RenewalLate(ctx, max(0, sent.Sub(b.planned)))
	out, err := m.store.Renew(ctx, m.renewal(b))
	took := time.Since(sent)
	if err != nil {
		m.stats.renewalsFailed.Add(int64(len(b.holds)))
		telemetry.Renewal(ctx, "error", len(b.holds))
	} else {
		telemetry.Renewal(ctx, "ok", len(b.holds))
	}
	m.surrenderLater(m.noteRenewals(b, out, err, sent)...)
	return outcomeOf{err, took}
}

// renewal is the step that a batch stands for.
func (m *Manager) renewal(b *batch) lockstore.Renewal {
	r := lockstore.Renewal{DB: b.db, Kind: b.kind, Lease: b.lease, Replicas: b.replicas, Allow: b.allow, Holds: make([]lockstore.Renewed, len(b.holds))}
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	for i, h := range b.holds {
		r.Holds[i] = lockstore.Renewed{ID: h.id, Named: h.explicit, Mark: b.marks[i], Attempt: h.attempt, Lease: h.lease, Taken: h.taken}
	}
	return r
}

// noteRenewals notes for each hold of a batch what came of its renewal, and leaves it. back are those that were told lost before
// the answer came: Redis has them for another lease, which nobody wants.
func (m *Manager) noteRenewals(b *batch, out []int64, err error, sent time.Time) (back []*hold) {
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	for i, h := range b.holds {
		said := int64(lockstore.Undecided)
		if i < len(out) {
			said = out[i]
		}
		known := lockstore.Answered(said) && (err == nil || said == 0 || said == 2) // also when too few replicas have the rest
		if lockstore.Unknown(err) || said == lockstore.ReplyLost {
			h.late = time.Now().Add(b.allow)
		}
		h.noteTaken(said)
		switch {
		case h.count == 0:
			if known && said == 1 && b.lease > 0 && !h.doubt {
				back = append(back, h)
			}
		case known:
			m.renewed(h, said, sent, b.lease)
		default:
			m.renewalFailed(h)
		}
		m.holds.free(h)
	}
	return back
}

// regain implements lockstore.Host.
func (m *Manager) regain(r lockstore.Renewed, lease time.Duration, take func(*lockstore.Acquire)) {
	h, err := m.holds.enter(context.Background(), r.ID, r.Named)
	if err != nil {
		return
	}
	defer m.holds.leave(h)
	m.holds.mu.Lock()
	still := h.live() && !h.unwanted && h.attempt == r.Attempt
	beside := m.holds.byID[r.ID.As(r.ID.Kind.Spec().Other)].live()
	count := h.count
	m.holds.mu.Unlock()
	if still {
		take(&lockstore.Acquire{ID: r.ID, Named: r.Named, Count: count, Beside: beside, Lease: lease.Milliseconds(), Watched: true, Registration: r.Mark})
	}
}

// noteTaken remembers since when another connection seems to have taken a hold over. mu is held.
func (h *hold) noteTaken(said int64) {
	switch {
	case said != lockstore.Taking:
		h.taken = time.Time{}
	case h.taken.IsZero():
		h.taken = time.Now()
	}
}

// renewed notes one element of the renewal script's answer. mu is held.
func (m *Manager) renewed(h *hold, code int64, sent time.Time, lease time.Duration) {
	switch code {
	case 1:
		if h.suspected.Before(sent) {
			h.suspect = ""
		}
		if lease > 0 {
			m.stats.renewed.Add(1)
			h.renewedAt, h.deadline = sent, lockstore.Later(h.deadline, sent.Add(lease-m.store.Drift(lease))) // Redis keeps the longer one too
		}
		if h.suspect != "" {
			m.holds.plan(h, time.Now()) // suspected since this was sent
		} else if h.watched {
			m.holds.planNext(h, sent)
		} else {
			m.stillThere(h)
		}
	case 2:
		// Another connection has taken the owner's lock over: it is watched, or ends, there.
		m.holds.end(h)
	default:
		m.holds.lose(h, h.whyGone())
	}
}

// whyGone is the reason why Redis does not have a hold. mu is held.
func (h *hold) whyGone() string {
	switch {
	case !h.watched && !time.Now().Before(h.deadline):
		return reasonExpired
	case h.suspect != "":
		return h.suspect
	default:
		return reasonGone
	}
}

// expirySlack is how much later than by our pessimistic deadline a lease may end in Redis.
const expirySlack = time.Second

// endUnreleased ends a live hold that is left to run out in Redis. mu is held.
func (hs *holds) endUnreleased(h *hold) {
	if h.count > 0 {
		hs.vacate(h, h.deadline)
		hs.end(h)
	}
}

// vacate has those told that wait for a lock whose hold ends by itself: now, or at its deadline if it may live until then. mu is held.
func (hs *holds) vacate(h *hold, at time.Time) {
	hs.store.Vacate(h.id, at, lockstore.Later(at, h.deadline).Add(expirySlack))
}

// stillThere goes on with an unwatched hold that Redis still has: until its deadline, and past it if another proxy
// lengthens the lock of an explicit owner, which is then no longer ours to follow.
func (m *Manager) stillThere(h *hold) {
	now, last := time.Now(), h.deadline.Add(expirySlack)
	switch {
	case now.Before(h.deadline):
		m.holds.plan(h, h.deadline)
	case now.Before(last):
		m.holds.vacate(h, now)
		m.holds.plan(h, last)
	default:
		m.holds.end(h)
	}
}

// renewalFailed plans the next try sooner the nearer the deadline is. mu is held.
func (m *Manager) renewalFailed(h *hold) {
	now, pause := time.Now(), expirySlack
	if at, ok := h.lossAt(); ok {
		pause = max(min(h.lease/12, at.Sub(now)/4, time.Second), h.lease/100, 10*time.Millisecond)
	}
	m.holds.plan(h, now.Add(pause))
}
