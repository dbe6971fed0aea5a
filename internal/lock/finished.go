package lock

import (
	"container/list"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

const (
	// finishedFor is how long a repeated UNLOCK of a finished hold gets the first one's answer.
	finishedFor = 30 * time.Second
	// finishedOfOne is how many UNLOCKs of one connection are remembered for that.
	finishedOfOne = 4096
)

// finishedUnlocks are the UNLOCKs of named owners that have freed their locks, over whichever connection. They are forgotten when
// their time is over, or when the connection that sent them has sent too many since: what other clients do makes nobody forget.
type finishedUnlocks struct {
	mu     sync.Mutex // a leaf; guards all below, and the ownUnlocks
	known  map[lockstore.ID]*finishedUnlock
	all    list.List  // of *finishedUnlock, the oldest first
	nobody ownUnlocks // those that no connection has asked for
}

// ownUnlocks are those of one connection.
type ownUnlocks struct{ all list.List }

type finishedUnlock struct {
	id          lockstore.ID
	at          time.Time
	own         *ownUnlocks
	inAll, mine *list.Element
}

func newFinishedUnlocks() *finishedUnlocks {
	return &finishedUnlocks{known: map[lockstore.ID]*finishedUnlock{}}
}

// add notes an UNLOCK of by's; nil: of nobody's.
func (f *finishedUnlocks) add(id lockstore.ID, by *Client, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.known[id]; was != nil {
		f.drop(was)
	}
	one := &finishedUnlock{id: id, at: at, own: &f.nobody}
	if by != nil {
		one.own = &by.finished
	}
	f.known[id], one.inAll, one.mine = one, f.all.PushBack(one), one.own.all.PushBack(one)
	if one.own.all.Len() > finishedOfOne {
		f.drop(one.own.all.Front().Value.(*finishedUnlock))
	}
}

// get says when an owner's lock was given back, if that is remembered.
func (f *finishedUnlocks) get(id lockstore.ID) (at time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.known[id]
	if one == nil || time.Since(one.at) >= finishedFor {
		return at, false
	}
	return one.at, true
}

func (f *finishedUnlocks) remove(id lockstore.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.known[id]; one != nil {
		f.drop(one)
	}
}

// drop forgets one. mu is held.
func (f *finishedUnlocks) drop(one *finishedUnlock) {
	delete(f.known, one.id)
	f.all.Remove(one.inAll)
	one.own.all.Remove(one.mine)
}

// sweep forgets those whose time is over, in portions for which others do not wait long.
func (f *finishedUnlocks) sweep(now time.Time) {
	for f.sweepSome(now) {
	}
}

func (f *finishedUnlocks) sweepSome(now time.Time) (more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range tellAtOnce {
		first := f.all.Front()
		if first == nil || now.Sub(first.Value.(*finishedUnlock).at) < finishedFor {
			return false
		}
		f.drop(first.Value.(*finishedUnlock))
	}
	return true
}
