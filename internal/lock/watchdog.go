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
	failures  atomic.Int64

	mu    sync.Mutex // guards the lanes and chunks; before holds.mu
	lanes map[laneKey]*lane
}

func newWatchdog(l *life, o Options, hs *holds, g *giveBacks) *watchdog {
	return &watchdog{life: l, opts: o, log: o.Logger, holds: hs, giveBacks: g, lanes: map[laneKey]*lane{}}
}

// watch renews the watched holds at a third of their lease, and checks those that are suspected, until ctx ends. It
// never waits for Redis: chunks that find no place in their lane start when one is free.
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
	wd.holds.dispatchDue(now, wd.enqueue)
	return min(wd.startAll(), wd.holds.untilDue(min(round, wd.opts.Watchdog/50)))
}

// untilDue is how long the watchdog may sleep, but not less than least.
func (hs *holds) untilDue(least time.Duration) time.Duration {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.schedule.Sleep(least)
}

// dispatchDue decides what happens to the holds whose time in the schedule has come: enqueue gets, under mu, those of which Redis is asked.
func (hs *holds) dispatchDue(now time.Time, enqueue func(*hold)) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for h, due := hs.schedule.Due(now); due; h, due = hs.schedule.Due(now) {
		hs.schedule.Drop(h)
		switch {
		case h.count == 0:
			hs.forget(h) // it was only kept until a renewal without an answer could no longer be done
		case h.watched && h.abandoned(now):
			hs.runOut(h)
		case h.watched && hs.opts.MaxHold > 0 && now.Sub(h.grantedAt) >= hs.opts.MaxHold:
			hs.lose(h, reasonMaxHold)
		case !h.watched && !h.named && !now.Before(h.deadline):
			// Its end needs no look: watchDeadlines tells it.
		default:
			enqueue(h)
		}
	}
}

// renewChunk extends the holds of a chunk, or looks at them, and notes the result for each. The holds are busy until then.
func (wd *watchdog) renewChunk(c *chunk) outcomeOf {
	if c.allow == 0 {
		c.allow = lockstore.Allowed
	}
	ctx, span := telemetry.Span(context.Background(), "renew")
	defer span.End()
	sent := time.Now()
	telemetry.RenewalLate(ctx, max(0, sent.Sub(c.planned)))
	out, err := wd.store.Renew(ctx, wd.holds.renewal(c))
	took := time.Since(sent)
	if err != nil {
		wd.failures.Add(int64(len(c.holds)))
		telemetry.Renewal(ctx, "error", len(c.holds))
	} else {
		telemetry.Renewal(ctx, "ok", len(c.holds))
	}
	wd.giveBacks.surrenderLater(wd.holds.noteRenewals(c, out, err, sent)...)
	return outcomeOf{err, took, c.restored != nil}
}

// renewal makes the step for a chunk.
func (hs *holds) renewal(c *chunk) lockstore.Renewal {
	r := lockstore.Renewal{DB: c.db, Kind: c.kind, Lease: c.lease, Replicas: c.replicas, Allow: c.allow, Holds: make([]lockstore.Renewed, len(c.holds))}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h := c.restored; h != nil {
		c.lease = max(0, time.Until(h.certainUntil()).Truncate(time.Millisecond))
		r.Lease = c.lease
	}
	for i, h := range c.holds {
		r.Holds[i] = lockstore.Renewed{ID: h.id, Named: h.named, Registration: c.registrations[i], Attempt: h.attempt, Lease: h.lease, Taken: h.taken}
	}
	return r
}

// noteRenewals notes for each hold of a chunk the result of its renewal, and frees the hold. back are those that were
// reported lost before the answer came: Redis has them for another lease, which nobody wants.
func (hs *holds) noteRenewals(c *chunk, out []int64, err error, sent time.Time) (back []*hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for i, h := range c.holds {
		said := int64(lockstore.Undecided)
		if i < len(out) {
			said = out[i]
		}
		ended := said == lockstore.NotThere || said == lockstore.TakenOver
		known := lockstore.Answered(said) && (err == nil || ended)                  // an error may be that too few replicas have the others
		if c.lease > 0 && (lockstore.Unknown(err) || said == lockstore.ReplyLost) { // a look lengthens nothing
			h.late = time.Now().Add(c.allow)
		}
		h.noteTaken(said)
		switch {
		case h.count == 0:
			if known && said == lockstore.StillThere && c.lease > 0 && !h.doubt {
				back = append(back, h)
			}
		case known:
			hs.renewed(h, said, sent, c)
		case err == nil && said == lockstore.Undecided && h.id.Kind == Read && hs.restores(h):
			hs.plan(h, hs.nextLook(h, time.Now())) // its holds are too many for a look: Redis would say so again
		default:
			hs.renewalFailed(h)
		}
		hs.free(h)
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
	s := wd.holds.snapshot(h)
	if !s.watched {
		lease = time.Until(s.deadline)
	}
	if s.live && !s.unwanted && s.attempt == r.Attempt && lease >= time.Millisecond {
		take(&lockstore.Acquire{
			ID: r.ID, Named: r.Named, Count: s.count, Beside: s.beside,
			Lease: lease.Milliseconds(), Watched: s.watched, Registration: s.registration,
		})
	}
}

// noteTaken remembers since when another connection seems to have taken a hold over. What is undecided does not refute that. holds.mu is held.
func (h *hold) noteTaken(said int64) {
	switch h.unsure = said == lockstore.Undecided; {
	case h.unsure:
	case said != lockstore.Taking:
		h.taken = time.Time{}
	case h.taken.IsZero():
		h.taken = time.Now()
	}
}

// renewed notes one element of the renewal script's answer. mu is held.
func (hs *holds) renewed(h *hold, code int64, sent time.Time, c *chunk) {
	switch code {
	case lockstore.StillThere:
		if h.suspected.Before(sent) {
			h.suspect = ""
		}
		if c.lease > 0 {
			h.promise(sent.Add(c.lease-hs.store.Rules().Drift(c.lease)), sent) // Redis keeps the longer one too
		}
		if c.restored == h {
			h.asked = sent // its lease is what was left until the deadline, but for less than a millisecond
		}
		if c.restored == h && h.suspect == "" && h.id.Kind != Read { // what readers have, Redisson's watchdog may cut again
			h.maybeCut = false
		}
		if c.lease > 0 && (h.watched || c.replicas > 0) { // not when a look has restored what it had
			hs.renewals.Add(1)
			h.renewals++
			h.renewedAt = sent
		}
		if h.suspect != "" {
			hs.plan(h, time.Now()) // suspected since this was sent
		} else if h.watched {
			hs.planNext(h, sent)
		} else {
			hs.stillThere(h)
		}
	case lockstore.TakenOver: // it is watched, or ends, there
		hs.noteUnwanted(h)
		hs.end(h)
	default:
		hs.lose(h, h.whyGone())
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

// vacate makes the store wake those that wait for a lock whose hold ends by itself, from at on: see lockstore.Waits. holds.mu is held.
func (hs *holds) vacate(h *hold, at time.Time) {
	hs.store.Vacate(h.id, at, lockstore.Later(at, h.deadline).Add(expirySlack))
}

// stillThere goes on with an unwatched hold that Redis still has: until its deadline, and past it if another proxy
// lengthens the lock of a named owner, which is then no longer ours to follow. mu is held.
func (hs *holds) stillThere(h *hold) {
	now, last := time.Now(), h.deadline.Add(expirySlack)
	switch {
	case !h.named && !now.Before(h.deadline):
		if hs.tellIfOver(h, now); h.count > 0 { // its owner reads beside it
			hs.plan(h, hs.nextLook(h, now))
		}
	case now.Before(h.deadline):
		hs.plan(h, hs.nextLook(h, now))
	case now.Before(last):
		hs.vacate(h, now)
		hs.plan(h, last)
	default:
		hs.end(h)
	}
}

// renewalFailed plans the next try sooner the nearer the deadline is. mu is held.
func (hs *holds) renewalFailed(h *hold) {
	now, pause := time.Now(), expirySlack
	if at, ok := h.lossAt(); ok {
		pause = min(at.Sub(now)/4, time.Second)
		if h.watched {
			pause = max(min(pause, h.lease/12), h.lease/100)
		}
		pause = max(pause, 10*time.Millisecond)
	}
	hs.plan(h, now.Add(pause))
}

const (
	// takenLook is how long lookAgain waits before it looks again.
	takenLook = 50 * time.Millisecond
	// unsureLook is for how long it looks again while nodes do not agree.
	unsureLook = time.Second
)

// lookAgain has Redis asked about a hold that is thought to be alive, as the watchdog would. It waits for others at work on the hold for so long.
// On a quorum it goes on until it is known whether another connection has given a named owner's hold back, or has taken it over. The error is
// errUnsure when the nodes do not tell.
func (wd *watchdog) lookAgain(ctx context.Context, id lockstore.ID, named bool, long time.Duration) error {
	for began := time.Now(); ; {
		if err := wd.extendLease(ctx, id, named, long, 0); err != nil {
			return err
		}
		s := wd.holds.find(id)
		unsure := s.unsure && named && wd.store.Rules().Votes
		if !s.live || s.taken.IsZero() && !unsure {
			return nil
		}
		if unsure && time.Since(began) > unsureLook {
			return errUnsure(id)
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
	s := wd.holds.snapshot(h)
	if s.count == 0 {
		wd.holds.leave(h)
		return nil
	}
	c := &chunk{chunkKey: chunkKey{db: id.DB, kind: id.Kind}, holds: []*hold{h}, planned: time.Now(), registrations: []lockstore.Registration{""}}
	if s.watched {
		c.lease, c.replicas = s.lease, s.replicas
	}
	if s.watched || atLeast == 0 { // else the registration would end with this lease
		c.registrations[0] = s.registration
	}
	if atLeast > 0 {
		c.lease, c.replicas = max(c.lease, atLeast), s.replicas
	}
	wd.renewChunk(c) // leaves it
	return nil
}
