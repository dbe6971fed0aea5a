package lock

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// renew sends a batch of renewals to all nodes. Each hold has the answer of a majority of its own. A node that has not answered by
// then is heard all the same, if it lacks a hold.
func (q *quorum) renew(_ context.Context, r lockstore.Renewal) ([]int64, error) {
	until := q.until(r.Lease)
	out, any, decided := make([]int64, len(r.Holds)), false, make(chan struct{})
	defer close(decided)
	heard := gather(q, until, func(n *quorumNode) result {
		busy := make([]bool, len(r.Holds))
		for i, h := range r.Holds {
			busy[i] = q.drops(n, h.ID)
		}
		said, err := q.ask(n, until, func(notAfter string) node.Call { return renewing(r, notAfter) })
		for i := range said {
			if i < len(busy) && busy[i] {
				said[i] = lockstore.Undecided // it may be dropped there
			}
		}
		if err == nil && r.Lease > 0 && slices.Contains(said, 0) {
			q.m.background(func() { <-decided; q.spread(r, out, n, said) })
		}
		return result{n, said, err}
	}, func(all []result) bool { return len(all) >= q.majority() && q.settledAll(r, all) })
	t := q.tallyOf(heard)
	for i := range out {
		out[i] = q.takenOver(r.Holds[i], t.Renewal(i))
		any = any || lockstore.Answered(out[i])
	}
	if !any {
		return out, q.trouble(heard, len(t.Said), "the renewal does not count")
	}
	return out, nil
}

// takenOver believes only for good what a renewal says of another connection that has taken a hold over: the LOCK of that one may
// fail yet, and what it has is taken back then.
func (q *quorum) takenOver(h lockstore.Renewed, said int64) int64 {
	if said == 2 && (h.Taken.IsZero() || time.Since(h.Taken) < min(3*q.timeout, h.Lease/4)) {
		return lockstore.Taking
	}
	return said
}

// spread gives the holds that a majority has just renewed to a node again that has them no more, or never had them: a lock that is
// held for long outlives the restarts of all nodes, as long as a majority has it at any time. Nobody waits for that but a verb on
// the same hold, until the step is begun; a release is sent after it.
func (q *quorum) spread(r lockstore.Renewal, out []int64, n *quorumNode, said []int64) {
	for i, one := range r.Holds {
		if i >= len(said) || said[i] != 0 || out[i] != 1 || one.Attempt == "" {
			continue
		}
		if h, err := q.m.enter(context.Background(), one.ID, one.Named); err == nil {
			if q.countsOn(h, one.Attempt) {
				q.spreadOne(h, one, r.Lease, n)
			}
			q.m.leave(h)
		}
	}
}

// countsOn says whether a hold is live, and still what that attempt won.
func (q *quorum) countsOn(h *hold, attempt string) bool {
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	return h.count > 0 && !h.leaving && !h.unwanted && h.attempt == attempt
}

// spreadOne begins the step of one hold, which is busy.
func (q *quorum) spreadOne(h *hold, one lockstore.Renewed, lease time.Duration, n *quorumNode) {
	mine, _ := q.beginIdle(n, h.id)
	if mine == nil {
		return
	}
	a := &acquire{c: &Client{m: q.m}, h: h, r: Request{Lease: lease.Milliseconds()}, flags: "O", registration: one.Mark}
	if h.explicit {
		a.flags += "W"
	}
	c, until := a.call(""), q.until(lease)
	q.m.background(func() {
		defer q.end(n, h.id, mine)
		q.spreadTo(n, until, func(notAfter string) node.Call { return asVote(c, h.id, one.Attempt, false, notAfter) })
	})
}

// spreadTo is the step itself.
func (q *quorum) spreadTo(n *quorumNode, until time.Time, build func(notAfter string) node.Call) {
	if _, err := q.ask(n, until, build); isUnknown(err) {
		q.m.sleep(context.Background(), time.Until(until)+node.ClockTolerance)
	}
}

// settledAll says whether a majority has renewed every hold of a batch.
func (q *quorum) settledAll(r lockstore.Renewal, all []result) bool {
	t := q.tallyOf(all)
	for i := range r.Holds {
		if t.Renewal(i) != 1 {
			return false
		}
	}
	return true
}

// extend is RENEW on all nodes: it counts when a majority has it. A shorter lease that no majority has may be some nodes' all the same.
func (q *quorum) extend(_ context.Context, e lockstore.Extension) (lockstore.Extended, error) {
	lease := milliseconds(e.Lease)
	done := lockstore.Extended{Sent: time.Now()}
	until := q.until(lease)
	attempt := e.Attempt
	if attempt == "" { // it was had through another proxy: RENEW counts on it as an attempt of its own
		attempt = q.m.request(q.m.uuid)
	}
	all := gather(q, until, func(n *quorumNode) result {
		if q.drops(n, e.ID) {
			return result{node: n, err: &upstream.NotSentError{Cause: errOwed}}
		}
		out, err := q.ask(n, until, func(notAfter string) node.Call { return extending(extendCall(e, notAfter), e.ID, attempt) })
		return result{n, out, err}
	}, func(all []result) bool { return q.tallyOf(all).Count(1) >= q.majority() })
	t := q.tallyOf(all)
	if e.Attempt == "" && t.Count(1) < q.majority() {
		h := &hold{id: e.ID, explicit: e.Named}
		q.retract(&release{m: q.m, h: h, all: true, registration: e.Registration, attempt: attempt}, all, done.Sent.Add(lease))
	}
	switch {
	case t.Count(1) >= q.majority():
		done.Code, done.Count, done.TTL, done.Attempt = 1, max(e.Count, 1), t.Lasts(), attempt
		return done, nil
	case t.Count(scripts.OtherKind) >= q.majority():
		done.Code = scripts.OtherKind
		return done, nil
	case len(q.all)-t.Count(-1) < q.majority():
		done.Code, done.Count = -1, slices.Max(append(t.Column(-1, 1), 0))
		return done, nil
	}
	if !e.Watched {
		done.Ends = done.Sent.Add(lease - q.drift(lease))
	}
	return done, q.trouble(all, len(t.Said), "the lease is not lengthened")
}

// retract takes an attempt back from the nodes that said that they have it. Nobody waits for that.
func (q *quorum) retract(r *release, all []result, giveUp time.Time) {
	for _, one := range all {
		if one.code() == 1 {
			q.m.background(func() { q.insist(one.node, giveUp, func(string) node.Call { return r.quietly() }) })
		}
	}
}
