package quorum

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
)

// voteNumbers is how many numbers a node says of a hold.
const voteNumbers = 5

// Renew asks all nodes for the holds anew, each of which says whether it had the hold before: only those that had it count to the majority. So a
// node that has lost its holds in a restart has them again, and a lock outlives the restarts of all nodes, one after the other.
func (q *store) Renew(_ context.Context, r lockstore.Renewal) ([]int64, error) {
	lease := int64(0)
	for _, h := range r.Holds {
		if lease == 0 || h.Lease < lease {
			lease = h.Lease
		}
	}
	votes, of := q.renewalVotes(r)
	until := q.until(lockstore.Milliseconds(lease))
	all := gather(q, until, func(ctx context.Context, n *quorumNode) result { return q.renewOn(ctx, n, r, votes, until) }, func(all []result) bool {
		return q.renewedAll(q.tallyOf(all), of) || q.onlyTroubled(all)
	})
	t := q.tallyOf(all)
	out, any := make([]int64, len(r.Holds)), false
	for i := range out {
		out[i] = t.Of(of[i], voteNumbers).Renewed()
		any = any || out[i] != lockstore.Undecided
	}
	if !any {
		return out, q.noMajority(all, len(t.Said), "the renewal does not count")
	}
	return out, nil
}

// renewalVotes are what each node is asked for: for each hold one vote, of which of has the number. A connection that reads what it writes asks for
// the write hold first, since only that makes it.
func (q *store) renewalVotes(r lockstore.Renewal) (votes []*lockstore.Acquire, of []int) {
	for _, h := range r.Holds {
		counts := onNode(h.Counts)
		of = append(of, len(votes))
		id := h.ID
		if id.Kind.Spec().RW && counts.Writes == 0 {
			id.Kind = lockstore.Read
		}
		one := &lockstore.Acquire{ID: id, Counts: counts, Lease: h.Lease}
		if counts.Total() == 2 {
			one.Counts.Reads = 0
		}
		votes = append(votes, one)
		if counts.Total() == 2 {
			votes = append(votes, &lockstore.Acquire{ID: id.As(lockstore.Read), Counts: counts, Lease: h.Lease})
		}
	}
	return votes, of
}

// renewedAll says whether a majority had each of the holds.
func (q *store) renewedAll(t tally.Tally, of []int) bool {
	for _, vote := range of {
		if t.Of(vote, voteNumbers).Renewed() != lockstore.StillThere {
			return false
		}
	}
	return true
}

// renewOn sends a batch of renewals to one node, once no other step is under way there on any of the holds.
func (q *store) renewOn(ctx context.Context, n *quorumNode, r lockstore.Renewal, votes []*lockstore.Acquire, until time.Time) (said result) {
	ends := make([]func(error, time.Time), 0, len(r.Holds))
	defer func() {
		for _, end := range ends {
			end(said.err, until)
		}
	}()
	for _, h := range r.Holds {
		end, ok := q.begin(ctx, n, h.ID, until)
		if !ok {
			return unasked(n)
		}
		ends = append(ends, end)
	}
	return q.ask(n, until, func(notAfter string) node.Call { return q.steps.Vote(votes, notAfter) })
}

// Extend is RENEW on all nodes: it counts when a majority has done it. If none has, a shorter lease may still be in force on some nodes.
func (q *store) Extend(_ context.Context, e lockstore.Extension) (done lockstore.Extended, err error) {
	done.Sent = time.Now()
	until, skips := q.until(lockstore.Milliseconds(e.Lease)), e.Named && q.wellEnough()
	all := gather(q, final(until), func(ctx context.Context, n *quorumNode) result {
		if skips && n.troubled() {
			return unasked(n)
		}
		return q.extendOn(ctx, n, e, until)
	}, func(all []result) bool { return !e.Named && q.done(all) })
	t := q.tallyOf(all)
	code, ok := t.Extended()
	if e.Named && mayStillCome(all, len(q.all)) { // it would shorten what the owner is given next
		q.host.Sleep(context.Background(), time.Until(final(until)))
	}
	if !ok {
		done.Unsure = mayStillCome(all, len(q.all)) || t.Count(lockstore.LeaseSet) > 0
		return done, q.noMajority(all, len(t.Said), "the lease is not lengthened")
	}
	if done.Code = code; code == lockstore.LeaseSet {
		done.TTL = tally.Lasts(t.Column(lockstore.LeaseSet, 1), q.majority())
		done.Expiry = q.extendedTo(all)
	}
	return done, nil
}

// extendOn sends it to one node.
func (q *store) extendOn(ctx context.Context, n *quorumNode, e lockstore.Extension, until time.Time) result {
	one, end := e, func(error, time.Time) {}
	if e.Expiry != nil {
		if one.Expiry = q.expiryOn(n, e.Expiry); one.Expiry == nil {
			return unasked(n) // the node has the hold by another step, or not at all
		}
	}
	if !e.Named {
		var ok bool
		if end, ok = q.begin(ctx, n, e.ID, until); !ok {
			return unasked(n)
		}
	}
	r := q.ask(n, until, func(notAfter string) node.Call { return node.Extend(one, false, notAfter) })
	end(r.err, until)
	return r
}

// extendedTo are the expiries of a named owner's hold that nobody has joined, of each node; nil: there are none.
func (q *store) extendedTo(all []result) lockstore.Expiry {
	at, any := make(lockstore.Expiry, len(q.all)), false
	for i, n := range q.all {
		for _, r := range all {
			if r.node == n && r.code() == lockstore.LeaseSet {
				at[i] = node.Made(r.out[2]).One()
				any = any || at[i] != 0
			}
		}
	}
	if !any {
		return nil
	}
	return at
}
