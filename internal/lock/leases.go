package lock

import (
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/agenda"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// leases is what was granted to named owners through this proxy, for LOCKLIST, the page and their users' shares. It
// decides nothing: everything about such a lock is in Redis. What is noted here ends with the lease, also if the owner
// has renewed the lock, or given it back, elsewhere.
type leases struct {
	vacate func(id lockstore.ID, at, until time.Time) // wakes those that wait for a lock whose lease is over
	events *events.Log
	shares *shares

	mu   sync.Mutex // a leaf, but for that of shares
	byID map[lockstore.ID]*lease
	ends agenda.Agenda[*lease]
}

// lease is one of them.
type lease struct {
	id      lockstore.ID
	client  int64         // the number of the connection that named the owner last,
	by      events.Client // and who that was
	granted time.Time     // when it was first noted
	length  time.Duration // as the owner has chosen it last
	until   time.Time
	user    User // for whom it counts: as whom the owner was named last
	place   int32
}

func newLeases(to *events.Log, s *shares) *leases {
	return &leases{
		shares: s,
		events: to,
		byID:   map[lockstore.ID]*lease{},
		ends:   agenda.New(func(l *lease) *int32 { return &l.place }),
	}
}

// note notes a lease that was granted or renewed through a connection.
func (ls *leases) note(c *Client, id lockstore.ID, length time.Duration, until time.Time) {
	by := c.who() // asks the connection, so no mutex is held
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byID[id]
	switch {
	case l == nil:
		l = &lease{id: id, granted: time.Now()}
		ls.byID[id] = l
		c.share.hold()
	case l.user != c.share.user:
		ls.shares.count(l.user, -1)
		c.share.hold()
	}
	l.client, l.by, l.length, l.until, l.user = c.info.ID, by, length, until, c.share.user
	ls.ends.Put(l, until)
}

// counts says whether a lease is noted that counts for the client's user already.
func (ls *leases) counts(c *Client, id lockstore.ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byID[id]
	return l != nil && l.user == c.share.user
}

// noted says whether a lease is noted.
func (ls *leases) noted(id lockstore.ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byID[id] != nil
}

// forget drops the note of a lease that the owner has given back, and says since when the owner had it; zero: that was
// not noted.
func (ls *leases) forget(id lockstore.ID) (granted time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byID[id]; l != nil {
		ls.drop(l)
		granted = l.granted
	}
	return granted
}

// drop is forget for a caller that has mu.
func (ls *leases) drop(l *lease) {
	ls.ends.Drop(l)
	delete(ls.byID, l.id)
	ls.shares.count(l.user, -1)
}

// watchLeases drops the notes of leases that are over, until ctx ends.
func (ls *leases) watchLeases(ctx context.Context) {
	rounds(ctx, ls.ends.Wake, func() time.Duration { return ls.sweep(time.Now()) })
}

// sweep drops those that are over, and has those woken that wait for them. It says in how long to come again.
func (ls *leases) sweep(now time.Time) (next time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for range tellAtOnce {
		l, over := ls.ends.Due(now)
		if !over {
			return ls.ends.Sleep(tick)
		}
		ls.drop(l)
		if e := eventOf(events.End, l.until, l.id); events.Long(l.until.Sub(l.granted)) {
			e.Held, e.Reason = l.until.Sub(l.granted), reasonExpired
			e.Client = l.by
			ls.events.Add(e)
		}
		ls.vacate(l.id, now, l.until.Add(expirySlack))
	}
	return 0
}

// count is how many there are.
func (ls *leases) count() int64 {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return int64(len(ls.byID))
}
