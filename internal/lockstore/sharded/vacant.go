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

// A lock that ends without an UNLOCK wakes nobody by itself: Redis only drops the key. Whoever waits elsewhere may have been told
// of a lease that is much longer, since a hand-off sends no message, and the next in Redisson's fair queue trusts in messages alone.
// So the proxy that sees a hold end has Redis tell them, once the lock is free there.

const (
	// vacantChunk is the most locks that one script looks at.
	vacantChunk = 100
	// vacantAtOnce is the most such scripts in flight.
	vacantAtOnce = 16
	// vacantKept bounds the locks that are still to be told of, while Redis cannot be reached. Of more nobody is told.
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

// vacancies are the locks that those who wait for them are still to be told of.
type vacancies struct {
	mu   sync.Mutex
	next agenda.Agenda[*vacancy]
}

func newVacancies() vacancies {
	return vacancies{next: agenda.New(func(v *vacancy) time.Time { return v.at }, func(v *vacancy) *int { return &v.place })}
}

// Vacate notes a lock that its own end may free.
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

// tellVacancies has Redis tell of the locks that have ended, until ctx ends.
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

// vacantBatches parts vacancies by what one script may look at.
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

// tellVacant looks at a batch, and puts back those that are to be looked at again.
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
