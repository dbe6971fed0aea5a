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
// other, and each on Lock's own path. r.Block is the time for all of them together: when it is over those that are left
// are still tried once.
//
// While later locks are waited for the earlier ones are watched, whatever r.Lease says: none of them ends meanwhile, a lease of
// r.Lease begins for all of them together when the last one is there, and a proxy that dies in between leaves what a watched
// lock leaves. A hold that the owner had before is never shortened, and is watched after this if it was before, or, without
// r.Lease, from now on, as Lock has it.
//
// When a lock is refused, lost meanwhile (LOCKLOST), or r.Lease is over before all of it is known (ErrNotAcquired), those that
// were taken are given back, at each node in reverse order; so they are when ctx ends. A hold the owner had before is left as it was:
// with its count, and with the end it would have had. Errors are Lock's, and LOCKLOST.
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
	taken []taking
}

type taking struct {
	id    lockstore.ID
	grant Grant
	until time.Time // when the hold that the owner had before would end; zero: it had none, or a watched one
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
	// Side by side, so that the leases begin together; the connection's own goroutine waits for them.
	var group errgroup.Group
	group.SetLimit(releaseAtOnce)
	for i, t := range b.taken {
		if b.r.Lease > 0 || i < len(b.taken)-1 { // the last one is as fresh as LOCK's
			group.Go(func() error { return b.settle(ctx, t) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if b.c.unheard(ctx, b.r) {
		return context.Canceled
	}
	return b.sure()
}

// take takes one lock within the time that is left. watched: others follow, or came before.
func (b *multiLock) take(ctx context.Context, key string, watched bool) error {
	one := b.r
	one.Key = key
	if watched {
		one.Lease = 0
	}
	if one.Blocks && one.Block > 0 {
		one.Block -= time.Since(b.began).Milliseconds()
		one.Blocks = one.Block > 0 // 0 would be for ever
	}
	id, _ := b.c.id(b.r.Kind, b.r.DB, key, b.r.Owner)
	until, had := b.endOf(id)
	g, err := b.c.Lock(ctx, one)
	if err == nil {
		if b.c.m.store.Rules().Votes && !had {
			g.entered, g.again = false, false // what some nodes had of it was left behind while it was waited for
		}
		b.taken = append(b.taken, taking{id, g, until})
	}
	return err
}

// endOf is when an unwatched live hold ends; zero for any other. An owner with a name may have it through another proxy, too.
// had says that there is, or may be, one at all.
func (b *multiLock) endOf(id lockstore.ID) (end time.Time, had bool) {
	m := b.c.m
	m.holds.mu.Lock()
	h := m.holds.byID[id]
	known := h != nil && h.count > 0
	if known && h.watched || !known && b.r.Owner == "" {
		m.holds.mu.Unlock()
		return time.Time{}, known
	}
	if b.r.Owner == "" {
		defer m.holds.mu.Unlock()
		return h.deadline, true
	}
	m.holds.mu.Unlock()
	s, err := m.store.Look(id, true, 0, time.Now())
	if had = known || err != nil || s.Count > 0; err != nil || s.Count == 0 || s.TTL <= 0 || s.Watched {
		return time.Time{}, had
	}
	return s.At.Add(lockstore.Milliseconds(s.TTL)), true
}

// settle gives a taken lock the lease asked for, and has Redis say that it is still there.
func (b *multiLock) settle(ctx context.Context, t taking) error {
	lease := lockstore.Milliseconds(b.r.Lease)
	var err error
	switch {
	case lease > 0 && !t.until.IsZero():
		err = b.relet(ctx, t, b.r.Lease)
	case lease > 0 && !t.grant.entered:
		err = b.renew(ctx, t, b.r.Lease)
	default: // watched before, here or elsewhere
		return b.confirm(ctx, t, lease)
	}
	if err != nil || b.r.Replicas == 0 {
		return err
	}
	return b.confirm(ctx, t, lease) // RENEW does not wait for replicas
}

func (b *multiLock) renew(ctx context.Context, t taking, lease int64) error {
	return b.c.renew(ctx, RenewRequest{DB: t.id.DB, Key: t.id.Key, Owner: b.r.Owner, Lease: lease})
}

// relet makes a hold that was not watched before end by itself again: when it would have, but not sooner than in atLeast ms.
func (b *multiLock) relet(ctx context.Context, t taking, atLeast int64) error {
	return b.renew(ctx, t, max(time.Until(t.until).Milliseconds(), atLeast))
}

// confirm lengthens a taken lock to at least lease and looks whether it is still there. Where Redis cannot be asked our own
// deadline goes on to count, unless replicas are to have it.
func (b *multiLock) confirm(ctx context.Context, t taking, lease time.Duration) error {
	m, asked := b.c.m, time.Now()
	if err := m.watchdog.extendLease(ctx, t.id, b.r.Owner != "", lease); err != nil {
		return err
	}
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	h := m.holds.byID[t.id]
	switch {
	case h == nil || h.count == 0:
		return b.missing(t)
	case b.r.Replicas > 0 && h.renewedAt.Before(asked):
		return &Error{Code: "NOREPLICAS", Text: "the lease of '" + lockstore.Printable(t.id.Key) + "' did not reach the replicas in time, all locks were given back"}
	}
	return nil
}

// missing is what became of a taken lock that is no longer there.
func (b *multiLock) missing(t taking) error {
	if lost, ok := b.c.lossOf(t.id); ok {
		return lost.error(t.id.Key)
	}
	return notHeld(t.id.Key, false) // an owner with a name gave it back elsewhere
}

// sure looks whether all of the locks are ours by what this proxy knows.
func (b *multiLock) sure() error {
	m := b.c.m
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	for _, t := range b.taken {
		h := m.holds.byID[t.id]
		if h == nil || h.count == 0 {
			return b.missing(t)
		}
		if !time.Now().Before(h.deadline) {
			return ErrNotAcquired // the answers took longer than the lease
		}
	}
	return nil
}

// giveBack releases what was taken, at each node the last one first. When that takes too long it goes on alone. It does not end
// with the client, who never heard of these locks.
func (b *multiLock) giveBack() {
	work := func() struct{} {
		atEachNode(b.c.m.store, b.taken, func(t taking) string { return t.id.Key }, func(there []taking) {
			for _, t := range slices.Backward(there) {
				b.retract(t)
			}
		})
		return struct{}{}
	}
	if len(b.taken) > 0 {
		patiently(context.Background(), b.c.m.life, work, func(struct{}) {})
	}
}

// retract takes back what one taking added.
func (b *multiLock) retract(t taking) {
	m := b.c.m
	if t.grant.again && t.grant.attempt == "" {
		if !t.until.IsZero() {
			b.restore(t)
		}
		return
	}
	h, err := m.holds.enter(context.Background(), t.id, b.r.Owner != "")
	if err != nil {
		return
	}
	m.holds.mu.Lock()
	ours := h.count > 0 && (!h.explicit || h.adopted == t.grant.nth || m.store.Rules().Votes) // there it is taken back under its own name
	// The owner was given it by another LOCK, too, before or since: that one's hold stays, whatever the nodes say of this one.
	keeps := t.grant.attempt != "" && (!t.grant.first || h.adopted != t.grant.nth)
	m.holds.mu.Unlock()
	if !ours {
		m.holds.leave(h)
		return
	}
	rel := m.giveBacks.newRelease(h, b.c, false)
	rel.Attempt, rel.keeps = t.grant.attempt, keeps
	rel.Alone = h.explicit && !m.store.Rules().Votes
	code, left, err := rel.complete()
	if code == 0 && err == nil && rel.Attempt != "" && !keeps && !t.grant.again {
		code = 1 // what others count on is another proxy's, or was left behind
	}
	switch {
	case err == nil:
		if _, err = b.c.unlocked(h, t.id.Key, code, left); err == nil {
			m.done.remove(t.id) // nobody heard of it
		}
	case !keeps || !t.until.IsZero():
		m.log.Warn("cannot give back a lock of a MULTILOCK that failed, it runs out", "key", t.id.Key, "owner", t.id.Owner, "error", err)
		m.holds.mu.Lock()
		m.holds.runOut(h)
		m.holds.mu.Unlock()
	}
	m.holds.leave(h)
	if left > 0 && !t.until.IsZero() {
		b.restore(t)
	}
}

func (b *multiLock) restore(t taking) {
	if err := b.relet(context.Background(), t, 1); err != nil {
		b.c.m.log.Warn("cannot set the lease a lock had before a MULTILOCK that failed", "key", t.id.Key, "owner", t.id.Owner, "error", err)
	}
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
		default:
			failed = u.err
		}
	}
	switch {
	case lost != nil:
		return freed, lost
	case held && lockstore.NotSent(failed): // as it is it would say that nothing was done
		return freed, &Error{Code: "ERR", Text: fmt.Sprintf("not released: some of these locks have been given back, of another one %v", failed)}
	case failed != nil:
		return freed, failed
	case !held:
		return 0, absent // of the first key
	}
	return freed, nil
}

// unlocking is what became of one of MULTIUNLOCK's locks.
type unlocking struct {
	key  string
	free bool
	err  error
}

// unlockAll gives back one hold at each of keys, and says in their order what became of it.
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

func isCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
