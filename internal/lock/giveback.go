package lock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// giveBacks gives locks back: those that a client releases, those of a client that has gone, and those whose grant nobody was told of.
type giveBacks struct {
	*life
	opts  Options
	log   *slog.Logger
	store lockstore.Store
	holds *holds
	done  *finishedUnlocks
	lines *lines // those that may be handed the lock
}

func newGiveBacks(l *life, o Options, hs *holds, ls *lines) *giveBacks {
	return &giveBacks{life: l, opts: o, log: o.Logger, holds: hs, done: hs.done, lines: ls}
}

// undo gives back a grant that does not count and that nobody was told of. When that takes too long it returns an error, and goes
// on in the background.
func (g *giveBacks) undo(ctx context.Context, a *acquire, ans lockstore.Acquired) error {
	rel := g.newRelease(a.h, a.c, false)
	if a.Named {
		rel.Attempt, rel.keeps = ans.Attempt, ans.Attempt != ""
	}
	if !ans.Raised && rel.Attempt == "" {
		return nil
	}
	rel.Alone = a.Named && !g.store.Rules().Votes
	rel.Count = ans.Count
	if a.Registration != "" {
		rel.Registration = a.Registration
	}
	rel.until = until(ans)
	err, ok := patiently(ctx, g.life, rel.undo, func(error) { g.holds.leave(a.h) })
	if !ok {
		a.handedOn = true
		return &Error{Code: "ERR", Text: "the lock was granted too late and could not be given back yet"}
	}
	return err
}

// undo completes the release of a grant that nobody was told of. It is not remembered as an UNLOCK, since nobody has sent one.
func (r *release) undo() error {
	code, left, err := r.complete()
	if err == nil {
		r.g.holds.released(r.h, r.by, code, left)
		r.g.done.remove(r.h.id)
		r.g.readEnded(r.ID)
	}
	return err
}

// releaseAtOnce is how many locks of one client that has gone are released side by side, at one node.
const releaseAtOnce = 32

// releaseLater gives back holds of a connection that has gone.
func (g *giveBacks) releaseLater(holds []*hold, grace time.Duration, release func(*hold)) {
	if len(holds) == 0 {
		return
	}
	g.background(func() { g.releaseAfter(grace, holds, release) })
}

// releaseAfter waits for the time of grace and gives back holds then, those at different nodes side by side.
func (g *giveBacks) releaseAfter(grace time.Duration, holds []*hold, release func(*hold)) {
	if grace > 0 {
		g.sleep(context.Background(), grace)
	}
	atEachNode(g.store, holds, func(h *hold) string { return h.id.Key }, func(there []*hold) { releaseAll(there, release) })
}

// releaseAll gives back holds at one node.
func releaseAll(there []*hold, release func(*hold)) {
	var group errgroup.Group
	group.SetLimit(releaseAtOnce)
	for _, h := range there {
		group.Go(func() error { release(h); return nil })
	}
	_ = group.Wait() // release reports by itself
}

// atEachNode calls work with the locks of each node of a cluster, in their order and side by side, so that a node that hangs holds
// up no locks on others. key returns the name of a lock.
func atEachNode[T any](store lockstore.Store, locks []T, key func(T) string, work func(there []T)) {
	nodes := map[any][]T{}
	for _, l := range locks {
		at := store.Lane(key(l)).Node
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

// enterAndGiveBack is giveBack for a hold that others may be working on.
func (g *giveBacks) enterAndGiveBack(was *hold) {
	if h, err := g.holds.enter(context.Background(), was.id, was.named); err == nil {
		g.giveBack(h)
	}
}

// giveBack releases all of one owner's holds, unless an earlier command of the owner may still take effect. The hold is busy, and
// left.
func (g *giveBacks) giveBack(h *hold) {
	defer g.holds.leave(h)
	rel := g.newRelease(h, nil, true)
	if doubt := g.holds.noteClientGone(h); doubt || rel.Count == 0 {
		g.holds.leaveToExpire(h)
		return
	}
	code, left, err := rel.complete()
	if err != nil {
		g.log.Warn("cannot release a lock whose client has gone: it stays locked until its lease is over",
			"key", h.id.Key, "owner", h.id.Owner, "error", err)
	} else {
		g.holds.released(h, nil, code, left)
	}
	g.holds.leaveToExpire(h)
}

// noteClientGone notes that nobody wants a hold renewed any more. doubt is the hold's.
func (hs *holds) noteClientGone(h *hold) (doubt bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.watched = false
	return h.doubt
}

// A lock that was reported lost stays lost, even if an answer that came too late shows that Redis has it for longer: it is
// given back then, so that nobody waits for a lease that nobody uses.

// surrenderLater gives back holds that were reported lost, but not before the ends that their holders know of.
func (g *giveBacks) surrenderLater(holds ...*hold) {
	var end time.Duration
	for _, h := range holds {
		end = max(end, time.Until(g.holds.snapshot(h).deadline))
	}
	g.releaseLater(holds, end, g.enterAndSurrender)
}

// enterAndSurrender gives back one hold, unless its owner has taken it again.
func (g *giveBacks) enterAndSurrender(was *hold) {
	h, err := g.holds.enter(context.Background(), was.id, was.named)
	if err != nil {
		return
	}
	defer g.readEnded(h.id) // when it has left the hold
	defer g.holds.leave(h)
	rel := g.newRelease(h, nil, true)
	if rel.Count > 0 {
		return
	}
	// A named owner may be back through another proxy: only what this one renewed is given back, and only if no other LOCK counts on it.
	s := g.holds.snapshot(was)
	rel.Alone, rel.Registration, rel.until = h.named, s.registration, time.Now().Add(s.lease)
	if _, _, err := rel.complete(); err != nil {
		g.log.Warn("cannot release a lock that was reported lost: it stays locked until its lease is over",
			"key", h.id.Key, "owner", h.id.Owner, "error", err)
	}
}

// giveBack releases what was taken, at each node the last one first. When that takes too long it goes on in the background. It
// does not end with the client, who never heard of these locks. The holds are lent to the MULTILOCK until then.
func (b *multiLock) giveBack() {
	if len(b.taken) > 0 {
		patiently(context.Background(), b.c.m.life, b.retractAll, func(struct{}) {})
	}
}

// retractAll takes back everything, at different nodes side by side.
func (b *multiLock) retractAll() struct{} {
	defer b.c.m.holds.endLending(b, false)
	atEachNode(b.c.m.store, b.taken, func(t *taking) string { return t.id.Key }, b.retractThere)
	return struct{}{}
}

// retractThere is retractAll at one node.
func (b *multiLock) retractThere(there []*taking) {
	for _, t := range slices.Backward(there) {
		b.retract(t)
		b.c.m.holds.handBack(t)
	}
}

// retract takes back what one taking added.
func (b *multiLock) retract(t *taking) {
	m := b.c.m
	if t.grant.again && t.grant.attempt == "" {
		b.restore(t)
		return
	}
	h, err := m.holds.enter(context.Background(), t.id, b.r.Owner != "")
	if err != nil {
		return
	}
	s := m.holds.snapshot(h)
	ours := s.count > 0 && (!h.named || s.nth == t.grant.nth || m.store.Rules().Votes) // on a quorum it is taken back by its attempt
	// The owner was given it by another LOCK, too, before or since, or has renewed it: that one's hold stays, whatever the nodes say of this one.
	keeps := t.grant.attempt != "" && (!t.grant.first || s.nth != t.grant.nth)
	if !ours {
		m.holds.leave(h)
		b.restore(t)
		return
	}
	rel := m.giveBacks.newRelease(h, b.c, false)
	rel.Attempt, rel.keeps = t.grant.attempt, keeps
	rel.Alone = h.named && !m.store.Rules().Votes
	code, left, err := rel.complete()
	if code == lockstore.StillHeld && err == nil && rel.Attempt != "" && !keeps && !t.grant.again {
		code = lockstore.Freed // what others count on is another proxy's, or was left behind
	}
	if (code == lockstore.NotHeld || code == lockstore.OtherKind) && left != lockstore.EndedElsewhere && !t.grant.entered {
		code = lockstore.Freed // somebody else has freed it, which is no loss: nobody heard that it was held
	}
	switch {
	case err == nil:
		if _, err = b.c.unlocked(h, t.id.Key, code, left); err == nil {
			m.done.remove(t.id) // nobody heard of it
		}
	case !keeps || !t.until.IsZero():
		m.log.Warn("a MULTILOCK failed, and one of its locks cannot be released: it stays locked until its lease is over",
			"key", t.id.Key, "owner", t.id.Owner, "error", err)
		m.holds.stopRenewing(h)
	}
	m.holds.leave(h)
	if left > 0 {
		b.restore(t)
	} else {
		b.c.readGivenBack(context.Background(), t.id)
	}
}

// restore makes a hold end by itself again that was watched only for the MULTILOCK.
func (b *multiLock) restore(t *taking) {
	if t.watchedBefore() {
		return
	}
	_, err := b.restoreLease(context.Background(), t, 0)
	for errors.Is(err, lockstore.ErrBehind) { // no client waits for this
		_, err = b.restoreLease(context.Background(), t, 0)
	}
	if err == nil {
		return
	}
	b.c.m.log.Warn("a MULTILOCK failed, and a lock cannot get back the lease that it had before: it stays locked until its present lease is over",
		"key", t.id.Key, "owner", t.id.Owner, "error", err)
	b.c.m.holds.stopLent(t)
}

// stopLent ends the renewals of a hold that is renewed for this taking alone.
func (hs *holds) stopLent(t *taking) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h := hs.byID[t.id]; h != nil && len(h.lent) == 1 {
		if _, ours := h.lent[t]; ours {
			hs.runOut(h)
		}
	}
}

// handBack gives a hold back to the connection that kept it before this MULTILOCK, if that connection is still open. If the MULTILOCK's own
// connection has closed meanwhile, that has ended the renewals, and they begin again. If another MULTILOCK has got the hold since, nothing
// is done now: should that one fail, too, its handBack gives the hold to the connection that kept it before both.
func (hs *holds) handBack(t *taking) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	t.failed = true
	h := hs.byID[t.id]
	if h == nil || h.count == 0 || h.by != t {
		return
	}
	var before *Client
	for h.by != nil && h.by.failed {
		before, h.by = h.by.before, h.by.beneath
	}
	if before == nil || before.over {
		return
	}
	if h.client == nil && t.watchedBefore() {
		h.watched = true
		hs.plan(h, time.Now())
	}
	hs.adopt(h, before)
}

// passTo notes how a connection gets a hold: as one lock of a MULTILOCK, with how the hold was kept before, or (nil) by a verb of its own.
// holds.mu is held.
func (h *hold) passTo(t *taking) {
	if t != nil {
		t.before, t.beneath = h.client, h.by
	}
	h.by = t
}

// lend notes for whom a hold is renewed: for a MULTILOCK, until that has all its locks, or (nil) for good. One that is renewed for good
// already stays so. holds.mu is held.
func (h *hold) lend(to *taking) {
	switch {
	case to == nil || h.watched && h.lent == nil:
		h.lent = nil
	case h.lent == nil:
		h.lent = map[*taking]struct{}{to: {}}
	default:
		h.lent[to] = struct{}{}
	}
}

// comeUpon is called with a grant to an owner that had the lock before. It notes what the owner had if that has changed since look asked,
// which may be long ago when the MULTILOCK had to wait. holds.mu is held.
func (t *taking) comeUpon(h *hold, ans lockstore.Acquired) {
	switch {
	case h.count > 0 && h.nth != t.saw: // a verb has named the owner here
		t.until, t.had = h.endsAt(), true
	case ans.Unrenewed && t.until.IsZero(): // a verb has named the owner at another proxy
		t.until = until(ans) // Redis may have had an earlier end for it, which is not known any more
	}
}

// endsAt is when a live hold would end if it were not renewed for MULTILOCKs, as far as this proxy knows; zero: it would not end, because it
// is renewed for good. holds.mu is held.
func (h *hold) endsAt() (end time.Time) {
	switch {
	case !h.watched:
		return h.deadline
	case h.lent == nil:
		return time.Time{}
	}
	end = h.grantedAt
	for t := range h.lent {
		end = lockstore.Later(end, lockstore.Later(t.until, t.promised))
	}
	return end
}

// endLending notes that the MULTILOCK is over, so that no hold is renewed for it any more. If it has got its locks, and they have no lease,
// they are renewed for good.
func (hs *holds) endLending(b *multiLock, got bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, t := range b.taken {
		h := hs.byID[t.id]
		if h == nil {
			continue
		}
		if got {
			if t.beneath = nil; h.by == t {
				h.by = nil
			}
		}
		_, lent := h.lent[t]
		if delete(h.lent, t); len(h.lent) == 0 || lent && got && b.r.Lease == 0 {
			h.lent = nil
		}
	}
}

// forgetEnd notes that no earlier hold is to be restored with its end.
func (hs *holds) forgetEnd(t *taking) {
	hs.mu.Lock()
	t.until = time.Time{}
	hs.mu.Unlock()
}

// leaveToOthers leaves a hold to other MULTILOCKs for which it is renewed, too, if there are any. It tells them that the hold is to last for
// so many ms more even if they fail.
func (hs *holds) leaveToOthers(t *taking, h *hold, lease int64) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if len(h.lent) == 1 {
		return false
	}
	delete(h.lent, t)
	for other := range h.lent {
		other.promised = lockstore.Later(other.promised, time.Now().Add(lockstore.Milliseconds(lease)))
	}
	return true
}
