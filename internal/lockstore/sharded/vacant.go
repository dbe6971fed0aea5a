package sharded

import (
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// A lock that ends without an UNLOCK wakes nobody by itself: Redis only drops the key. Whoever waits elsewhere may have
// been told of a lease that is much longer, since a hand-off sends no message, and the next in Redisson's fair queue
// trusts in messages alone. So the proxy that sees a hold end makes Redis tell them, once the lock is free there.

const (
	// vacantChunk is the most locks that one script looks at.
	vacantChunk = 100
	// vacantAtOnce is the most such scripts in flight at one node.
	vacantAtOnce = 16
	// vacantKept is how many such locks are kept, at most, while Redis cannot be reached. More are dropped.
	vacantKept = 1 << 17
	// vacantPause and vacantPauseMost are the time between two tries to reach Redis.
	vacantPause     = 100 * time.Millisecond
	vacantPauseMost = 5 * time.Second
)

// vacancy is a hold that has ended, or is about to, without having been given back.
type vacancy struct {
	id lockstore.ID
	at time.Time // when to look whether the lock is free
	// The hold ends by then. If the owner still has the lock, it is a new hold, of which this is not to tell.
	until time.Time
	pause time.Duration // before the next try, after one that failed
	place int32         // in the agenda
}

// vacancies are the locks whose waiters are still to be told, in the order of their times.
type vacancies struct {
	mu     sync.Mutex
	next   agenda.Agenda[*vacancy]
	lanes  map[any]*vacantLane // of the nodes that are being asked, by lockstore.Location.Node
	queued int                 // how many vacancies are in the queues of all lanes
}

// vacantLane is the queue of the scripts for one node. Each node has its own, so that one that is slow holds up no
// other. vacancies.mu guards it.
type vacantLane struct {
	running int          // goroutines that send scripts, one at a time each: at most vacantAtOnce
	queue   [][]*vacancy // batches that no goroutine has taken yet, each for one script
}

func newVacancies() vacancies {
	next := agenda.New(func(v *vacancy) *int32 { return &v.place })
	return vacancies{next: next, lanes: map[any]*vacantLane{}}
}

// Vacate implements lockstore.Waits: it notes a lock whose hold ends by itself.
func (d *store) Vacate(id lockstore.ID, at, until time.Time) {
	d.vacant.add(&vacancy{id: id, at: at, until: until})
}

func (v *vacancies) add(one *vacancy) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next.Len()+v.queued < vacantKept {
		v.next.Put(one, one.at)
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

// tellVacancies has Redis tell waiters of the locks that have ended, until ctx ends. It does not wait for Redis.
func (d *store) tellVacancies(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		jitter.Turn("vacant", nil)
		due, again := d.vacant.take(time.Now())
		for node, batches := range d.vacantBatches(due) {
			d.tellAt(node, batches)
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

// vacantBatches splits vacancies by node, and those of each into what one script may look at.
func (d *store) vacantBatches(due []*vacancy) map[any][][]*vacancy {
	type scope struct{ db, slot int } // of one script
	type open struct {
		node any
		at   int // in the node's batches
	}
	full, last := map[any][][]*vacancy{}, map[scope]open{}
	for _, v := range due {
		at := d.Location(v.id.Key)
		within := scope{v.id.DB, at.Slot}
		o, is := last[within]
		if !is || len(full[o.node][o.at]) == vacantChunk {
			o = open{at.Node, len(full[at.Node])}
			full[o.node], last[within] = append(full[o.node], nil), o
		}
		full[o.node][o.at] = append(full[o.node][o.at], v)
	}
	return full
}

// tellAt has a node tell waiters of some batches in the background, as soon as there are room for them.
func (d *store) tellAt(node any, batches [][]*vacancy) {
	v := &d.vacant
	v.mu.Lock()
	defer v.mu.Unlock()
	ln := v.lanes[node]
	if ln == nil {
		ln = &vacantLane{}
		v.lanes[node] = ln
	}
	for _, b := range batches {
		ln.queue = append(ln.queue, b)
		v.queued += len(b)
	}
	for range min(len(batches), vacantAtOnce-ln.running) {
		ln.running++
		d.host.Background(func() { d.tellAll(node) })
	}
}

// tellAll tells waiters of one batch of a node after the other, until none is left.
func (d *store) tellAll(node any) {
	for b := d.vacant.batch(node); b != nil; b = d.vacant.batch(node) {
		d.tellVacant(b)
	}
}

// batch takes the next batch of a node; nil: there is none, and its place is free again.
func (v *vacancies) batch(node any) []*vacancy {
	v.mu.Lock()
	defer v.mu.Unlock()
	ln := v.lanes[node]
	if len(ln.queue) == 0 {
		if ln.running--; ln.running == 0 {
			delete(v.lanes, node)
		}
		return nil
	}
	b := ln.queue[0]
	ln.queue = ln.queue[1:]
	v.queued -= len(b)
	return b
}

// tellVacant tells waiters of a batch of locks that may have ended, and puts back the locks to be checked again.
func (d *store) tellVacant(batch []*vacancy) {
	ids := make([]lockstore.ID, len(batch))
	for i, v := range batch {
		ids[i] = v.id
	}
	out, err := d.do(context.Background(), vacate(ids))
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
				continue // the owner has taken it again, or renewed it through another proxy
			}
		}
		d.vacant.add(v)
	}
}

func vacate(ids []lockstore.ID) *request {
	return &request{key: ids[0].Key, send: aside,
		build: func(at *shard, _ string) node.Call { return at.steps().Vacant(ids) }}
}
