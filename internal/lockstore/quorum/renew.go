package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
)

// Renew asks all nodes for the holds anew, each of which says whether it had the hold before: only those that had it
// count to the majority. So a node that has lost its holds in a restart has them again, and a lock outlives the
// restarts of all nodes, one after the other.
func (q *store) Renew(_ context.Context, r lockstore.Renewal) ([]int64, error) {
	lease := r.Holds[0].Lease
	for _, h := range r.Holds {
		lease = min(lease, h.Lease)
	}
	until := q.until(lockstore.Milliseconds(lease))
	all := gather(q, until, func(ctx context.Context, n *quorumNode) result { return q.renewOn(ctx, n, r, until) },
		func(all []result) bool {
			return !slices.ContainsFunc(q.all.renewed(all, len(r.Holds)),
				func(code int64) bool { return code != lockstore.StillThere }) || q.all.onlyTroubled(all)
		})
	out := q.all.renewed(all, len(r.Holds))
	if !slices.ContainsFunc(out, func(code int64) bool { return code != lockstore.Undecided }) {
		return out, q.all.noMajority(all, len(q.all.tallyOf(all).Said), "the renewal does not count")
	}
	return out, nil
}

// renewOn sends a batch of renewals to one node, once no other step is under way there on any of the holds, without
// those that have been given back meanwhile.
func (q *store) renewOn(ctx context.Context, n *quorumNode, r lockstore.Renewal, until time.Time) (said result) {
	var ends []func(error)
	defer func() {
		for _, end := range ends {
			end(said.err)
		}
	}()
	var votes []*lockstore.Acquire
	first := make([]int, len(r.Holds)) // of each hold, the number of its first vote, counted from 1; 0: it has none
	for i, one := range r.Holds {
		h, _ := q.holds.of(n, one.ID)
		end, ok := h.beginStep(ctx, onNode(one.Counts), until)
		q.holds.leave(h)
		if ok {
			ends, first[i] = append(ends, end), len(votes)+1
			votes = append(votes, renewalVotes(one)...)
		}
	}
	if len(votes) == 0 {
		return unasked(n)
	}
	said = n.askVote(until, func(notAfter string) node.Call { return q.steps.Vote(votes, notAfter) })
	if said.err == nil {
		said.holds = make([][]int64, len(r.Holds))
		for i, at := range first {
			if at > 0 {
				said.holds[i] = node.VoteOf(said.out, at-1)
			}
		}
	}
	return said
}

// renewalVotes are what a node is asked for. A connection that reads what it writes asks for the write hold first,
// since only that makes it.
func renewalVotes(h lockstore.Renewed) []*lockstore.Acquire {
	counts := onNode(h.Counts)
	read := &lockstore.Acquire{ID: h.ID.As(lockstore.Read), Counts: counts, Lease: h.Lease}
	write := &lockstore.Acquire{ID: h.ID, Counts: lockstore.Counts{Writes: 1}, Lease: h.Lease}
	switch {
	case counts.Reads == 0:
		return []*lockstore.Acquire{write}
	case counts.Writes == 0:
		return []*lockstore.Acquire{read}
	}
	return []*lockstore.Acquire{write, read}
}

// Extend is RENEW on all nodes: it counts when a majority has done it. It is a vote, as renewals are: a node that has
// lost the hold in a restart has it again, if a majority had it. The votes of a connection shorten nothing: when the end
// that it wants has come, the nodes are told to give the hold back.
func (q *store) Extend(ctx context.Context, e lockstore.Extension) (done lockstore.Extended, err error) {
	switch done.Sent = time.Now(); {
	case e.Expiry != nil:
		return q.keep(e)
	case e.Named():
		return q.renewNamed(e)
	}
	r := lockstore.Renewal{DB: e.ID.DB, Kind: e.ID.Hold().Kind,
		Holds: []lockstore.Renewed{{ID: e.ID, Counts: e.Counts, Lease: e.Lease}}}
	out, err := q.Renew(ctx, r)
	if err != nil || out[0] != lockstore.StillThere {
		done.Code = lockstore.NotHeld
		return done, err
	}
	lease := lockstore.Milliseconds(e.Lease)
	done.Code, done.TTL = lockstore.LeaseSet, (lease - lockstore.Drift(lease)).Milliseconds()
	return done, nil
}

const notLengthened = "the lease is not lengthened"

// renewNamed is the RENEW of a named owner. If no majority has done it, a shorter lease may still be in force on some
// nodes.
func (q *store) renewNamed(e lockstore.Extension) (done lockstore.Extended, err error) {
	b := q.ballot(&lockstore.Acquire{ID: e.ID, Lease: e.Lease, There: lockstore.Renews})
	t := q.all.tallyOf(b.all)
	had := t.Renewed()
	b.quiet = true
	if b.decide(had == lockstore.StillThere); !b.won {
		b.takeBack()
	}
	switch done.Sent = b.sent; {
	case b.won:
		done.Code, done.TTL = lockstore.LeaseSet, t.Lasts()
	case t.Verdict() == tally.OtherLock:
		done.Code = lockstore.OtherKind
	case had == lockstore.NotThere:
		done.Code = lockstore.NotHeld
	default:
		err = q.all.noMajority(b.all, t.Voted(), notLengthened)
	}
	return done, err
}

// keep gives a named owner's hold its lease on the nodes where a MULTILOCK has made it, and nobody has joined it.
func (q *store) keep(e lockstore.Extension) (done lockstore.Extended, err error) {
	done.Sent = time.Now()
	until := q.until(lockstore.Milliseconds(e.Lease))
	// What a node does later would shorten what the owner is given next.
	all := q.onAll(until, func(n *quorumNode) result { return q.keepOn(n, e, until) })
	t := q.all.tallyOf(all)
	if !t.Done() {
		return done, q.all.noMajority(all, len(t.Said), notLengthened)
	}
	done.Code, done.Expiry = lockstore.LeaseSet, e.Expiry
	done.TTL = tally.Lasts(t.Column(lockstore.LeaseSet, 1), q.all.majority())
	return done, nil
}

// keepOn does that on one node.
func (q *store) keepOn(n *quorumNode, e lockstore.Extension, until time.Time) result {
	one := e
	if one.Expiry = lockstore.ExpiryAt(e.Expiry.On(n.index)); one.Expiry == nil {
		return unasked(n) // the node has the hold by another step, or not at all
	}
	r := n.askVote(until, func(notAfter string) node.Call { return node.Extend(one, false, notAfter) })
	switch {
	case r.code() == lockstore.LeaseSet:
		e.Expiry.Set(n.index, r.out[2])
	case !lockstore.NotSent(r.err):
		e.Expiry.Set(n.index, 0) // somebody has joined it, or it is not known
	}
	return r
}
