package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// MultiLock takes the locks at all of keys for one owner, or none of them. r says how, as for Lock; its Key is not used. A
// key named twice is one lock, taken once. The grants are in the order of keys.
//
// The locks are taken one by one in bytewise order, which every proxy has in common, so that no two MultiLocks wait for each
// other. Each is taken as Lock takes it. r.Block is the time for all of them together: when it is over those that are left
// are still tried once.
//
// While later locks are waited for the earlier ones are watched, whatever r.Lease says: none of them ends meanwhile, a lease of r.Lease
// begins for all of them together when the last one is there, and a proxy that dies in between leaves what a watched lock leaves. A hold
// that the owner had before, or that another connection has asked for or renewed meanwhile, is never shortened. It is watched after this
// if it was before; without r.Lease it is watched from now on, as by Lock.
//
// When a lock is refused, lost meanwhile (LOCKLOST), or r.Lease is over before the outcome of all is known (ErrNotAcquired), those
// that were taken are given back, at each node in reverse order; so they are when ctx ends. A hold the owner had before is left as it
// was: with its count, the end it would have had, and the connection that kept it; one that another connection has asked for or
// renewed meanwhile stays as that has it. Errors are Lock's, and LOCKLOST.
func (c *Client) MultiLock(ctx context.Context, keys []string, r Request) ([]Grant, error) {
	began := time.Now()
	ctx, span := telemetry.Span(ctx, "MULTILOCK")
	defer span.End()
	grants, err := c.multiLock(ctx, keys, r)
	took := time.Since(began)
	telemetry.VerbDone(ctx, "multilock", outcomeWord(err), took)
	c.m.answered(ctx, err, r.Kind, len(canonical(keys)), took)
	return grants, err
}

// canonical is the order in which locks that are held together are taken.
func canonical(keys []string) []string {
	order := slices.Clone(keys)
	slices.Sort(order)
	return slices.Compact(order)
}

// multiLock is the locks that one MULTILOCK has taken so far.
type multiLock struct {
	c     *Client
	r     Request
	began time.Time
	taken []*taking
}

// taking is one lock that a MULTILOCK takes, and what its owner had of it before, which is restored if the MULTILOCK fails.
type taking struct {
	id    lockstore.ID
	grant Grant
	at    time.Time // when the lock was asked for
	had   bool      // the owner had, or may have had, the lock before
	saw   int64     // hold.nth of the owner's hold, if look has found one that nobody renewed; else 0

	// guarded by holds.mu
	until    time.Time // when the owner's earlier hold would have ended; zero: there was none, or it was renewed
	promised time.Time // the hold is to last until then for another MULTILOCK, which is over: see leaveToOthers
	before   *Client   // the connection that kept the hold before this taking
	beneath  *taking   // the taking by which before had got the hold; nil: it had got it by a verb of its own, or this MULTILOCK has its locks
	failed   bool      // the MULTILOCK has failed, and no connection keeps the hold by this taking any more
}

func (c *Client) multiLock(ctx context.Context, keys []string, r Request) ([]Grant, error) {
	if err := c.m.nameable(keys...); err != nil {
		return nil, err
	}
	b := &multiLock{c: c, r: r, began: time.Now()}
	err := b.takeAll(ctx, canonical(keys))
	if err != nil {
		b.giveBack()
		return nil, err
	}
	c.m.holds.endLending(b, true)
	tokens := make(map[string]Grant, len(b.taken))
	for _, t := range b.taken {
		tokens[t.id.Key] = t.grant
	}
	grants := make([]Grant, len(keys))
	for i, key := range keys {
		grants[i] = tokens[key]
	}
	return grants, nil
}

func (b *multiLock) takeAll(ctx context.Context, order []string) error {
	for _, key := range order {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := b.take(ctx, key, len(order) > 1); err != nil {
			return err
		}
	}
	if len(order) == 1 {
		return nil
	}
	b.lookAtAll(ctx)
	// Side by side, so that the leases begin together; the connection's own goroutine waits for them.
	var group errgroup.Group
	group.SetLimit(releaseAtOnce)
	for i, t := range b.taken {
		if b.r.Lease > 0 || i < len(b.taken)-1 { // the last one is as fresh as LOCK's
			group.Go(func() error { return b.finishTaken(ctx, t) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if b.c.unheard(ctx, b.r) {
		return context.Canceled
	}
	return b.allHeld()
}

// take takes one lock within the time that is left. watched: it is not the only one.
func (b *multiLock) take(ctx context.Context, key string, watched bool) error {
	t, one := &taking{}, b.r
	one.Key = key
	if watched {
		one.Lease, one.lent = 0, t
	}
	if one.Blocks && one.Block > 0 {
		one.Block -= time.Since(b.began).Milliseconds()
		one.Blocks = one.Block > 0 // 0 would be for ever
	}
	id, _ := b.c.id(b.r.Kind, b.r.DB, key, b.r.Owner)
	began := time.Now()
	t.id, t.at = id, began
	if err := b.look(ctx, t); err != nil {
		return err
	}
	g, err := b.c.lock(ctx, one)
	if err == nil {
		if b.c.m.store.Rules().Votes && !t.had {
			g.entered, g.again = false, false // what some nodes had of it was left behind while it was waited for
		}
		t.grant = g
		b.taken = append(b.taken, t)
	}
	return err
}

// look notes what the owner has before it is asked for. An owner with a name may have it through another proxy, too, or may have given back
// there what is held here, or given an end to what is renewed here: if the answer to the request were lost, nobody could tell that hold from a
// new one. On a quorum the attempt tells, but not whether the owner has a lock that some of the nodes have.
func (b *multiLock) look(ctx context.Context, t *taking) error {
	m := b.c.m
	if here := m.holds.find(t.id); b.r.Owner != "" && (b.r.Lease > 0 || !m.store.Rules().Votes) && here.live {
		s, err := m.store.Look(t.id, true, 0, time.Now().Add(time.Second)) // a connection may be lost meanwhile
		if s.Unsure {
			err = errUnsure(t.id)
		} else if err == nil && (s.Count == 0 || here.watched && !s.Watched) {
			err = m.watchdog.lookAgain(ctx, t.id, true, patience)
		}
		if err != nil && here.watched {
			return err
		}
	}
	ours, watched := m.holds.noteBefore(t)
	if watched || b.r.Owner == "" {
		return nil
	}
	s, err := m.store.Look(t.id, true, 0, time.Now())
	if _, young := errors.AsType[*lockstore.YoungError](err); err != nil && !young && b.r.Lease > 0 && m.store.Rules().Votes {
		return err // if some nodes had it, it would not be known whether somebody renews it
	}
	t.had = err != nil || s.Count > 0 || s.Unsure
	watched = s.Watched && !s.Registration.Names(ours) // its renewals have ended here
	if err == nil && s.Unsure && watched && b.r.Lease > 0 {
		return errUnsure(t.id)
	}
	if t.until = (time.Time{}); err == nil && t.had && !watched {
		t.until = s.MayEnd()
	}
	return nil
}

// noteBefore notes what the owner has here before the lock is asked for. known is the hold's registration, if this proxy has one.
func (hs *holds) noteBefore(t *taking) (known lockstore.Registration, watched bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.byID[t.id]
	if t.had = h != nil && h.count > 0; !t.had {
		return "", false
	}
	if t.until = h.endsAt(); !h.watched {
		t.saw = h.nth
	}
	return h.registration, h.watched
}

// finishTaken gives a taken lock the lease asked for, and asks Redis whether it is still there.
func (b *multiLock) finishTaken(ctx context.Context, t *taking) error {
	lease, done := lockstore.Milliseconds(b.r.Lease), false
	var err error
	if lease > 0 && !t.watchedBefore() {
		done, err = b.restoreLease(ctx, t, b.r.Lease)
	}
	if err == nil && (!done || b.r.Replicas > 0) { // RENEW does not wait for replicas
		err = b.confirm(ctx, t, lease)
	}
	if b.r.Owner != "" && isCode(err, "NOTHELD") {
		return b.lockOnceMore(ctx, t)
	}
	return err
}

// lockOnceMore sends LOCK once more for an owner that may have the lock through another proxy by now: then the longer lease counts.
func (b *multiLock) lockOnceMore(ctx context.Context, t *taking) error {
	one := b.r
	one.Key, one.Blocks, one.Fence = t.id.Key, false, false
	g, _, err := b.c.try(ctx, one, nil)
	if err == nil {
		g.Token = t.grant.Token
		t.grant = g
		b.c.m.holds.forgetEnd(t)
	}
	if err == nil && !g.again || errors.Is(err, ErrNotAcquired) {
		return b.missing(t) // it was free meanwhile
	}
	return err
}

// watchedBefore says whether the owner had the hold before, and it was renewed, here or elsewhere.
func (t *taking) watchedBefore() bool { return t.grant.entered && t.until.IsZero() }

// restoreLease makes a hold end by itself again that only this MULTILOCK renews: when it would have ended, but not sooner than in atLeast ms, nor
// sooner than was granted to a LOCK or RENEW for the same owner since. done is false if the hold is left alone: one of those has decided
// about its end, or it has gone.
func (b *multiLock) restoreLease(ctx context.Context, t *taking, atLeast int64) (done bool, err error) {
	elsewhere := b.r.Owner != "" && time.Since(t.at) > round // there was time to name its owner through another proxy
	if elsewhere {
		if err := b.c.m.watchdog.lookAgain(ctx, t.id, true, patience); err != nil {
			return false, err
		}
	}
	nth, err := b.c.renew(ctx, RenewRequest{DB: t.id.DB, Key: t.id.Key, Owner: b.r.Owner}, func(h *hold) int64 {
		end, ours := t.end(b.c.m, h, elsewhere)
		if !ours || end.IsZero() && atLeast == 0 {
			return 0
		}
		lease := max(time.Until(end).Milliseconds(), atLeast, 1)
		if b.c.m.holds.leaveToOthers(t, h, lease) {
			return 0
		}
		return lease
	})
	if nth != 0 {
		t.grant.nth = nth
	}
	return nth != 0, err
}

// end is when the hold of a taken lock is to end if nobody renews it any more; zero: no end was granted to anybody. ours is false when
// somebody else has decided about its end. The hold is busy.
func (t *taking) end(m *Manager, h *hold, elsewhere bool) (end time.Time, ours bool) {
	end, ours, here := m.holds.endHere(t, h)
	if !ours || !elsewhere {
		return end, ours
	}
	s, err := m.store.Look(t.id, true, 0, time.Now())
	if err != nil || s.Count == 0 || s.Registration.NamesAlone(here.registration) { // with that name alone only this proxy's own renewals have lengthened it
		return end, true
	}
	if seen := s.MayEnd(); seen.After(here.deadline.Add(expirySlack)) {
		end = lockstore.Later(end, seen) // a LOCK has lengthened it
	}
	return end, true
}

// endHere is taking.end by what this proxy knows of the hold, beside that.
func (hs *holds) endHere(t *taking, h *hold) (end time.Time, ours bool, s snapshot) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	_, lent := h.lent[t]
	named := h.nth != t.grant.nth
	if end = lockstore.Later(t.until, t.promised); named {
		end = lockstore.Later(end, h.deadline)
	}
	return end, h.count > 0 && lent && (!named || h.watched), hs.copy(h)
}

// confirm lengthens a taken lock to at least lease and looks whether it is still there. If Redis cannot be asked our own
// deadline still counts, unless replicas are to have it.
func (b *multiLock) confirm(ctx context.Context, t *taking, lease time.Duration) error {
	m, asked := b.c.m, time.Now()
	if err := m.watchdog.extendLease(ctx, t.id, b.r.Owner != "", patience, lease); err != nil {
		return err
	}
	switch s := m.holds.find(t.id); {
	case s.count == 0:
		return b.missing(t)
	case b.r.Replicas > 0 && s.renewedAt.Before(asked):
		return &Error{Code: "NOREPLICAS", Text: "the lease of '" + lockstore.Printable(t.id.Key) + "' did not reach the replicas in time, all locks were given back"}
	}
	return nil
}

// missing is the error for a taken lock that is no longer there.
func (b *multiLock) missing(t *taking) error {
	if lost, ok := b.c.lossOf(t.id); ok {
		return lost.error(t.id.Key)
	}
	return notHeld(t.id.Key, false) // an owner with a name gave it back elsewhere
}

// allHeld looks whether all of the locks are ours by what this proxy knows.
func (b *multiLock) allHeld() error {
	for _, t := range b.taken {
		switch s := b.c.m.holds.find(t.id); {
		case s.count == 0:
			return b.missing(t)
		case !time.Now().Before(s.deadline):
			return ErrNotAcquired // the answers took longer than the lease
		}
	}
	return nil
}

// MultiUnlock gives back one hold at each of keys, at each node the last one in MultiLock's order first; a key named twice counts
// once. r names the database and the owner. freed is the number of locks that are now free of this owner: one that it entered more
// often is not among them.
//
// A lock that the owner does not hold is passed over. None is left out because of another: the error says afterwards what was
// wrong, LOCKLOST before anything else, else the first of Unlock's errors. NOTHELD means that the owner held none of them.
func (c *Client) MultiUnlock(ctx context.Context, keys []string, r UnlockRequest) (freed int64, err error) {
	began := time.Now()
	ctx, span := telemetry.Span(ctx, "MULTIUNLOCK")
	defer span.End()
	freed, err = c.multiUnlock(ctx, keys, r)
	telemetry.VerbDone(ctx, "multiunlock", outcomeWord(err), time.Since(began))
	return freed, err
}

func (c *Client) multiUnlock(ctx context.Context, keys []string, r UnlockRequest) (freed int64, err error) {
	var lost, failed, absent error
	held := false
	for _, u := range slices.Backward(c.unlockAll(ctx, canonical(keys), r)) {
		switch {
		case u.err == nil:
			held = true
			if u.free {
				freed++
			}
		case isCode(u.err, "NOTHELD"):
			absent = u.err
		case isCode(u.err, "LOCKLOST"):
			lost = u.err
		case failed == nil || lockstore.NotSent(failed) || lockstore.Unknown(u.err): // nothing was done only if that is so of all
			failed = u.err
		}
	}
	switch {
	case lost != nil:
		return freed, lost
	case held && lockstore.NotSent(failed): // the error itself would say that nothing was done
		return freed, &Error{Code: "ERR", Text: fmt.Sprintf("not released: some of these locks have been given back, of another one %v", failed)}
	case failed != nil:
		return freed, failed
	case !held:
		return 0, absent // of the first key
	}
	return freed, nil
}

// unlocking is the outcome for one of MULTIUNLOCK's locks.
type unlocking struct {
	key  string
	free bool
	err  error
}

// unlockAll gives back one hold at each of keys, and returns the outcomes in their order.
func (c *Client) unlockAll(ctx context.Context, keys []string, r UnlockRequest) []*unlocking {
	all := make([]*unlocking, len(keys))
	for i, key := range keys {
		all[i] = &unlocking{key: key}
	}
	atEachNode(c.m.store, all, func(u *unlocking) string { return u.key }, func(there []*unlocking) {
		for _, u := range slices.Backward(there) {
			u.free, u.err = c.unlock(ctx, UnlockRequest{DB: r.DB, Key: u.key, Owner: r.Owner})
		}
	})
	return all
}
