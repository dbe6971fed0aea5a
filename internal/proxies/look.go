package proxies

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
)

// look is what was last seen of the locks of this proxy, for all who ask at the same time.
type look struct {
	mu    sync.Mutex // guards all below
	rows  []row
	taken time.Time
	took  time.Duration
}

// row is one lock, and all who hold it or wait for it.
type row struct {
	Lock
	held, waiters []*lock.Entry
}

// place is where a lock is.
type place struct {
	db   int
	name string
}

// lookMost is for how long a look is used at most.
const lookMost = 2 * time.Second

// answer says which of the locks there are that are asked for. list has all of them, as lock.Manager.Entries does.
func (l *look) answer(q Question, self Proxy, list func() []lock.Entry) Answer {
	a := Answer{Proxy: self}
	if q.Locks <= 0 {
		return a
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.taken) >= min(10*l.took, lookMost) {
		l.rows = group(list())
		l.taken, l.took = now, time.Since(now)
	}
	some, of := choose(l.rows, q)
	a.Of = of
	for _, r := range some {
		told := r.Lock
		slices.SortStableFunc(r.held, func(a, b *lock.Entry) int {
			return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(a.ClientID, b.ClientID), strings.Compare(a.Owner, b.Owner))
		})
		slices.SortStableFunc(r.waiters, func(a, b *lock.Entry) int { return cmp.Compare(a.Place, b.Place) })
		told.Holders, told.Waiters = entriesOf(r.held, q.Of, self.ID), entriesOf(r.waiters, q.Of, self.ID)
		a.Locks = append(a.Locks, told)
	}
	a.Age = time.Since(l.taken).Milliseconds()
	return a
}

// forget lets go of a look that nobody uses any more.
func (l *look) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.taken) > lookMost {
		l.rows = nil
	}
}

// group makes locks of all who hold one, or wait.
func group(list []lock.Entry) []row {
	at, rows := make(map[place]int, len(list)), make([]row, 0, len(list))
	for i := range list {
		e := &list[i]
		here, there := at[place{e.DB, e.Key}]
		if !there {
			here = len(rows)
			at[place{e.DB, e.Key}] = here
			rows = append(rows, row{Lock: Lock{DB: e.DB}})
			rows[here].Text, rows[here].Bytes = Named(e.Key)
		}
		r, ms := &rows[here], e.Held.Milliseconds()
		if e.Waiting {
			r.waiters, r.Waiting, r.Waited = append(r.waiters, e), r.Waiting+1, max(r.Waited, ms)
		} else {
			r.held, r.Holding, r.Held = append(r.held, e), r.Holding+1, max(r.Held, ms)
		}
	}
	return rows
}

// choose picks the first of the locks that are asked for, and says of how many. It never sorts all.
func choose(all []row, q Question) (first []*row, of int) {
	order := orderOf(q.Sort)
	compare := func(a, b *row) int { return order(&a.Lock, &b.Lock) }
	for i := range all {
		r := &all[i]
		if !r.fits(q) {
			continue
		}
		of++
		if len(first) == q.Locks && compare(first[q.Locks-1], r) < 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(first, r, compare)
		first = slices.Insert(first, at, r)
		first = first[:min(len(first), q.Locks)]
	}
	return first, of
}

// fits says whether a lock is asked for.
func (l *Lock) fits(q Question) bool {
	if q.Exact {
		return l.DB == q.DB && l.Name() == string(q.Name)
	}
	return strings.Contains(l.Name(), string(q.Name))
}

// orderOf is the order in which locks are told.
func orderOf(sort string) func(a, b *Lock) int {
	rank := (*Lock).waitedSeconds
	switch sort {
	case "name":
		rank = func(*Lock) int64 { return 0 }
	case "held":
		rank = func(l *Lock) int64 { return l.Held }
	}
	return func(a, b *Lock) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), strings.Compare(a.Name(), b.Name()), cmp.Compare(a.DB, b.DB))
	}
}

// waitedSeconds is how long one has waited, one at least: locks for which somebody always waits, but nobody for long, keep
// their places.
func (l *Lock) waitedSeconds() int64 {
	if l.Waiting == 0 {
		return 0
	}
	return max(1, l.Waited/1000)
}

// entriesOf are the first of some entries.
func entriesOf(all []*lock.Entry, most int, proxy string) []Entry {
	told := make([]Entry, 0, min(most, len(all)))
	for _, e := range all[:min(most, len(all))] {
		e.Introduce()
		told = append(told, EntryOf(*e, proxy))
	}
	return told
}
