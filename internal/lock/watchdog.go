package lock

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	// renewChunk is the most holds one renewal script extends: about 0.6 ms of Redis' time.
	renewChunk = 500
	// renewAtOnce is the most renewal scripts in flight.
	renewAtOnce = 16
	// round is the shortest time between two looks at the schedule: what comes due meanwhile goes into one script.
	round = 20 * time.Millisecond
	// retryBusy is when a hold is looked at again that a verb was just working on.
	retryBusy = 5 * time.Millisecond
)

// watch renews the watched holds at a third of their lease, earliest first, and notices those that are over, until ctx ends.
func (m *Manager) watch(ctx context.Context) {
	slots := make(chan struct{}, renewAtOnce)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		batches, next := m.pickDue(time.Now())
		for _, b := range batches {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			m.background(func() {
				m.renewBatch(b)
				<-slots
			})
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.due:
		}
	}
}

// batch is what goes into one renewal script; all its holds are busy.
type batch struct {
	db       int
	lease    time.Duration // 0: only look
	replicas int64
	holds    []*hold
	planned  []time.Time // when each should have been sent
}

type batchKey struct {
	db       int
	lease    time.Duration
	replicas int64
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pickDue gathers the holds that are due and says when to come again.
func (m *Manager) pickDue(now time.Time) (full []*batch, next time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := map[batchKey]*batch{}
	var order []batchKey
	for len(m.schedule) > 0 && !m.schedule[0].next.After(now) {
		h := m.schedule[0]
		key, ok := m.dispatch(h, now)
		if !ok {
			continue
		}
		b := open[key]
		if b == nil {
			b = &batch{db: key.db, lease: key.lease, replicas: key.replicas}
			open[key], order = b, append(order, key)
		}
		b.planned = append(b.planned, h.next)
		// Redis may not answer: the deadline is watched all the same.
		m.plan(h, later(h.deadline, now.Add(retryBusy)))
		if b.holds = append(b.holds, h); len(b.holds) == renewChunk {
			full = append(full, b)
			open[key] = &batch{db: key.db, lease: key.lease, replicas: key.replicas}
		}
	}
	for _, key := range order {
		if b := open[key]; len(b.holds) > 0 {
			full = append(full, b)
		}
	}
	if len(m.schedule) == 0 {
		return full, time.Hour
	}
	return full, max(time.Until(m.schedule[0].next), min(round, m.opts.Watchdog/50))
}

// dispatch decides what becomes of a hold on top of the schedule: ok means it goes into a renewal (it is marked busy then),
// otherwise it was put elsewhere. mu is held.
func (m *Manager) dispatch(h *hold, now time.Time) (key batchKey, ok bool) {
	over := !now.Before(h.deadline)
	switch {
	case h.count == 0:
		// Only kept until a renewal without an answer can no longer be done.
		if h.late.After(now) {
			m.plan(h, h.late)
			return key, false
		}
		m.unplan(h)
		m.forget(h)
		return key, false
	case h.watched && over:
		m.lose(h, reasonUnrenewed)
		return key, false
	case h.watched && m.opts.MaxHold > 0 && now.Sub(h.grantedAt) > m.opts.MaxHold:
		m.lose(h, reasonMaxHold)
		return key, false
	case !h.watched && over && !h.explicit:
		m.lose(h, reasonExpired)
		return key, false
	}
	select {
	case h.busy <- struct{}{}:
	default:
		m.plan(h, now.Add(retryBusy))
		return key, false
	}
	h.users++
	key = batchKey{db: h.id.db}
	if h.watched {
		key.lease, key.replicas = h.lease, h.replicas
	}
	return key, true
}

func (b *batch) call(notAfter string) call {
	letters := make([]byte, 0, len(b.holds))
	keys := make([]string, 0, len(b.holds))
	args := make([]string, 3, 3+len(b.holds))
	for _, h := range b.holds {
		keys, args = append(keys, h.id.key), append(args, h.id.owner)
		if h.explicit && h.watched {
			letters = append(letters, 'W')
			keys, args = append(keys, watchKey(h.id.key, h.id.owner)), append(args, h.registration)
		} else {
			letters = append(letters, '-')
		}
	}
	args[0], args[1], args[2] = strconv.FormatInt(b.lease.Milliseconds(), 10), notAfter, string(letters)
	return call{b.db, scripts.Renew, keys, args}
}

// renewBatch extends the holds of a batch, or looks at them, and notes for each what came of it.
func (m *Manager) renewBatch(b *batch) {
	ctx, span := telemetry.Span(context.Background(), "renew")
	defer span.End()
	sent := time.Now()
	telemetry.RenewalLate(ctx, max(0, sent.Sub(b.planned[0])))
	out, err := m.sendRenewal(ctx, b)
	if err == nil && len(out) != len(b.holds) {
		// Too late for Redis' clock: nothing was done, and the clock was read again.
		err = errLate
		if e := m.sample(); e != nil {
			err = e
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.stats.renewalsFailed.Add(int64(len(b.holds)))
		telemetry.Renewal(ctx, "error", len(b.holds))
		m.log.Warn("renewal failed, trying again", "locks", len(b.holds), "error", err)
	} else {
		telemetry.Renewal(ctx, "ok", len(b.holds))
	}
	for i, h := range b.holds {
		switch {
		case h.count == 0:
		case err != nil:
			m.renewalFailed(h, isUnknown(err))
		default:
			m.renewed(h, out[i], sent)
		}
		<-h.busy
		m.unuse(h)
	}
}

func (m *Manager) sendRenewal(ctx context.Context, b *batch) ([]int64, error) {
	text, _, err := m.notAfter()
	if err != nil {
		return nil, err
	}
	if b.replicas == 0 {
		return ints(m.eval(ctx, b.call(text)))
	}
	var reply rueidis.RedisMessage
	reply, acked, err := m.evalReplicated(ctx, b.call(text), b.replicas, time.Second)
	out, err := ints(reply, err)
	if err == nil && acked < b.replicas {
		// What replicas do not have is not done; holds that are gone are gone all the same.
		err = &Error{"NOREPLICAS", "the renewal reached too few replicas"}
	}
	return out, err
}

// renewed notes one element of the renewal script's answer. mu is held.
func (m *Manager) renewed(h *hold, code int64, sent time.Time) {
	switch code {
	case 1:
		h.suspect = ""
		if !h.watched {
			m.stillThere(h)
			return
		}
		m.stats.renewed.Add(1)
		h.renewedAt, h.deadline = sent, sent.Add(h.lease)
		m.planNext(h, sent)
	case 2:
		// Another connection has taken the owner's lock over: it is watched, or ends, there.
		m.end(h)
	default:
		reason := h.suspect
		switch {
		case reason == "" && h.watched:
			reason = reasonGone
		case reason == "" || !h.watched && !time.Now().Before(h.deadline):
			reason = reasonExpired
		}
		m.lose(h, reason)
	}
}

// stillThere goes on with an unwatched hold that Redis still has: until its deadline, and past it if another proxy
// lengthens the lock of an explicit owner, which is then no longer ours to follow.
func (m *Manager) stillThere(h *hold) {
	if time.Now().Before(h.deadline) {
		m.plan(h, h.deadline)
		return
	}
	m.end(h)
}

// renewalFailed plans the next try sooner the nearer the deadline is. mu is held.
func (m *Manager) renewalFailed(h *hold, unknown bool) {
	now := time.Now()
	if unknown {
		h.late = now.Add(notAfter)
	}
	pause := min(h.lease/12, time.Until(h.deadline)/4, time.Second)
	m.plan(h, now.Add(max(pause, 10*time.Millisecond)))
}
