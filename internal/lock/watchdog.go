package lock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// round is the shortest time between two looks at the schedule: what comes due meanwhile goes into one script.
const round = 50 * time.Millisecond

// watchdog comes to every hold of a connection each third of its own lease, and lets the hold last: those that have no
// end for the whole lease, the others for what is left of theirs. So it notices what Redis has lost, too. It also tells
// Redis of those that have ended.
type watchdog struct {
	*life
	opts      ManagerOptions
	log       *slog.Logger
	store     lockstore.Store
	holds     *holds
	giveBacks *giveBacks

	mu    sync.Mutex    // guards the lanes and chunks; before holds.mu
	lanes map[any]*lane // of each node, see lockstore.Location: nodes do not wait for each other
}

func newWatchdog(l *life, o ManagerOptions, hs *holds, g *giveBacks) *watchdog {
	return &watchdog{life: l, opts: o, log: o.Logger, holds: hs, giveBacks: g, lanes: map[any]*lane{}}
}

// watch works off the schedule until ctx ends. It never waits for Redis: chunks that find no place in their lane start
// when one is free.
func (wd *watchdog) watch(ctx context.Context) {
	rounds(ctx, wd.holds.schedule.Wake, func() time.Duration { return min(wd.startDue(), time.Minute) })
}

// startDue starts what is due, as far as there is room, and says when to come again.
func (wd *watchdog) startDue() (next time.Duration) {
	wd.mu.Lock()
	defer wd.mu.Unlock()
	toClear, next := wd.holds.dispatchDue(wd.enqueue, min(round, wd.opts.Watchdog/50))
	wd.giveBacks.releaseLater(toClear, wd.giveBacks.clear)
	return min(wd.startAll(), next)
}

// dispatchDue decides what happens to the records whose time in the schedule has come: enqueue gets, under mu, those to
// renew. toClear are those of which Redis is to be told what their connections have; they are busy. next is when to come
// again, but not sooner than in least.
func (hs *holds) dispatchDue(enqueue func(*record), least time.Duration) (toClear []*record, next time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now, done := hs.now(), 0
	for rec, due := hs.schedule.Due(hs.time(now)); due; rec, due = hs.schedule.Due(hs.time(now)) {
		hs.schedule.Drop(rec)
		switch {
		case rec.toClear(now):
			if hs.tryBusy(rec) { // else whoever has it puts it on the schedule again
				toClear = append(toClear, rec)
			}
		case rec.outlived(now, hs.terms):
			hs.happen(rec, outlived{})
		case rec.is == watched || rec.end > now: // else watchDeadlines ends it
			enqueue(rec)
		}
		yield(&hs.mu, &done, 1)
	}
	return toClear, hs.schedule.Sleep(least)
}

// renewChunk renews the holds of a chunk, and notes the result for each. They are busy until then.
func (wd *watchdog) renewChunk(c *chunk) error {
	ctx, span := telemetry.Span(context.Background(), "renew")
	defer span.End()
	r := wd.holds.renewal(c)
	sent := wd.holds.now()
	telemetry.RenewalLate(max(0, sent.sub(c.planned)))
	out, err := wd.store.Renew(ctx, r)
	if err != nil {
		wd.holds.counts.renewals.Add(int64(len(c.holds)), "error", "")
		telemetry.Renewed(ctx, "error")
	} else {
		telemetry.Renewed(ctx, "ok")
	}
	wd.holds.noteRenewals(c, r, out, err, sent)
	return err
}

// renewal makes the step for a chunk.
func (hs *holds) renewal(c *chunk) lockstore.Renewal {
	r := lockstore.Renewal{DB: c.db, Kind: c.kind, Allow: c.allow, Sets: true, Holds: make([]lockstore.Renewed, len(c.holds))}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	now := hs.now()
	for i, rec := range c.holds {
		lease := max(time.Millisecond, rec.asserts(now, hs.terms), c.least)
		r.Holds[i] = lockstore.Renewed{ID: rec.id, Counts: rec.counts, Lease: lease.Milliseconds()}
		r.Sets = r.Sets && rec.is == watched
	}
	return r
}

// noteRenewals notes for each hold of a chunk the result of its renewal, and frees the hold.
func (hs *holds) noteRenewals(c *chunk, r lockstore.Renewal, out []int64, err error, sent moment) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for i, rec := range c.holds {
		lease := lockstore.Milliseconds(r.Holds[i].Lease)
		code := int64(lockstore.Undecided)
		if err == nil && i < len(out) {
			code = out[i]
		}
		var e event = visited{code == lockstore.StillThere, lease, sent}
		if code == lockstore.Undecided {
			e = notVisited{sent, hs.now().add(c.allow + lease)}
		}
		if rec.live() {
			if hs.happen(rec, e); code == lockstore.StillThere && rec.is == watched {
				hs.counts.renewals.Add(1, "ok", "")
			}
		} else if code != lockstore.NotThere {
			// It was reported lost before the answer came: Redis may have it for another lease, which nobody wants.
			rec.late = max(rec.late, hs.now().add(c.allow+lease))
			if rec.clear == 0 && rec.client != nil {
				rec.clear = hs.now()
			}
		}
		hs.free(rec)
	}
}

// visitNow has the watchdog come to one hold at once, and waits for that: whoever asks is told what Redis has of it.
func (wd *watchdog) visitNow(ctx context.Context, id lockstore.ID, long time.Duration) error {
	rec, err := wd.holds.enterHeld(ctx, id, long, nil)
	if rec == nil {
		return err
	}
	return wd.visitBusy(rec, 0)
}

// visitBusy is visitNow of a record that is busy, and leaves it. least is for how long the hold is to last at least.
func (wd *watchdog) visitBusy(rec *record, least time.Duration) error {
	if h := wd.holds.peek(rec.id); !h.kept() {
		wd.holds.leave(rec)
		return nil
	}
	c := &chunk{
		chunkKey: chunkKey{db: rec.id.DB, kind: rec.id.Kind}, holds: []*record{rec},
		planned: wd.holds.now(), allow: lockstore.Allowed, least: least,
	}
	return wd.renewChunk(c)
}
