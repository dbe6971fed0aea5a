package sharded

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// A lock that ends without an UNLOCK wakes nobody by itself: Redis only drops the key. Whoever waits elsewhere may have been told of
// a lease that is much longer, since a hand-off sends no message, and the next in Redisson's fair queue trusts in messages alone. So
// the proxy that sees a hold end makes Redis tell them, once the lock is free there.

const (
	// vacantChunk is the most locks that one script looks at.
	vacantChunk = 100
	// vacantAtOnce is the most such scripts in flight.
	vacantAtOnce = 16
	// vacantKept is how many such locks are kept, at most, while Redis cannot be reached. More are dropped.
	vacantKept = 1 << 17
	// vacantPause and vacantPauseMost are the time between two tries to reach Redis.
	vacantPause     = 100 * time.Millisecond
	vacantPauseMost = 5 * time.Second
)

// vacancy is a hold that has ended, or is about to, without having been given back.
type vacancy struct {
	id    lockstore.ID
	at    time.Time     // when to look
	until time.Time     // whoever holds it in this owner's name after that has taken it anew
	pause time.Duration // before the next try, after one that failed
	place int           // in the agenda
}

// vacancies are the locks whose waiters are still to be told.
type vacancies struct {
	mu   sync.Mutex
	next agenda.Agenda[*vacancy]
}

func newVacancies() vacancies {
	return vacancies{next: agenda.New(func(v *vacancy) time.Time { return v.at }, func(v *vacancy) *int { return &v.place })}
}

// Vacate implements lockstore.Waits: it notes a lock whose hold ends by itself.
func (d *store) Vacate(id lockstore.ID, at, until time.Time) {
	d.vacant.add(&vacancy{id: id, at: at, until: until})
}

func (v *vacancies) add(one *vacancy) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next.Len() < vacantKept {
		v.next.Put(one)
	}
}

// take picks those that are due, and says when to come again.
func (v *vacancies) take(now time.Time) (due []*vacancy, again time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for one, ok := v.next.Due(now); ok; one, ok = v.next.Due(now) {
		v.next.Drop(one)
		due = append(due, one)
	}
	return due, v.next.Sleep(0)
}

// tellVacancies makes Redis tell waiters of the locks that have ended, until ctx ends.
func (d *store) tellVacancies(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		jitter.Turn("vacant", nil)
		due, again := d.vacant.take(time.Now())
		var group errgroup.Group
		group.SetLimit(vacantAtOnce)
		for _, b := range d.vacantBatches(due) {
			group.Go(func() error { d.tellVacant(b); return nil })
		}
		_ = group.Wait() // tellVacant tries again by itself
		if len(due) > 0 {
			continue // others may have come due meanwhile
		}
		timer.Reset(again)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.vacant.next.Wake:
		}
	}
}

// vacantBatches splits vacancies into what one script may look at.
func (d *store) vacantBatches(due []*vacancy) (full [][]*vacancy) {
	type place struct{ db, slot int }
	open := map[place][]*vacancy{}
	for _, v := range due {
		at := place{v.id.DB, d.Lane(v.id.Key).Slot}
		if open[at] = append(open[at], v); len(open[at]) == vacantChunk {
			full = append(full, open[at])
			delete(open, at)
		}
	}
	for _, b := range open {
		full = append(full, b)
	}
	return full
}

// tellVacant tells waiters of a batch of locks that may have ended, and puts back the locks to be checked again.
func (d *store) tellVacant(batch []*vacancy) {
	ids := make([]lockstore.ID, len(batch))
	for i, v := range batch {
		ids[i] = v.id
	}
	out, err := node.Ints(d.eval(context.Background(), limits{allow: notAfter}, d.steps.Vacant(ids)))
	now := time.Now()
	for i, v := range batch {
		switch {
		case err != nil && !lockstore.Passing(err) && !lockstore.Unknown(err):
			d.host.Log.Debug("cannot tell those that wait that a lock has ended", "key", v.id.Key, "error", err)
			continue
		case err != nil:
			v.pause = min(max(2*v.pause, vacantPause), vacantPauseMost)
			v.at = now.Add(v.pause)
		case out[i] <= 0:
			continue
		default:
			if v.at = now.Add(lockstore.Milliseconds(out[i])); v.at.After(v.until) {
				continue // it was taken again, or lengthened elsewhere
			}
		}
		d.vacant.add(v)
	}
}
