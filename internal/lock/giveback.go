package lock

import (
	"context"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// giveBacks gives back what nobody wants any more: the locks of connections that have gone, those that have ended here
// and may still be in Redis, and grants that nobody was told of.
type giveBacks struct {
	*life
	log   *slog.Logger
	store lockstore.Store
	holds *holds
	lines *lines // those that may be handed the lock
}

func newGiveBacks(l *life, o ManagerOptions, hs *holds, ls *lines) *giveBacks {
	return &giveBacks{life: l, log: o.Logger, holds: hs, lines: ls}
}

// releaseAtOnce is how many locks are released side by side, at one node.
const releaseAtOnce = 32

// releaseLater gives back holds in the background, those at different nodes side by side.
func (g *giveBacks) releaseLater(all []*record, release func(*record)) {
	if len(all) == 0 {
		return
	}
	g.background(func() {
		atEachNode(g.store, all, func(rec *record) string { return rec.id.Key }, func(there []*record) {
			var group errgroup.Group
			group.SetLimit(releaseAtOnce)
			for _, rec := range there {
				group.Go(func() error { release(rec); return nil })
			}
			_ = group.Wait() // release reports by itself
		})
	})
}

// atEachNode calls work with the locks of each node of a cluster, in their order and side by side, so that a node that
// hangs holds up no locks on others. key returns the name of a lock.
func atEachNode[T any](store lockstore.Store, locks []T, key func(T) string, work func(there []T)) {
	nodes := map[any][]T{}
	for _, l := range locks {
		at := store.Location(key(l)).Node
		nodes[at] = append(nodes[at], l)
	}
	if len(nodes) == 1 {
		work(locks) // nobody else is held up
		return
	}
	var group sync.WaitGroup
	for _, there := range nodes {
		group.Go(func() { work(there) })
	}
	group.Wait()
}

// giveBack gives back a connection's hold, on which a step may be under way.
func (g *giveBacks) giveBack(id lockstore.ID) {
	if rec, _ := g.holds.enterHeld(context.Background(), id, forEver, nil); rec != nil {
		g.giveBackBusy(rec)
	}
}

// giveBackBusy is giveBack of a record that is busy, and leaves it.
func (g *giveBacks) giveBackBusy(rec *record) {
	u := g.holds.givingBack(rec)
	if u == nil {
		return
	}
	if _, err := u.run(context.Background(), g); err != nil {
		g.log.Warn("a lock whose client has gone is not given back yet", "key", rec.id.Key, "owner", rec.id.Owner,
			"error", err)
	}
}

// givingBack is the step that gives back a hold; nil: there is none, or it runs out, and the record has been left. From
// now on the hold is not renewed.
func (hs *holds) givingBack(rec *record) *unlocking {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !rec.live() || rec.is == runsOut {
		hs.leaveToExpire(rec)
		hs.free(rec)
		return nil
	}
	u := hs.unlocking(rec, rec.id.Kind, lockstore.Counts{})
	u.Whole = true
	hs.happen(rec, notUnlocked{})
	return u
}

// leaveToExpire ends a hold here, and lets it run out in Redis.
func (hs *records) leaveToExpire(rec *record) {
	if rec.live() {
		over := hs.time(rec.sure)
		hs.store.Vacate(rec.id.As(rec.kindOf(rec.counts)), over, over.Add(expirySlack))
		hs.happen(rec, left{})
	}
}

// clear tells Redis what a connection has of a lock, after a reply was lost, or that it has none any more. The record
// is busy, and left.
func (g *giveBacks) clear(rec *record) {
	h := g.holds.peek(rec.id)
	if h.clear == 0 {
		g.holds.leave(rec)
		return // a verb has told it meanwhile
	}
	has := h.wanted().counts
	_, err := g.store.Release(context.Background(),
		&lockstore.Release{ID: rec.id, Counts: has, Whole: has.Total() == 0})
	g.holds.leave(rec, cleared{err == nil, rec.id.Kind.Spec().RW})
	if err != nil {
		g.log.Debug("a lock that has ended may still be in Redis, trying again", "key", rec.id.Key, "owner",
			rec.id.Owner, "error", err)
	}
}

// takeBack gives back a grant to a named owner that nobody was told of, if this grant has made the hold and nobody has
// joined it since.
func (g *giveBacks) takeBack(id lockstore.ID, got lockstore.Acquired) {
	if !got.Made || got.Expiry == nil {
		return
	}
	_, err := g.store.Release(context.Background(), &lockstore.Release{ID: id, Named: true, Expiry: got.Expiry})
	if err != nil {
		g.log.Warn("a grant that nobody was told of is left to its lease", "key", id.Key, "owner", id.Owner, "error",
			err)
	}
}
