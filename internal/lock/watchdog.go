package lock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// round is the shortest time between two looks at the schedule: what comes due meanwhile goes into one script.
const round = 50 * time.Millisecond

// watchdog renews holds, and asks Redis about those that may have gone.
type watchdog struct {
	*life
	opts      Options
	log       *slog.Logger
	store     lockstore.Store
	holds     *holds
	giveBacks *giveBacks // of what turns out to be held longer than anybody wants it
	renewals  atomic.Int64
	failures  atomic.Int64

	mu    sync.Mutex // guards the lanes and batches; before holds.mu
	lanes map[laneKey]*lane
}

func newWatchdog(l *life, o Options, hs *holds, g *giveBacks) *watchdog {
	return &watchdog{life: l, opts: o, log: o.Logger, holds: hs, giveBacks: g, lanes: map[laneKey]*lane{}}
}

// watch renews the watched holds at a third of their lease, and checks those that are suspected, until ctx ends. It
// never waits for Redis: batches that find no place in their lane start when one is free.
func (wd *watchdog) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wd.holds.sweep(time.Now())
		timer.Reset(min(wd.startDue(time.Now()), time.Minute))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-wd.holds.schedule.Wake:
		}
	}
}

// startDue starts the renewals that are due, as far as there is room, and says when to come again.
func (wd *watchdog) startDue(now time.Time) (next time.Duration) {
	wd.mu.Lock()
	defer wd.mu.Unlock()
	wd.dispatchDue(now)
	rest := wd.startAll()
	wd.holds.mu.Lock()
	defer wd.holds.mu.Unlock()
	return min(rest, wd.holds.schedule.Sleep(min(round, wd.opts.Watchdog/50)))
}

// dispatchDue decides what happens to the holds whose time in the schedule has come. mu is held.
func (wd *watchdog) dispatchDue(now time.Time) {
	hs := wd.holds
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for h, due := hs.schedule.Due(now); due; h, due = hs.schedule.Due(now) {
		hs.schedule.Drop(h)
		wd.dispatch(h, now)
	}
}

// dispatch is dispatchDue for one hold. mu and holds.mu are held.
func (wd *watchdog) dispatch(h *hold, now time.Time) {
	switch {
	case h.count == 0:
		wd.holds.forget(h) // it was only kept until a renewal without an answer could no longer be done
	case h.watched && h.abandoned(now):
		wd.holds.runOut(h)
	case h.watched && wd.opts.MaxHold > 0 && now.Sub(h.grantedAt) >= wd.opts.MaxHold:
		wd.holds.lose(h, reasonMaxHold)
	case !h.watched && !h.named && !now.Before(h.deadline):
		// Its end needs no look: watchDeadlines tells it.
	default:
		wd.enqueue(h)
	}
}

// renewBatch extends the holds of a batch, or looks at them, and notes the result for each. The holds are busy until then.
func (wd *watchdog) renewBatch(b *batch) outcomeOf {
	if b.allow == 0 {
		b.allow = lockstore.Allowed
	}
	ctx, span := telemetry.Span(context.Background(), "renew")
	defer span.End()
	sent := time.Now()
	telemetry.RenewalLate(ctx, max(0, sent.Sub(b.planned)))
	out, err := wd.store.Renew(ctx, wd.renewal(b))
	took := time.Since(sent)
	if err != nil {
		wd.failures.Add(int64(len(b.holds)))
		telemetry.Renewal(ctx, "error", len(b.holds))
	} else {
		telemetry.Renewal(ctx, "ok", len(b.holds))
	}
	wd.giveBacks.surrenderLater(wd.noteRenewals(b, out, err, sent)...)
	return outcomeOf{err, took}
}

// renewal makes the step for a batch.
func (wd *watchdog) renewal(b *batch) lockstore.Renewal {
	r := lockstore.Renewal{DB: b.db, Kind: b.kind, Lease: b.lease, Replicas: b.replicas, Allow: b.allow, Holds: make([]lockstore.Renewed, len(b.holds))}
	wd.holds.mu.Lock()
	defer wd.holds.mu.Unlock()
	if h := b.restored; h != nil {
		b.lease = max(0, time.Until(h.certainUntil()).Truncate(time.Millisecond))
		r.Lease = b.lease
	}
	for i, h := range b.holds {
		r.Holds[i] = lockstore.Renewed{ID: h.id, Named: h.named, Registration: b.registrations[i], Attempt: h.attempt, Lease: h.lease, Taken: h.taken}
	}
	return r
}

// noteRenewals notes for each hold of a batch the result of its renewal, and frees the hold. back are those that were
// reported lost before the answer came: Redis has them for another lease, which nobody wants.
func (wd *watchdog) noteRenewals(b *batch, out []int64, err error, sent time.Time) (back []*hold) {
	wd.holds.mu.Lock()
	defer wd.holds.mu.Unlock()
	for i, h := range b.holds {
		said := int64(lockstore.Undecided)
		if i < len(out) {
			said = out[i]
		}
		ended := said == lockstore.NotThere || said == lockstore.TakenOver
		known := lockstore.Answered(said) && (err == nil || ended)                  // an error may be that too few replicas have the others
		if b.lease > 0 && (lockstore.Unknown(err) || said == lockstore.ReplyLost) { // a look lengthens nothing
			h.late = time.Now().Add(b.allow)
		}
		h.noteTaken(said)
		switch {
		case h.count == 0:
			if known && said == lockstore.StillThere && b.lease > 0 && !h.doubt {
				back = append(back, h)
			}
		case known:
			wd.renewed(h, said, sent, b)
		default:
			wd.renewalFailed(h)
		}
		wd.holds.free(h)
	}
	return back
}

// regain is the Regain of lockstore.Host. What has become of the hold since the renewal counts: it may have got an end.
func (wd *watchdog) regain(r lockstore.Renewed, lease time.Duration, take func(*lockstore.Acquire)) {
	h, err := wd.holds.enter(context.Background(), r.ID, r.Named)
	if err != nil {
		return
	}
	defer wd.holds.leave(h)
	wd.holds.mu.Lock()
	still := h.live() && !h.unwanted && h.attempt == r.Attempt
	if !h.watched {
		lease = time.Until(h.deadline)
	}
	a := &lockstore.Acquire{
		ID: r.ID, Named: r.Named, Count: h.count, Beside: wd.holds.byID[r.ID.As(r.ID.Kind.Spec().Other)].live(),
		Lease: lease.Milliseconds(), Watched: h.watched, Registration: h.registration,
	}
	wd.holds.mu.Unlock()
	if still && a.Lease > 0 {
		take(a)
	}
}

// noteTaken remembers since when another connection seems to have taken a hold over. holds.mu is held.
func (h *hold) noteTaken(said int64) {
	switch {
	case said != lockstore.Taking:
		h.taken = time.Time{}
	case h.taken.IsZero():
		h.taken = time.Now()
	}
}

// renewed notes one element of the renewal script's answer. holds.mu is held.
func (wd *watchdog) renewed(h *hold, code int64, sent time.Time, b *batch) {
	switch code {
	case lockstore.StillThere:
		if h.suspected.Before(sent) {
			h.suspect = ""
		}
		if b.lease > 0 {
			h.deadline = lockstore.Later(h.deadline, sent.Add(b.lease-wd.store.Rules().Drift(b.lease))) // Redis keeps the longer one too
		}
		if b.lease > 0 && (h.watched || b.replicas > 0) { // not when a look has restored what it had
			wd.renewals.Add(1)
			h.renewals++
			h.renewedAt = sent
		}
		if h.suspect != "" {
			wd.holds.plan(h, time.Now()) // suspected since this was sent
		} else if h.watched {
			wd.holds.planNext(h, sent)
		} else {
			wd.stillThere(h)
		}
	case lockstore.TakenOver: // it is watched, or ends, there
		wd.holds.noteUnwanted(h)
		wd.holds.end(h)
	default:
		wd.holds.lose(h, h.whyGone())
	}
}

// whyGone is the reason why Redis does not have a hold. holds.mu is held.
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

// endUnreleased ends a live hold that is left to run out in Redis. holds.mu is held.
func (hs *holds) endUnreleased(h *hold) {
	if h.count > 0 {
		hs.vacate(h, h.deadline)
		hs.end(h)
	}
}

// vacate makes the store wake those that wait for a lock whose hold ends by itself, from at on: see lockstore.Waits. holds.mu is held.
func (hs *holds) vacate(h *hold, at time.Time) {
	hs.store.Vacate(h.id, at, lockstore.Later(at, h.deadline).Add(expirySlack))
}

// stillThere goes on with an unwatched hold that Redis still has: until its deadline, and past it if another proxy
// lengthens the lock of a named owner, which is then no longer ours to follow. holds.mu is held.
func (wd *watchdog) stillThere(h *hold) {
	now, last := time.Now(), h.deadline.Add(expirySlack)
	switch {
	case now.Before(h.deadline):
		wd.holds.plan(h, wd.holds.nextLook(h, now))
	case now.Before(last):
		wd.holds.vacate(h, now)
		wd.holds.plan(h, last)
	default:
		wd.holds.end(h)
	}
}

// renewalFailed plans the next try sooner the nearer the deadline is. holds.mu is held.
func (wd *watchdog) renewalFailed(h *hold) {
	now, pause := time.Now(), expirySlack
	if at, ok := h.lossAt(); ok {
		pause = max(min(h.lease/12, at.Sub(now)/4, time.Second), 10*time.Millisecond)
		if !wd.restores(h) {
			pause = max(pause, h.lease/100)
		}
	}
	wd.holds.plan(h, now.Add(pause))
}

// takenLook is how long lookAgain waits before it looks again.
const takenLook = 50 * time.Millisecond

// lookAgain has Redis asked about a hold that is thought to be alive, as the watchdog would. It waits for others at work on the hold for so long.
// On a quorum it goes on until it is known whether another connection has taken the hold over.
func (wd *watchdog) lookAgain(ctx context.Context, id lockstore.ID, named bool, long time.Duration) error {
	for {
		if err := wd.extendLease(ctx, id, named, long, 0); err != nil || !wd.holds.beingTaken(id) {
			return err
		}
		if !wd.sleep(ctx, takenLook) {
			return ctx.Err()
		}
	}
}

// extendLease is lookAgain, and what is left of the hold's lease becomes atLeast that much, watched or not.
func (wd *watchdog) extendLease(ctx context.Context, id lockstore.ID, named bool, long, atLeast time.Duration) error {
	h, err := wd.holds.enterSoon(ctx, id, named, long)
	if err != nil {
		return err
	}
	wd.holds.mu.Lock()
	live := h.count > 0
	b := &batch{batchKey: batchKey{db: id.DB, kind: id.Kind}, holds: []*hold{h}, planned: time.Now(), registrations: []lockstore.Registration{""}}
	if h.watched {
		b.lease, b.replicas = h.lease, h.replicas
	}
	if h.watched || atLeast == 0 { // else the registration would end with this lease
		b.registrations[0] = h.registration
	}
	if atLeast > 0 {
		b.lease, b.replicas = max(b.lease, atLeast), h.replicas
	}
	wd.holds.mu.Unlock()
	if live {
		wd.renewBatch(b) // leaves it
	} else {
		wd.holds.leave(h)
	}
	return nil
}
