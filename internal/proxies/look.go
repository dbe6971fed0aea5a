package proxies

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// lockKey is where a lock is.
type lockKey struct {
	db   int
	name string
}

// look answers a question with the locks of this proxy. It goes over them twice, since there may be very many: to count
// who holds and who waits for each, and to keep those of the locks that come first. There are about so many entries.
func look(q Question, proxy string, entries int, each func(lock.Fits, func(lock.Entry))) (first []Lock, of int) {
	if q.Locks <= 0 {
		return nil, 0
	}
	if len(q.Name) > 0 {
		entries = 0 // few have the name
	}
	at, all, name := make(map[lockKey]int, entries), make([]Lock, 0, entries), string(q.Name)
	means := func(_ int, key string) bool { return strings.Contains(key, name) }
	if q.Exact {
		means = func(db int, key string) bool { return db == q.DB && key == name }
	}
	each(means, func(e lock.Entry) {
		here := lockKey{e.DB, e.Key}
		i, there := at[here]
		if !there {
			i = len(all)
			at[here] = i
			all = append(all, Lock{Name: e.Key, DB: e.DB})
		}
		all[i].countEntry(&e)
	})
	at = make(map[lockKey]int, q.Locks) // a small one, which is asked about all of them
	for i, l := range choose(all, q) {
		first = append(first, Lock{Name: l.Name, DB: l.DB, Bytes: Bytes(l.Name), Holders: []lock.Entry{}, Waiters: []lock.Entry{}})
		at[lockKey{l.DB, l.Name}] = i
	}
	chosen := func(db int, key string) bool {
		_, is := at[lockKey{db, key}]
		return is
	}
	each(chosen, func(e lock.Entry) {
		l := &first[at[lockKey{e.DB, e.Key}]]
		l.countEntry(&e)
		l.keepEntry(e)
	})
	first = slices.DeleteFunc(first, func(l Lock) bool { return l.Holding+l.Waiting == 0 }) // it was given back meanwhile
	for i := range first {
		l := &first[i]
		slices.SortStableFunc(l.Holders, func(a, b lock.Entry) int {
			return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(a.ClientID, b.ClientID), strings.Compare(a.Owner, b.Owner))
		})
		slices.SortStableFunc(l.Waiters, func(a, b lock.Entry) int { return cmp.Compare(a.Place, b.Place) })
		l.Holders, l.Waiters = told(l.Holders, q.Of, proxy), told(l.Waiters, q.Of, proxy)
	}
	return first, len(all)
}

// newest answers a question with what has happened at this proxy.
func newest(q Question, proxy string, log *events.Log) (all []events.Event, of int) {
	all = log.Latest(q.Events, q.Kind, func(e *events.Event) bool {
		is := !e.At.Before(q.Since) && strings.Contains(e.Key, string(q.Name))
		if is {
			of++
		}
		return is
	})
	for i := range all {
		all[i].Proxy = proxy
	}
	return all, of
}

// countEntry counts one who holds the lock, or waits for it.
func (l *Lock) countEntry(e *lock.Entry) {
	if e.Place > 0 {
		l.Waiting, l.Waited = l.Waiting+1, max(l.Waited, e.Waited)
	} else {
		l.Holding, l.Held = l.Holding+1, max(l.Held, e.Held)
	}
}

// keepEntry keeps them.
func (l *Lock) keepEntry(e lock.Entry) {
	if e.Place > 0 {
		l.Waiters = append(l.Waiters, e)
	} else {
		l.Holders = append(l.Holders, e)
	}
}

// choose picks the first of some locks. It never sorts all.
func choose(all []Lock, q Question) (first []*Lock) {
	compare := orderOf(q.Sort)
	for i := range all {
		l := &all[i]
		if len(first) == q.Locks && compare(first[q.Locks-1], l) < 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(first, l, compare)
		first = slices.Insert(first, at, l)
		first = first[:min(len(first), q.Locks)]
	}
	return first
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
		return cmp.Or(cmp.Compare(rank(b), rank(a)), strings.Compare(a.Name, b.Name), cmp.Compare(a.DB, b.DB))
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

// told are the first of some entries, as the proxy of that id tells them.
func told(all []lock.Entry, most int, proxy string) []lock.Entry {
	all = all[:min(most, len(all))]
	for i := range all {
		e := &all[i]
		e.Introduce()
		e.Proxy, e.OwnerBytes = proxy, Bytes(e.Owner)
		e.Addr, e.Name, e.User = clip(e.Addr), clip(e.Name), clip(e.User)
	}
	return all
}
