package lock

import (
	"container/list"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Who lost a lock is told so at every verb about it until it takes the lock again. A connection's losses are remembered for as long
// as it lives, a named owner's for as long as its lease was. What other clients lose makes nobody forget.

const (
	// lossesOfOne bounds what one connection has remembered, in bytes, of its own losses and again of those in named owners' names;
	// lossOverhead is what a loss takes beside the lock's name, namedOverhead that of a named owner beside both names.
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

// namedLosses are the losses of named owners, each until its time is over, or until the connection that held the lock has lost too many
// since.
type namedLosses struct {
	mu    sync.Mutex
	known map[lockstore.ID]*namedLoss
	ends  agenda.Agenda[*namedLoss]
}

type namedLoss struct {
	lossRecord
	id    lockstore.ID
	until time.Time
	place int
	own   *ownNamed     // nil: the connection had gone
	mine  *list.Element // there
}

// ownNamed are those that one connection held. namedLosses.mu guards it.
type ownNamed struct {
	all   list.List // of *namedLoss, the oldest first
	bytes int
}

func (l *namedLoss) size() int { return len(l.id.Key) + len(l.id.Owner) + namedOverhead }

func newNamedLosses() *namedLosses {
	return &namedLosses{
		known: map[lockstore.ID]*namedLoss{},
		ends:  agenda.New(func(l *namedLoss) time.Time { return l.until }, func(l *namedLoss) *int { return &l.place }),
	}
}

// add notes what c held; nil: its connection had gone.
func (n *namedLosses) add(id lockstore.ID, c *Client, l lossRecord, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was := n.known[id]; was != nil {
		n.drop(was)
	}
	one := &namedLoss{lossRecord: l, id: id, until: until}
	n.known[id] = one
	n.ends.Put(one)
	if c == nil {
		return
	}
	if c.namedLosses == nil {
		c.namedLosses = &ownNamed{} // apart from the client, which is not to be kept for as long
	}
	one.own = c.namedLosses
	one.mine = one.own.all.PushBack(one)
	for one.own.bytes += one.size(); one.own.bytes > lossesOfOne; {
		n.drop(one.own.all.Front().Value.(*namedLoss))
	}
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
		n.drop(one)
	}
}

// drop forgets one. mu is held.
func (n *namedLosses) drop(one *namedLoss) {
	n.ends.Drop(one)
	delete(n.known, one.id)
	if one.own != nil {
		one.own.all.Remove(one.mine)
		one.own.bytes -= one.size()
	}
}

// sweep forgets those whose time is over.
func (n *namedLosses) sweep(now time.Time) {
	for n.sweepSome(now) {
	}
}

// sweepSome is sweep for so many that others do not wait for mu for long; it says whether there are more.
func (n *namedLosses) sweepSome(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range tellAtOnce {
		one, over := n.ends.Due(now)
		if !over {
			return false
		}
		n.drop(one)
	}
	return true
}

// rememberLoss keeps what was lost for its owner to be told. mu is held.
func (hs *holds) rememberLoss(h *hold, l lossRecord) {
	switch {
	case h.explicit:
		hs.named.add(h.id, h.client, l, l.at.Add(min(max(h.lease, hs.opts.Watchdog, lossKeptLeast), max(lossKeptMost, hs.opts.Watchdog))))
	case h.client != nil:
		h.client.losses.add(h.id, l)
	}
}

// lossOf is what is remembered of a loss of this connection, or of a named owner.
func (c *Client) lossOf(id lockstore.ID) (lossRecord, bool) {
	if id.Owner == c.owner {
		return c.losses.get(id)
	}
	return c.m.named.get(id)
}

// forgetLoss is for a lock that is taken again.
func (c *Client) forgetLoss(id lockstore.ID) {
	if id.Owner == c.owner {
		c.losses.remove(id)
	} else {
		c.m.named.remove(id)
	}
}

// sweep forgets what is remembered of losses and UNLOCKs whose time is over.
func (hs *holds) sweep(now time.Time) {
	hs.named.sweep(now)
	hs.done.sweep(now)
}

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
