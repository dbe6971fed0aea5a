package lock

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// lines are those of this proxy's clients that wait for a lock, in one line for each key.
type lines struct {
	*life
	opts  ManagerOptions
	log   *slog.Logger
	store lockstore.Waits // tells them when to try
	holds *holds

	mu    sync.Mutex // guards all below, and what the lines, waiters and clients say it does; before holds.mu
	byKey map[lockstore.LineKey]*line

	waiting int64 // verbs, in all of them
	// How many verbs of an owner wait in a fair queue, from before they ask for their place there.
	fair  map[lockstore.ID]int
	named map[lockstore.ID][]*waiter // the verbs of a named owner that wait in a line
}

func newLines(l *life, o ManagerOptions, hs *holds) *lines {
	return &lines{
		life: l, opts: o, log: o.Logger, holds: hs,
		byKey: map[lockstore.LineKey]*line{}, fair: map[lockstore.ID]int{}, named: map[lockstore.ID][]*waiter{},
	}
}

// line is the waiters of one key on this proxy, first come first. Only its head talks to Redis.
type line struct {
	key          lockstore.LineKey
	wake         chan struct{}          // one message that no head has acted on yet
	hearsay      chan struct{}          // one on the lock's channel: another proxy may have been told
	keep         chan struct{}          // of a fair line: its places are to be refreshed at once
	gone         chan struct{}          // of a fair line: closed with its last waiter
	subscription lockstore.Subscription // of one that is not fair: to the lock's channel,
	own          lockstore.Subscription // and to that by which this proxy is told

	// guarded by lines.mu
	waiters  list.List // of *waiter
	alone    int       // those of them that want the lock for themselves
	troubled bool      // the head could not try the last time, because Redis is away
	tryAt    time.Time // when the head tries without being woken; zero: at once
	place    int64     // this proxy's among those that are woken; 0: none
	others   int64     // so many more wait elsewhere, as far as is known
	lot      int64     // drawn once: whether this proxy is one of the lookers
	turns
}

// waiter is one verb that waits. It gets the lock by asking, as the head of its line, or is handed it by whoever gives
// it back.
type waiter struct {
	c       *Client
	r       Request
	id      lockstore.ID
	ctx     context.Context
	since   time.Time
	changed chan struct{} // something in its line has changed
	offer   chan offer    // one for each time it was claimed
	timer   *time.Timer   // when to look again; of one that stands in a line

	asking

	// guarded by lines.mu
	line   *line
	place  *list.Element
	ticket int64 // its place in the fair queue
	called bool  // it tries although it is not the head: the fair queue has lost it, or it is its turn there
	state  waiterState
}

// waiterState is what a waiter is at.
type waiterState int

const (
	trying  waiterState = iota // it asks Redis, or is about to
	parked                     // it waits for something to happen, and may be claimed
	claimed                    // somebody makes it an offer, which it has not taken yet
)

// asking is what a waiter's own goroutine keeps between its tries.
type asking struct {
	// Why its last try could not be made; that a reply was lost counts until Redis answers.
	trouble error
	hears   *lockstore.Subscription // the head's: to the line's channel, or in a fair line to its own
	splits  int                     // how often in a row its tries were split, on a quorum
	// Of a request without an answer: until then it may yet get a place in the fair queue.
	final time.Time
}

func newWaiter(ctx context.Context, c *Client, r Request, since time.Time) *waiter {
	return &waiter{
		c: c, r: r, id: c.id(r.Kind, r.DB, r.Key, r.Owner), ctx: ctx, since: since,
		changed: make(chan struct{}, 1), offer: make(chan offer, 1),
	}
}

// Wake makes the head try again.
func (l *line) Wake() { retry.Wake(l.wake) }

// forget drops a message that came until now.
func forget(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// waitingLine is the line that a request stands in.
func (w *waiter) waitingLine() lockstore.LineKey {
	if w.r.Fair {
		return w.id.Line().Fairly()
	}
	return w.id.Line()
}

// join puts a waiter at the end of its line; in a fair one at the place that it has in Redis. place is as in wait.
func (ls *lines) join(w *waiter, place int64) {
	w.timer = time.NewTimer(time.Hour)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.c.waits = w
	key := w.waitingLine()
	l := ls.byKey[key]
	if l == nil {
		l = &line{key: key, wake: make(chan struct{}, 1), hearsay: make(chan struct{}, 1), lot: jitter.N[int64](1 << 30)}
		ls.byKey[key] = l
		if key.Fair {
			ls.beginQueue(l)
		} else {
			l.subscription = ls.store.Subscribe(key.Channel(), l.hearsay)
			l.own = ls.store.Subscribe(key.Channel()+":"+ls.opts.UUID, l.wake)
		}
	}
	w.line, w.place = l, l.waiters.PushBack(w)
	l.place = cmp.Or(l.place, place)
	if !w.id.Kind.Spec().Shared {
		l.alone++
	}
	if w.r.Owner != "" {
		ls.named[w.id] = append(ls.named[w.id], w)
	}
	w.order()
	ls.waiting++
}

// order moves a waiter to its place by ticket. If the line has another head then, both are told, and the new one tries
// at once: a message that the former one has heard may have been meant for it. lines.mu is held.
func (w *waiter) order() {
	l := w.line
	was, at := l.waiters.Front(), l.waiters.Back()
	for at != nil && (at == w.place || at.Value.(*waiter).ticket > w.ticket) {
		at = at.Prev()
	}
	if at == nil {
		l.waiters.MoveToFront(w.place)
	} else {
		l.waiters.MoveAfter(w.place, at)
	}
	if is := l.waiters.Front(); is != was {
		retry.Wake(was.Value.(*waiter).changed)
		retry.Wake(is.Value.(*waiter).changed)
		l.Wake()
	}
}

// first says whether the waiter is the head of its line. lines.mu is held.
func (w *waiter) first() bool { return w.line.waiters.Front() == w.place }

// headAfter is how long after a grant the next waiter learns that it is the head of its line now. It has nothing to do
// as such while the lock is held, and most are handed the lock before.
const headAfter = 5 * time.Millisecond

// hearsayApart is how far apart in time, on average, those try that hear that a lock may be free, since they may be many.
const hearsayApart = 10 * time.Millisecond

// leave takes a waiter out of its line; the next one becomes the head. That one tries at once if it would share the
// lock while the waiter wanted it alone and was not granted it: what kept the waiter out may let the next one in, and
// no message says so.
func (ls *lines) leave(w *waiter, granted bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.c.waits = nil
	w.timer.Stop()
	ls.waiting--
	l, first := w.line, w.first()
	if l.key.Fair && w.hears != nil {
		w.hears.Close()
	}
	l.waiters.Remove(w.place)
	if w.r.Owner != "" {
		ls.named[w.id] = slices.DeleteFunc(ls.named[w.id], func(x *waiter) bool { return x == w })
		if len(ls.named[w.id]) == 0 {
			delete(ls.named, w.id)
		}
	}
	if !w.id.Kind.Spec().Shared {
		l.alone--
	}
	next := l.waiters.Front()
	switch {
	case next == nil:
		delete(ls.byKey, l.key)
		if l.key.Fair {
			close(l.gone)
		} else {
			l.subscription.Close()
			l.own.Close()
			if !granted || w.id.Kind == Limit { // this proxy may have been told when nobody heard it any more, and is to be told no more
				now, here := time.Now(), w.id
				if granted { // what the last holder left for those that listen goes when this proxy listens no more
					now = now.Add(expirySlack)
				}
				if here.Owner = ls.opts.UUID; l.key.Kind == Write {
					here.Kind = Read
				}
				ls.store.Vacate(here, now, now)
			}
		}
	case first:
		is := next.Value.(*waiter)
		if granted {
			is.timer.Reset(min(headAfter, time.Until(l.tryAt)))
			if behind := next.Next(); l.key.Fair && behind != nil {
				behind.Value.(*waiter).timer.Reset(headAfter)
			}
			return
		}
		retry.Wake(is.changed)
		if !w.id.Kind.Spec().Shared && is.id.Kind.Spec().Shared {
			l.Wake()
		}
	}
}

// inFront says whether others of this proxy wait before a newcomer. One that would wait, too, stands in their line; in the
// fair queue places are given by Redis, which everybody asks for one. One that does not wait must not pass those that wait
// to have the lock for themselves; while their line cannot reach Redis the newcomer asks by itself, and gets the error.
func (ls *lines) inFront(r Request, id lockstore.ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byKey[id.Line()]
	if r.Blocks {
		return !r.Fair && l != nil
	}
	return l != nil && l.alone > 0 && !l.troubled
}

// count is how many wait.
func (ls *lines) count() int64 {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.waiting
}

// waitingAt is how many wait for a lock, of whatever kind.
func (ls *lines) waitingAt(db int, key string) (n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, kind := range lockstore.HoldKinds {
		k := lockstore.LineKey{DB: db, Key: key, Kind: kind}
		for _, l := range [...]*line{ls.byKey[k], ls.byKey[k.Fairly()]} {
			if l != nil {
				n += l.waiters.Len()
			}
		}
	}
	return n
}

// placeOf is what a waiter asks with: its place in the fair queue, or its proxy's among those that are woken, if any.
func (ls *lines) placeOf(w *waiter) int64 {
	if w == nil || w.line == nil {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.asksAt()
}

// asksAt is placeOf of one that stands in a line. lines.mu is held.
func (w *waiter) asksAt() int64 {
	if w.r.Fair {
		return w.ticket
	}
	return w.line.place
}

// tried notes what came of a waiter's try, and sets when the head of its line tries.
func (ls *lines) tried(w *waiter, got Grant, err error) {
	if w.splits++; !got.Split {
		w.splits = 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, refused := w.line, errors.Is(err, ErrNotAcquired)
	l.troubled = err != nil && !refused
	l.others = got.Others // none are known after a grant, or without an answer
	switch {
	case !w.r.Fair:
		l.place = got.Place
	case refused && got.Place != 0 && got.Place != w.ticket:
		w.ticket = got.Place
		w.order()
	}
	switch {
	case err == nil:
		// The next in line need not try now, since the lock is held and messages reach it, unless it can share the lock:
		// then the next ones try side by side.
		most := min(got.Left, sharedAtOnce)
		if w.r.Kind.Spec().Shared {
			most = sharedAtOnce
		}
		w.callNext(most)
		l.tryNext(w.r.lease(ls.opts), ls.opts.Poll)
	case !refused:
		l.tryNext(troubledPoll, ls.opts.Poll)
	case w.first():
		l.tryNext(l.comeAgain(got.Turn, got.TTL), ls.opts.Poll)
	}
}

// sharedAtOnce is how many waiters that may share a lock try for it when one of them has got it. Each of them calls as
// many.
const sharedAtOnce = 8

// callNext makes those try, so many at most, that stand behind a waiter and may share the lock with it, up to the first that
// wants it alone. lines.mu is held.
func (w *waiter) callNext(most int64) {
	called := int64(0)
	for at := w.place.Next(); at != nil && called < most; at = at.Next() {
		next := at.Value.(*waiter)
		if next.id.Kind != w.id.Kind {
			return
		}
		if next.called || next.state == claimed {
			continue
		}
		next.call()
		called++
	}
}

// call makes a waiter try although it is not the head of its line. lines.mu is held.
func (w *waiter) call() {
	w.called = true
	retry.Wake(w.changed)
}

// callOwner makes the other verbs try that wait for a lock in the name of an owner that has just been given it: it has
// the lock.
func (ls *lines) callOwner(id lockstore.ID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, w := range ls.named[id] {
		w.call()
	}
}

// troubledPoll is the longest time in ms between tries while Redis is away.
const troubledPoll = 250

// lookers is how many of the proxies that wait for one lock look after it by the clock, however many wait: they all look, the
// less often the more they are, and some that the lot has chosen look when the lease is over.
const lookers = 4

// tryNext sets when the head tries by itself: when the lease that it saw is over, and after most at the latest, or later if
// many others look as well; with some jitter, since the heads of other proxies wait, too. ttl is in ms, negative = the key
// is gone or has no TTL. lines.mu is held.
func (l *line) tryNext(ttl int64, most time.Duration) {
	most = most * time.Duration(max(l.others+1, lookers)) / lookers
	poll := most/2 + jitter.N(most/2)
	left := lockstore.Milliseconds(max(ttl, 0)) + time.Millisecond + jitter.N(2*time.Millisecond)
	if ttl != -1 && l.lot%(l.others+1) < lookers {
		poll = min(poll, left)
	}
	l.tryAt = time.Now().Add(poll)
}

// waitOf is the lock that a client waits for, and for how long it has; "": none.
func (ls *lines) waitOf(c *Client) (key string, waited time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w := c.waits; w != nil {
		return w.id.Key, time.Since(w.since)
	}
	return "", 0
}

// wakeIf makes all who wait for some keys try: messages may have been missed.
func (ls *lines) wakeIf(some func(key string) bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key, l := range ls.byKey {
		if some(key.Key) {
			l.Wake()
			if l.key.Fair {
				retry.Wake(l.keep)
			}
		}
	}
}
