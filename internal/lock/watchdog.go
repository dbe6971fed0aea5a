package lock

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/telemetry"
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
			if m.fleet != nil {
				m.background(func() { m.fleet.renewBatch(b) })
				continue
			}
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
	batchKey
	holds   []*hold
	planned []time.Time // when each should have been sent
	marks   []string    // of each that is watched for an explicit owner the registration, else ""
}

type batchKey struct {
	db       int
	kind     Kind
	lease    time.Duration // 0: only look
	replicas int64
	slot     int // on a cluster
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
			b = &batch{batchKey: key}
			open[key], order = b, append(order, key)
		}
		b.planned = append(b.planned, h.next)
		mark := ""
		if h.explicit && h.watched {
			mark = h.registration
		}
		b.marks = append(b.marks, mark)
		// Redis may not answer: the deadline is watched all the same.
		m.plan(h, later(h.lastCall(), now.Add(retryBusy)))
		if b.holds = append(b.holds, h); len(b.holds) == renewChunk {
			full = append(full, b)
			open[key] = &batch{batchKey: key}
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

// lastCall is when a watched hold that could not be renewed is given up: so much before its deadline that its holder is told
// before Redis lets somebody else in. The schedule is looked at every round, and a busy machine is late by more. mu is held.
func (h *hold) lastCall() time.Time {
	if !h.watched {
		return h.deadline
	}
	return h.deadline.Add(-min(h.lease/30, 200*time.Millisecond))
}

// dispatch decides what becomes of a hold on top of the schedule: ok means it goes into a renewal (it is marked busy then),
// otherwise it was put elsewhere. mu is held.
func (m *Manager) dispatch(h *hold, now time.Time) (key batchKey, ok bool) {
	over := !now.Before(h.lastCall()) && !m.outlived(h, now)
	switch {
	case h.count == 0:
		// It was only kept until a renewal without an answer could no longer be done.
		m.unplan(h)
		m.forget(h)
		return key, false
	case h.watched && over:
		m.lose(h, reasonUnrenewed)
		return key, false
	case h.watched && h.abandoned(now):
		m.runOut(h)
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
	key = batchKey{db: h.id.db, kind: h.id.kind, slot: m.slotOf(h.id.key)}
	if h.watched {
		key.lease, key.replicas = h.lease, h.replicas
	}
	return key, true
}

func (b *batch) call(notAfter string) call {
	letters := make([]byte, 0, len(b.holds))
	keys := make([]string, 0, len(b.holds))
	args := make([]string, 3, 3+len(b.holds))
	for i, h := range b.holds {
		keys, args = append(keys, h.id.keys()...), append(args, h.id.field())
		if b.marks[i] != "" {
			letters = append(letters, 'W')
			keys, args = append(keys, h.id.watchKey()), append(args, b.marks[i])
		} else {
			letters = append(letters, '-')
		}
	}
	args[0], args[1], args[2] = strconv.FormatInt(b.lease.Milliseconds(), 10), notAfter, string(letters)
	return call{b.db, b.kind.nature().renew, keys, args}
}

// renewBatch extends the holds of a batch, or looks at them, and notes for each what came of it.
func (m *Manager) renewBatch(b *batch) {
	ctx, span := telemetry.Span(context.Background(), "renew")
	defer span.End()
	sent := time.Now()
	telemetry.RenewalLate(ctx, max(0, sent.Sub(b.planned[0])))
	out, err := m.sendRenewal(ctx, b)
	if err == nil && out[0] == codeLate {
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
		known := i < len(out) && out[i] != undecided && (err == nil || out[i] == 0 || out[i] == 2) // also when too few replicas have the rest
		if isUnknown(err) {
			h.late = time.Now().Add(notAfter)
		}
		switch {
		case h.count == 0:
		case known:
			m.renewed(h, out[i], sent, b.lease)
		default:
			m.renewalFailed(h)
		}
		<-h.busy
		m.unuse(h)
	}
}

func (m *Manager) sendRenewal(ctx context.Context, b *batch) ([]int64, error) {
	if m.quorum != nil {
		return m.quorum.renew(b)
	}
	text, _, err := m.notAfter()
	if err != nil {
		return nil, err
	}
	if b.replicas == 0 && m.fleet != nil {
		return m.fleet.renew(ctx, b)
	}
	if b.replicas == 0 {
		return ints(m.eval(ctx, b.call(text)))
	}
	var reply rueidis.RedisMessage
	reply, acked, err := m.evalReplicated(ctx, b.call(text), b.replicas, time.Second)
	out, err := ints(reply, err)
	if err == nil && out[0] != codeLate && acked < b.replicas {
		// What replicas do not have is not done; holds that are gone are gone all the same.
		err = &Error{"NOREPLICAS", "the renewal reached too few replicas"}
	}
	return out, err
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
			h.renewedAt, h.deadline = sent, later(h.deadline, sent.Add(lease-m.drift(lease))) // Redis keeps the longer one too
		}
		if h.suspect != "" {
			m.plan(h, time.Now()) // suspected since this was sent
		} else if h.watched {
			m.planNext(h, sent)
		} else {
			m.stillThere(h)
		}
	case 2:
		// Another connection has taken the owner's lock over: it is watched, or ends, there.
		m.end(h)
	default:
		m.lose(h, h.whyGone())
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

// stillThere goes on with an unwatched hold that Redis still has: until its deadline, and past it if another proxy
// lengthens the lock of an explicit owner, which is then no longer ours to follow.
func (m *Manager) stillThere(h *hold) {
	now, last := time.Now(), h.deadline.Add(expirySlack)
	switch {
	case now.Before(h.deadline):
		m.plan(h, h.deadline)
	case now.Before(last):
		m.vacate(h, now)
		m.plan(h, last)
	default:
		m.end(h)
	}
}

// renewalFailed plans the next try sooner the nearer the deadline is. mu is held.
func (m *Manager) renewalFailed(h *hold) {
	now := time.Now()
	pause := max(min(h.lease/12, h.lastCall().Sub(now)/4, time.Second), 10*time.Millisecond)
	switch {
	case now.Before(h.lastCall()):
	case h.watched:
		pause = 0 // it is lost
	default:
		pause = expirySlack // only a look is left
	}
	m.plan(h, now.Add(pause))
}
