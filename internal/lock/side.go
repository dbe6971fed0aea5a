package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// inside says whether the owner holds the lock on either side, as far as this proxy knows: its LOCK is then a re-entry, which
// does not stand in line behind those who wait for its own release.
func (hs *holds) inside(id lockstore.ID) bool {
	return hs.held(id) || id.Kind.Spec().RW && hs.held(id.As(id.Kind.Spec().Other))
}

// resolveSide is the hold that an UNLOCK or RENEW which names no side is about.
func (c *Client) resolveSide(ctx context.Context, id lockstore.ID, named bool) (lockstore.ID, error) {
	if id.Kind != Plain {
		return id, nil
	}
	m := c.m
	live := m.holds.known(id)
	// A named owner may hold the other side through another proxy, or all of it.
	if named && (len(live) != 1 || live[0] != Plain) {
		there, err := m.sidesHeld(ctx, id)
		if err != nil {
			return id, err
		}
		if len(there) > 0 || len(live) != 1 {
			live = there
		}
	}
	switch len(live) {
	case 0:
		return c.remembered(id), nil
	case 1:
		return id.As(live[0]), nil
	}
	return id, &Error{Code: "ERR", Text: fmt.Sprintf("this owner holds '%s' for reading and for writing: say READ or WRITE", lockstore.Printable(id.Key))}
}

// sidesHeld is what Redis says an owner with a name holds. A reader whose lease is over stays in the hash for as long as its owner writes.
func (m *Manager) sidesHeld(ctx context.Context, id lockstore.ID) ([]Kind, error) {
	there, err := m.store.SidesHeld(ctx, id)
	if err != nil || len(there) < 2 {
		return there, err
	}
	if reads, err := m.store.Look(id.As(Read), false, 0, time.Now()); err == nil && reads.Count == 0 && !reads.Unsure {
		return []Kind{Write}, nil
	}
	return there, nil
}

// known is the kinds of hold that this proxy has of an owner, those included that a verb is still at work on.
func (hs *holds) known(id lockstore.ID) (known []Kind) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, k := range lockstore.Kinds {
		if h := hs.byID[id.As(k)]; h != nil && (h.count > 0 || h.users > 0) {
			known = append(known, k)
		}
	}
	return known
}

// remembered is the kind of hold that this owner lost or gave back last, so that asking again says what became of it.
func (c *Client) remembered(id lockstore.ID) lockstore.ID {
	var last time.Time
	out := id
	for _, k := range lockstore.Kinds {
		was := id.As(k)
		if lost, ok := c.lossOf(was); ok && lost.at.After(last) {
			out, last = was, lost.at
		}
		if at, ok := c.m.done.get(was); ok && at.After(last) {
			out, last = was, at
		}
	}
	return out
}

// suspectOtherKind makes the watchdog check the holds that cannot exist beside the one just granted, unless they have taken the lock since: a plain
// lock and a read/write lock are never at one key together. mu is held.
func (hs *holds) suspectOtherKind(a *acquire) {
	id := a.h.id
	l := id.Line()
	l.RW = !l.RW
	for h := range hs.byKey[l].All() {
		if h.client == a.c && !h.named && !h.releasing && !h.leaving {
			hs.lose(h, h.whyGone()) // its connection has taken nothing since
		} else {
			hs.suspect(h, reasonGone)
		}
	}
	for _, k := range lockstore.Kinds { // nor are losses of the other kind what the owner's next UNLOCK is about
		if was := id.As(k); was.Line() != id.Line() {
			a.c.forgetLoss(was)
		}
	}
}

// lengthenByRead lengthens a write hold whose lease is over while its owner reads: the hash, with both sides in it, lasts for as
// long as the read hold. mu is held.
func (hs *holds) lengthenByRead(h *hold, now time.Time) bool {
	reads := hs.byID[h.id.As(Read)]
	if h.id.Kind != Write || reads == nil || reads.count == 0 || !reads.deadline.After(now) {
		return false
	}
	h.promise(reads.deadline, reads.asked)
	if !h.mayEnd.IsZero() {
		h.mayEnd = lockstore.Later(h.mayEnd, reads.deadline) // RENEW does not shorten it to less
	}
	return true
}

// readGivenBack ends a connection's write hold with the hold's own lease again, if it has one, now that the connection's read hold has been given back,
// or ends earlier: Redis has kept the hash for as long as the read hold was to last. If that fails, the write hold is given back once its connection
// has been told that it is over. That of a named owner is left alone, since it may have got another lease through another proxy.
func (c *Client) readGivenBack(ctx context.Context, id lockstore.ID) {
	if id.Owner != c.owner || c.m.holds.writerBeside(id) != c {
		return
	}
	_, err := c.renew(ctx, RenewRequest{DB: id.DB, Key: id.Key, Side: Write}, func(h *hold) int64 {
		s := c.m.holds.snapshot(h)
		if s.count == 0 || s.watched || s.doubt || s.unwanted {
			return 0
		}
		return max(1, time.Until(s.ownEnd).Milliseconds())
	})
	if err != nil {
		c.m.log.Debug("a write lock may last in Redis for as long as the read lock that its owner has given back", "key", id.Key, "error", err)
		was := id.As(Write)
		c.m.giveBacks.releaseLater([]*hold{{id: was}}, time.Until(c.m.holds.find(was).ownEnd)+expirySlack, func(h *hold) {
			if _, told := c.lossOf(was); told { // else it runs out, or has another lease by now
				c.m.giveBacks.enterAndSurrender(h)
			}
		})
	}
}

// writerBeside is the connection that writes beside a read hold of its own and gets no renewals for that; nil: there is none.
func (hs *holds) writerBeside(id lockstore.ID) *Client {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.byID[id.As(Write)]
	if id.Kind != Read || !h.live() || h.named || h.watched || h.client == nil || h.client.over {
		return nil
	}
	return h.client
}

// readEnded is readGivenBack for a read hold that has ended and of which no verb of its connection takes care.
func (g *giveBacks) readEnded(id lockstore.ID) {
	c := g.holds.writerBeside(id)
	if c == nil || g.holds.held(id) {
		return
	}
	g.background(func() { c.readGivenBack(context.Background(), id) })
}

// holdsElsewhere asks Redis whether a named owner holds the lock already, through another proxy: a re-entry does not
// stand in line behind those who wait for its own release. It does not pass them when the lock is free.
func (m *Manager) holdsElsewhere(id lockstore.ID) bool {
	has := func(id lockstore.ID) bool {
		s, err := m.store.Look(id, false, 0, time.Now())
		return err == nil && (s.Count > 0 || s.Unsure)
	}
	n := id.Kind.Spec()
	return has(id) || n.RW && has(id.As(n.Other))
}

// wouldWaitForItself is the answer to a WLOCK by an owner that reads.
func wouldWaitForItself(key string) error {
	return &Error{Code: "DEADLOCK", Text: fmt.Sprintf("this owner reads '%s': its WLOCK would wait for its own UNLOCK; take WLOCK first, then RLOCK", lockstore.Printable(key))}
}
