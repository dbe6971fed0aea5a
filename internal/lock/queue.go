package lock

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// The fair queue is Redisson's, in Redis, so its waiters and those of all proxies stand in one order. A waiter enters
// it when it comes, and its proxy says every few seconds that it lives: Redisson's own are taken to live for minutes.

const (
	// queueRefresh is how often a proxy tells Redis that its waiters in a queue are alive; that is believed for 10 s.
	queueRefresh = 3 * time.Second
	// queueRefreshSoonest is the shortest time between two refreshes, so that waiters behind others whose time is over
	// do not ask without end.
	queueRefreshSoonest = 20 * time.Millisecond
)

// ownChannel is where Redisson tells one waiter that it is its turn.
func (w *waiter) ownChannel() string { return w.line.key.Channel() + ":" + w.id.Field() }

// beginQueue keeps the places of a new fair line refreshed until its last waiter has gone. mu is held.
func (ls *lines) beginQueue(l *line) {
	l.keep, l.gone = make(chan struct{}, 1), make(chan struct{})
	ls.background(func() { ls.keepQueue(l) })
}

func (ls *lines) keepQueue(l *line) {
	timer := time.NewTimer(queueRefresh)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.keep:
		case <-l.gone:
			return
		case <-ls.ended:
			return
		}
		timer.Reset(ls.refreshQueue(l))
	}
}

// refreshQueue tells Redis that the line's waiters are alive, and makes those try that the queue has lost, or whose
// turn it is. It returns in how long to come again.
func (ls *lines) refreshQueue(l *line) time.Duration {
	waiters, q := ls.queued(l)
	if len(waiters) == 0 {
		return queueRefresh
	}
	called, next, err := ls.store.RefreshQueue(q)
	if err != nil {
		ls.log.Debug("cannot refresh a fair queue", "key", l.key.Key, "error", err)
		return queueRefresh / 10
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, n := range called {
		waiters[n-1].call()
	}
	if next < 0 {
		return queueRefresh
	}
	return max(queueRefreshSoonest, min(queueRefresh, next+time.Millisecond))
}

// queued are the waiters of a fair line that have a place, and the same as the store takes it.
func (ls *lines) queued(l *line) (waiters []*waiter, q lockstore.Queue) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	q = lockstore.Queue{DB: l.key.DB, Key: l.key.Key}
	for at := l.waiters.Front(); at != nil; at = at.Next() {
		if w := at.Value.(*waiter); w.ticket != 0 {
			waiters = append(waiters, w)
			q.Positions = append(q.Positions, lockstore.Position{ID: w.id, Place: w.ticket})
		}
	}
	return waiters, q
}

// enterQueue notes that a verb of the owner asks for a place in the fair queue, or has it. All verbs of one owner have
// the same.
func (ls *lines) enterQueue(id lockstore.ID) {
	ls.mu.Lock()
	ls.fair[id]++
	ls.mu.Unlock()
}

// placeKept is for how long a waiter whose BLOCK has run out has its place in the fair queue still, in case it asks
// again.
const placeKept = 2 * time.Second

// leaveQueue notes that a waiter asks no more; err is why. One that gives up is taken out of the fair queue, unless the
// same owner waits in another connection of this proxy; one whose BLOCK has run out after a while.
func (ls *lines) leaveQueue(w *waiter, err error) {
	ls.mu.Lock()
	if ls.fair[w.id]--; ls.fair[w.id] == 0 {
		delete(ls.fair, w.id)
	}
	ls.mu.Unlock()
	stays := func() bool { return ls.queues(w.id) }
	if err == nil || stays() {
		return
	}
	final := w.final
	if errors.Is(err, ErrNotAcquired) {
		final = lockstore.Later(final, time.Now().Add(placeKept))
	}
	ls.store.LeaveQueue(w.id, final, stays)
}

// queues says whether a verb of the owner asks for a place in the queue here, or has it.
func (ls *lines) queues(id lockstore.ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.fair[id] > 0
}
