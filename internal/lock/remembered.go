package lock

import (
	"container/list"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// An owner that lost a lock is told so by every verb about it until it takes the lock again. A connection's losses are remembered for
// as long as it lives, a named owner's for as long as its lease was. They are never forgotten because of what other clients lose.

const (
	// lossesOfOne is the most, in bytes, that is remembered for one connection of each of three things: its own losses, losses of named owners,
	// and UNLOCKs of named owners. What is remembered of named owners goes to the user when a connection closes: all closed connections of one
	// user have as much together. lossOverhead is what a loss takes beside the lock's name, namedOverhead what an entry about a named owner
	// takes beside the names of the lock and the owner.
	lossesOfOne   = 16 << 20
	lossOverhead  = 160
	namedOverhead = 320
	// lossKeptLeast and lossKeptMost are the shortest and the longest that a named owner's loss is remembered, whatever its lease was.
	lossKeptLeast, lossKeptMost = time.Minute, time.Hour
)

// ownLosses are the losses of one connection. The oldest go when they are too many.
type ownLosses struct {
	mu    sync.Mutex
	known *simplelru.LRU[lockstore.ID, lossRecord] // nil: it has lost nothing
	bytes int
}

func (o *ownLosses) add(id lockstore.ID, l lossRecord) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		// NewLRU fails for a size below 1 only.
		o.known, _ = simplelru.NewLRU(lossesOfOne/lossOverhead, func(id lockstore.ID, _ lossRecord) { o.bytes -= len(id.Key) + lossOverhead })
	}
	o.known.Remove(id)
	o.known.Add(id, l)
	for o.bytes += len(id.Key) + lossOverhead; o.bytes > lossesOfOne; {
		o.known.RemoveOldest()
	}
}

func (o *ownLosses) get(id lockstore.ID) (l lossRecord, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		return l, false
	}
	return o.known.Peek(id)
}

func (o *ownLosses) remove(id lockstore.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known != nil {
		o.known.Remove(id)
	}
}

// account is the losses, or the UNLOCKs, of named owners that are remembered for one connection, or for all closed connections of one user.
// The mutex of namedLosses or of finishedUnlocks guards it.
type account struct {
	all    list.List // of remembered, the oldest first
	bytes  int
	user   string // of the connection, or connections, when closed
	closed bool   // the connection has closed: what is added now goes to its user's account
}

// remembered is one entry of an account.
type remembered interface{ charged() *owned }

// owned is in which account an entry is. The zero value is in none.
type owned struct {
	own  *account
	mine *list.Element // its place there
	size int           // in bytes
}

func (o *owned) charged() *owned { return o }

func sized(id lockstore.ID) owned { return owned{size: len(id.Key) + len(id.Owner) + namedOverhead} }

// accounts are those of users, with what is remembered for connections that have closed. An account is dropped when it is empty.
type accounts struct {
	left map[string]*account // by user
	drop func(remembered)    // forgets an entry, and discharges it
}

// charge puts an entry into a connection's account, or into its user's if the connection has closed. If that has too much, then, the oldest
// entries there are forgotten.
func (as *accounts) charge(own *account, one remembered) {
	if own.closed {
		user := own.user
		if own = as.left[user]; own == nil {
			own = &account{user: user}
			as.left[user] = own
		}
	}
	o := one.charged()
	o.own, o.mine = own, own.all.PushBack(one)
	for own.bytes += o.size; own.bytes > lossesOfOne; {
		as.drop(own.all.Front().Value.(remembered))
	}
}

// discharge takes an entry out of its account.
func (as *accounts) discharge(one remembered) {
	o := one.charged()
	o.own.all.Remove(o.mine)
	if o.own.bytes -= o.size; o.own.bytes == 0 && as.left[o.own.user] == o.own {
		delete(as.left, o.own.user)
	}
}

// closes moves what is remembered for a connection that has closed to its user's account. It lets mu go after every tellAtOnce entries, so
// that others do not wait for long.
func (as *accounts) closes(mu *sync.Mutex, own *account, user string) {
	for more := true; more; {
		mu.Lock()
		own.user, own.closed = user, true
		for range tellAtOnce {
			first := own.all.Front()
			if more = first != nil; !more {
				break
			}
			one := first.Value.(remembered)
			as.discharge(one)
			as.charge(own, one)
		}
		mu.Unlock()
	}
}

// namedLosses are the losses of named owners, each until its time is over, or until the connection that held the lock, or the user's that have
// closed, have lost too many since.
type namedLosses struct {
	mu    sync.Mutex
	known map[lockstore.ID]*namedLoss
	ends  agenda.Agenda[*namedLoss]
	accounts
}

type namedLoss struct {
	lossRecord
	owned
	id    lockstore.ID
	until time.Time
	place int
}

func newNamedLosses() *namedLosses {
	n := &namedLosses{
		known: map[lockstore.ID]*namedLoss{},
		ends:  agenda.New(func(l *namedLoss) time.Time { return l.until }, func(l *namedLoss) *int { return &l.place }),
	}
	n.accounts = accounts{map[string]*account{}, func(one remembered) { n.forget(one.(*namedLoss)) }}
	return n
}

// add notes what the connection of that account held, or held last.
func (n *namedLosses) add(id lockstore.ID, own *account, l lossRecord, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was := n.known[id]; was != nil {
		n.forget(was)
	}
	one := &namedLoss{lossRecord: l, owned: sized(id), id: id, until: until}
	n.known[id] = one
	n.ends.Put(one)
	n.charge(own, one)
}

func (n *namedLosses) get(id lockstore.ID) (l lossRecord, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.known[id]
	if one == nil || time.Now().After(one.until) {
		return l, false
	}
	return one.lossRecord, true
}

func (n *namedLosses) remove(id lockstore.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if one := n.known[id]; one != nil {
		n.forget(one)
	}
}

// forget is the accounts' drop. mu is held.
func (n *namedLosses) forget(one *namedLoss) {
	n.ends.Drop(one)
	delete(n.known, one.id)
	n.discharge(one)
}

// sweep forgets those whose time is over.
func (n *namedLosses) sweep(now time.Time) {
	for n.sweepSome(now) {
	}
}

// sweepSome is sweep for at most tellAtOnce, so that others do not wait for mu for long; it says whether there are more.
func (n *namedLosses) sweepSome(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range tellAtOnce {
		one, over := n.ends.Due(now)
		if !over {
			return false
		}
		n.forget(one)
	}
	return true
}

// rememberLoss keeps what was lost for its owner to be told. mu is held.
func (hs *holds) rememberLoss(h *hold, l lossRecord) {
	switch {
	case h.named:
		hs.namedLosses.add(h.id, h.own, l, l.at.Add(min(max(h.lease, hs.opts.Watchdog, lossKeptLeast), max(lossKeptMost, hs.opts.Watchdog))))
	case h.client != nil:
		h.client.losses.add(h.id, l)
	}
}

// lossOf is what is remembered of a loss of this connection, or of a named owner.
func (c *Client) lossOf(id lockstore.ID) (lossRecord, bool) {
	if id.Owner == c.owner {
		return c.losses.get(id)
	}
	return c.m.namedLosses.get(id)
}

// forgetLoss forgets a loss, because the lock is taken again.
func (c *Client) forgetLoss(id lockstore.ID) {
	if id.Owner == c.owner {
		c.losses.remove(id)
	} else {
		c.m.namedLosses.remove(id)
	}
}

// sweep forgets what is remembered of losses and UNLOCKs whose time is over.
func (hs *holds) sweep(now time.Time) {
	hs.namedLosses.sweep(now)
	hs.done.sweep(now)
}

// finishedFor is how long a repeated UNLOCK of a finished hold gets the first one's answer.
const finishedFor = 30 * time.Second

// finishedUnlocks are the UNLOCKs of named owners that have freed their locks, over whichever connection. They are forgotten when
// their time is over, or when the connection that sent them, or the user's that have closed, have sent too many since: what other clients do
// makes nobody forget.
type finishedUnlocks struct {
	mu     sync.Mutex // a leaf; guards all below, and the accounts
	known  map[lockstore.ID]*finishedUnlock
	all    list.List // of *finishedUnlock, the oldest first
	nobody account   // of those that no connection has asked for
	accounts
}

type finishedUnlock struct {
	owned
	id    lockstore.ID
	at    time.Time
	inAll *list.Element
}

func newFinishedUnlocks() *finishedUnlocks {
	f := &finishedUnlocks{known: map[lockstore.ID]*finishedUnlock{}}
	f.accounts = accounts{map[string]*account{}, func(one remembered) { f.forget(one.(*finishedUnlock)) }}
	return f
}

// add notes an UNLOCK that the connection by has sent; nil: none has.
func (f *finishedUnlocks) add(id lockstore.ID, by *Client, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.known[id]; was != nil {
		f.forget(was)
	}
	own := &f.nobody
	if by != nil {
		own = by.finished
	}
	one := &finishedUnlock{owned: sized(id), id: id, at: at}
	f.known[id], one.inAll = one, f.all.PushBack(one)
	f.charge(own, one)
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
		f.forget(one)
	}
}

// forget is the accounts' drop. mu is held.
func (f *finishedUnlocks) forget(one *finishedUnlock) {
	delete(f.known, one.id)
	f.all.Remove(one.inAll)
	f.discharge(one)
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
		f.forget(first.Value.(*finishedUnlock))
	}
	return true
}
