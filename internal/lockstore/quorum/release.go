package quorum

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// Release gives back a hold, or one side of it: one of several of a connection is only counted here.
func (q *store) Release(ctx context.Context, r *lockstore.Release) (lockstore.Released, error) {
	switch {
	case r.Forced():
		code, err := q.force(ctx, r)
		return lockstore.Released{Code: code}, err
	case r.Named && r.Expiry != nil:
		return q.releaseMade(r), nil
	case r.Named:
		return q.releaseNamed(r)
	case !r.Whole && r.Counts.Of(r.ID.Kind) > 0:
		return lockstore.Released{Code: lockstore.StillHeld, Sent: time.Now()}, nil
	}
	return q.releaseOwn(r)
}

// releaseOwn gives back a connection's hold, or one side of it. It is answered by a majority; every node is made to
// forget it, late ones in the background.
func (q *store) releaseOwn(r *lockstore.Release) (done lockstore.Released, err error) {
	done.Sent = time.Now()
	until, holds := q.until(0), q.holds.want(r.ID, r.Counts, r.Quiet)
	all := gather(q, until, func(_ context.Context, n *quorumNode) result {
		h := holds[n.index]
		said := h.giveVoteBack(r, until)
		q.host.Background(func() {
			if said.err != nil {
				h.dropVote(time.Now().Add(q.maxLease))
			}
			q.holds.leave(h)
		})
		return said
	}, func(all []result) bool { _, ok := q.all.tallyOf(all).Freed(); return ok && q.all.settled(all) })
	done.Final = final(until)
	done.Code, err = q.all.freed(all, "the lock is no longer renewed and runs out; UNLOCK may be said again")
	return done, err
}

// releaseNamed is the UNLOCK of a named owner. A node that is in trouble is not sent it: its vote ends with the lease.
// The others are waited for until each has answered or can no longer do it, since the owner may take the lock anew
// then.
func (q *store) releaseNamed(r *lockstore.Release) (done lockstore.Released, err error) {
	done.Sent = time.Now()
	one := *r
	one.Next = nil
	until := q.until(0)
	all := q.onAll(until, func(n *quorumNode) result {
		return n.askVote(until, func(notAfter string) node.Call { return q.steps.Release(&one, notAfter) })
	})
	done.Code, err = q.all.freed(all, "the lock may still be held, until its lease is over; UNLOCK may be said again")
	return done, err
}

// onAll does work on all nodes that are not in trouble, and returns when each has answered or can no longer do what it
// is sent by until.
func (q *store) onAll(until time.Time, work func(n *quorumNode) result) []result {
	skips := q.all.wellEnough()
	all := gather(q, final(until), func(_ context.Context, n *quorumNode) result {
		if skips && n.troubled() {
			return unasked(n)
		}
		return work(n)
	}, everybody[result])
	q.outlast(all, until)
	return all
}

// outlast waits until no node can do any more what it was sent by until, if one of them may.
func (q *store) outlast(all []result, until time.Time) {
	if mayStillCome(all, len(q.all)) {
		q.host.Sleep(context.Background(), time.Until(final(until)))
	}
}

// mayStillCome says whether one of so many nodes may still do what it was sent, by what those have answered that did in
// time.
func mayStillCome(all []result, nodes int) bool {
	if len(all) < nodes {
		return true
	}
	for _, r := range all {
		if lockstore.Unknown(r.err) {
			return true
		}
	}
	return false
}

// releaseMade gives back a grant to a named owner on the nodes where it has made the hold and nobody has joined that.
func (q *store) releaseMade(r *lockstore.Release) (done lockstore.Released) {
	done.Sent = time.Now()
	r.Expiry.End()
	until := q.until(0)
	all := gather(q, until, func(_ context.Context, n *quorumNode) result {
		return q.releaseMadeOn(n,
			lockstore.Release{ID: r.ID, Named: true, Expiry: lockstore.ExpiryAt(r.Expiry.On(n.index))}, until)
	}, everybody[result])
	if done.Code = lockstore.NotHeld; q.all.tallyOf(all).Count(lockstore.Freed) > 0 {
		done.Code = lockstore.Freed
	}
	return done
}

// releaseMadeOn does that on one node; no expiry: the node has not made the hold.
func (q *store) releaseMadeOn(n *quorumNode, r lockstore.Release, until time.Time) result {
	if r.Expiry == nil {
		return unasked(n)
	}
	return n.askVote(until, func(notAfter string) node.Call { return q.steps.Release(&r, notAfter) })
}
