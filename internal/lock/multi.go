package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// MultiLock takes the locks at all of keys for one owner, or none of them. r says how, as for Lock; its Key is not
// used. A key named twice is one lock, taken once. The grants are in the order of keys.
//
// The locks are taken one by one in bytewise order, which every proxy has in common, so that no two MultiLocks wait for
// each other. Each is taken as Lock takes it. r.Block is the time for all of them together: when it is over those that
// are left are still tried once.
//
// While later locks are waited for the earlier ones last as they do anyway: those of a connection by the watchdog, those
// of a named owner for r.Lease, so r.Block should be shorter. When the last one is there Redis is asked for all the
// others, and each gets its lease.
//
// When a lock is refused, or was lost meanwhile (LOCKLOST, NOTHELD), those that were taken are given back, at each node
// in reverse order; so they are when the client goes. What a named owner had before stays, and ends when it would have. A connection must not have
// one of the locks already (ERR). Errors are Lock's, and those.
func (c *Client) MultiLock(ctx context.Context, keys []string, r Request) ([]Grant, error) {
	ctx, verb := beginVerb(ctx, "MULTILOCK", keys)
	grants, err := c.multiLock(ctx, keys, r)
	c.answered(ctx, verb, err, r, canonical(keys)...)
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
	taken []*taken
}

// taken is one lock that a MULTILOCK has.
type taken struct {
	id    lockstore.ID
	token int64
	// Of a named owner's hold that this MULTILOCK has made, and that nobody has joined: the one it set last; else nil.
	expiry *lockstore.Expiry
}

func (c *Client) multiLock(ctx context.Context, keys []string, r Request) ([]Grant, error) {
	if err := c.m.nameable(keys...); err != nil {
		return nil, err
	}
	order := canonical(keys)
	if err := c.mayTakeTogether(order, r); err != nil {
		return nil, err
	}
	b := &multiLock{c: c, r: r, began: time.Now()}
	if err := b.takeAll(ctx, order); err != nil {
		b.giveBack()
		return nil, err
	}
	tokens := map[string]int64{}
	for _, t := range b.taken {
		tokens[t.id.Key] = t.token
	}
	grants := make([]Grant, len(keys))
	for i, key := range keys {
		grants[i].Token = tokens[key]
	}
	return grants, nil
}

// mayTakeTogether tells the connection what it has lost of these locks, and refuses those that it has.
func (c *Client) mayTakeTogether(keys []string, r Request) error {
	if r.Owner != "" {
		return nil
	}
	hs := c.m.holds
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, key := range keys {
		if lost := c.losses.tell(r.DB, key, true); lost != nil {
			return lost
		}
		plain := c.id(Plain, r.DB, key, "")
		if hs.of(plain).inside() || hs.of(plain.As(Write)).inside() {
			return about(key, "ERR", "this connection already holds '%s': MULTILOCK takes all of its locks or none")
		}
	}
	return nil
}

func (b *multiLock) takeAll(ctx context.Context, order []string) error {
	for i, key := range order {
		if b.c.hasLeft(ctx, true) {
			return context.Canceled
		}
		if err := b.take(ctx, key, i == len(order)-1); err != nil {
			return err
		}
	}
	// Side by side, so that the leases begin together, with that of the last one. That one is asked for, too, if a named owner
	// had it before, and on a quorum, where some nodes may have had it.
	var group errgroup.Group
	group.SetLimit(releaseAtOnce)
	for i, t := range b.taken {
		if i < len(b.taken)-1 || b.r.Owner != "" && (t.expiry == nil || b.c.m.rules.Votes) {
			group.Go(func() error { return b.settle(ctx, t) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if b.c.hasLeft(ctx, true) {
		return context.Canceled
	}
	return b.allHeld()
}

// take takes one lock within the time that is left. Those of a connection before the last one are the watchdog's: a
// lease begins when all are there.
func (b *multiLock) take(ctx context.Context, key string, last bool) error {
	one := b.r
	one.Key, one.joins = key, true
	if one.Owner == "" && !last {
		one.Lease = 0
	}
	if one.Blocks && one.Block > 0 {
		one.Block -= time.Since(b.began).Milliseconds()
		one.Blocks = one.Block > 0 // 0 would be for ever
	}
	g, err := b.c.lock(ctx, one, time.Now())
	if err != nil {
		return err
	}
	t := &taken{token: g.Token, id: b.c.id(b.r.Kind, b.r.DB, key, b.r.Owner)}
	if g.Made {
		t.expiry = g.Expiry
	}
	b.taken = append(b.taken, t)
	return nil
}

// keep gives a lock that this MULTILOCK has made its lease anew, unless somebody has joined it since: then it is left
// alone from now on. It says whether the lock has that lease.
func (b *multiLock) keep(t *taken) bool {
	e := lockstore.Extension{ID: t.id, Lease: b.r.Lease, Expiry: t.expiry}
	done, err := b.c.m.store.Extend(context.Background(), e)
	switch {
	case err == nil && done.Code == lockstore.LeaseSet:
		t.expiry = done.Expiry
		until := done.Sent.Add(lockstore.Milliseconds(done.TTL))
		b.c.m.leases.note(b.c, t.id, lockstore.Milliseconds(b.r.Lease), until)
		return true
	case err == nil || lockstore.Unknown(err):
		t.expiry = nil
	}
	return false
}

// settle asks Redis for a lock that was taken before the last one, and gives it the lease that was asked for.
func (b *multiLock) settle(ctx context.Context, t *taken) error {
	m := b.c.m
	if b.r.Owner == "" {
		e := extend{c: b.c, lease: lockstore.Milliseconds(b.r.Lease)}
		rec, err := m.holds.enterHeld(ctx, t.id, patience, e.goBy)
		switch {
		case rec == nil: // allHeld tells of it, if there is none
			return err
		case b.r.Lease == 0:
			return explained("MULTILOCK", m.watchdog.visitBusy(rec, 0))
		}
		return e.run(ctx)
	}
	had := t.expiry == nil
	if !had && b.keep(t) {
		return nil
	}
	// The owner had it already, or another of its connections has joined it: then the longer lease counts. What the
	// owner had may have ended meanwhile, and is taken anew.
	one := b.r
	one.Key, one.Blocks, one.Replicas = t.id.Key, false, 0
	g, err := b.c.try(ctx, one, nil, always)
	t.token = g.Token
	switch {
	case errors.Is(err, ErrNotAcquired):
		m.leases.forget(t.id) // another one has it
	case err == nil && g.Made:
		if t.expiry = g.Expiry; !had {
			return notHeld(t.id.Key, false) // it was free meanwhile
		}
	}
	return err
}

// allHeld looks whether all of a connection's locks are there, by what this proxy knows.
func (b *multiLock) allHeld() error {
	if b.r.Owner != "" {
		return nil
	}
	for _, t := range b.taken {
		if !b.c.m.holds.peek(t.id).live() {
			return b.c.lostOrNotHeld(t.id.DB, t.id.Key)
		}
	}
	return nil
}

// giveBack releases what was taken, at each node the last one first. It does not end with the client, who never heard
// of these locks.
func (b *multiLock) giveBack() {
	if len(b.taken) == 0 {
		return
	}
	m := b.c.m
	given := make(chan struct{})
	m.background(func() {
		defer close(given)
		atEachNode(m.store, b.taken, func(t *taken) string { return t.id.Key }, func(there []*taken) {
			for _, t := range slices.Backward(there) {
				b.giveBackOne(t)
			}
		})
	})
	select {
	case <-given:
	case <-time.After(patience): // it goes on in the background
	}
}

func (b *multiLock) giveBackOne(t *taken) {
	m := b.c.m
	if b.r.Owner != "" {
		if t.expiry != nil {
			m.giveBacks.takeBack(t.id, lockstore.Acquired{Made: true, Expiry: t.expiry})
			m.leases.forget(t.id)
		}
		return
	}
	m.giveBacks.giveBack(t.id)
	_ = b.c.told(t.id.DB, t.id.Key) // the connection has never heard that it had it
}

// MultiUnlock gives back one hold at each of keys, at each node the last one in MultiLock's order first; a key named
// twice counts once. r names the database and the owner. freed is the number of locks that are now free of this owner:
// one that it has taken more often is not among them.
//
// A lock that the owner does not hold is passed over. None is left out because of another: the error says afterwards
// what was wrong, LOCKLOST before anything else, else the first of Unlock's errors. NOTHELD means that the owner held
// none of them.
func (c *Client) MultiUnlock(ctx context.Context, keys []string, r UnlockRequest) (freed int64, err error) {
	ctx, verb := beginVerb(ctx, "MULTIUNLOCK", keys)
	freed, err = c.multiUnlock(ctx, keys, r)
	c.ended(ctx, verb, err, c.id(Plain, r.DB, "", r.Owner), keys...)
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
		// Nothing was done only if that is so of all.
		case failed == nil || lockstore.NotSent(failed) || lockstore.Unknown(u.err):
			failed = u.err
		}
	}
	switch {
	case lost != nil:
		return freed, lost
	case held && lockstore.NotSent(failed): // the error itself would say that nothing was done
		return freed, &Error{Code: "ERR",
			Text: fmt.Sprintf("not released: some of these locks have been given back, of another one %v", failed)}
	case failed != nil:
		return freed, failed
	case !held:
		return 0, absent // of the first key
	}
	return freed, nil
}

// unlockedOne is the outcome for one of MULTIUNLOCK's locks.
type unlockedOne struct {
	key  string
	free bool
	err  error
}

// unlockAll gives back one hold at each of keys, and returns the outcomes in their order.
func (c *Client) unlockAll(ctx context.Context, keys []string, r UnlockRequest) []*unlockedOne {
	all := make([]*unlockedOne, len(keys))
	for i, key := range keys {
		all[i] = &unlockedOne{key: key}
	}
	atEachNode(c.m.store, all, func(u *unlockedOne) string { return u.key }, func(there []*unlockedOne) {
		for _, u := range slices.Backward(there) {
			u.free, u.err = c.unlock(ctx, UnlockRequest{DB: r.DB, Key: u.key, Owner: r.Owner})
		}
	})
	return all
}
