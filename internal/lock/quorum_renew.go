package lock

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// renew sends a batch of renewals to all nodes. Each hold has the answer of a majority of its own. A node that has not answered by
// then is heard all the same, if it lacks a hold.
func (q *quorum) renew(_ context.Context, b *batch) ([]int64, error) {
	until := q.until(b.lease)
	q.m.mu.Lock()
	for _, h := range b.holds {
		b.attempts = append(b.attempts, h.attempt)
	}
	q.m.mu.Unlock()
	out, any, decided := make([]int64, len(b.holds)), false, make(chan struct{})
	defer close(decided)
	heard := gather(q, until, func(n *quorumNode) result {
		busy := make([]bool, len(b.holds))
		for i, h := range b.holds {
			busy[i] = q.drops(n, h.id)
		}
		said, err := q.ask(n, until, b.onNode)
		for i := range said {
			if i < len(busy) && busy[i] {
				said[i] = tally.Undecided // it may be dropped there
			}
		}
		if err == nil && b.lease > 0 && slices.Contains(said, 0) {
			q.m.background(func() { <-decided; q.spread(b, out, n, said) })
		}
		return result{n, said, err}
	}, func(all []result) bool { return len(all) >= q.majority() && q.settledAll(b, all) })
	t := q.tallyOf(heard)
	for i := range out {
		out[i] = q.takenOver(b.holds[i], t.Renewal(i))
		any = any || out[i] != tally.Undecided
	}
	if !any {
		return nil, q.trouble(heard, len(t.Said), "the renewal does not count")
	}
	return out, nil
}

// takenOver believes only for good what a renewal says of another connection that has taken a hold over: the LOCK of that one may
// fail yet, and what it has is taken back then.
func (q *quorum) takenOver(h *hold, said int64) int64 {
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	if said != 2 {
		h.taken = time.Time{}
		return said
	}
	if h.taken.IsZero() {
		h.taken = time.Now()
	}
	if time.Since(h.taken) < min(3*q.timeout, h.lease/4) {
		return tally.Undecided
	}
	return 2
}

// spread gives the holds that a majority has just renewed to a node again that has them no more, or never had them: a lock that is
// held for long outlives the restarts of all nodes, as long as a majority has it at any time. Nobody waits for that but a verb on
// the same hold, until the step is begun; a release is sent after it.
func (q *quorum) spread(b *batch, out []int64, n *quorumNode, said []int64) {
	for i, h := range b.holds {
		if i >= len(said) || said[i] != 0 || out[i] != 1 || b.attempts[i] == "" {
			continue
		}
		if now, err := q.m.enter(context.Background(), h.id, h.explicit); err == nil {
			if now == h && q.countsOn(h, b.attempts[i]) {
				q.spreadOne(b, i, n)
			}
			q.m.leave(now)
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
func (q *quorum) spreadOne(b *batch, i int, n *quorumNode) {
	h := b.holds[i]
	mine, _ := q.beginIdle(n, h.id)
	if mine == nil {
		return
	}
	a := &acquire{c: &Client{m: q.m}, h: h, r: Request{Lease: b.lease.Milliseconds()}, flags: "O", registration: b.marks[i]}
	if h.explicit {
		a.flags += "W"
	}
	c, until := a.call(""), q.until(b.lease)
	q.m.background(func() {
		defer q.end(n, h.id, mine)
		q.spreadTo(n, until, func(notAfter string) node.Call { return asVote(c, h.id, b.attempts[i], false, notAfter) })
	})
}

// spreadTo is the step itself.
func (q *quorum) spreadTo(n *quorumNode, until time.Time, build func(notAfter string) node.Call) {
	if _, err := q.ask(n, until, build); isUnknown(err) {
		q.m.sleep(context.Background(), time.Until(until)+node.ClockTolerance)
	}
}

// settledAll says whether a majority has renewed every hold of a batch.
func (q *quorum) settledAll(b *batch, all []result) bool {
	t := q.tallyOf(all)
	for i := range b.holds {
		if t.Renewal(i) != 1 {
			return false
		}
	}
	return true
}

// extend is RENEW on all nodes: it counts when a majority has it. A shorter lease that no majority has may be some nodes' all the same.
func (q *quorum) extend(_ context.Context, h *hold, r RenewRequest, registration, known string) (out []int64, sent time.Time, err error) {
	lease := milliseconds(leaseOf(Request{Lease: r.Lease}, q.m.opts))
	sent = time.Now()
	until := q.until(lease)
	q.m.mu.Lock()
	attempt := h.attempt
	q.m.mu.Unlock()
	unknown := attempt == "" // it was had through another proxy: RENEW counts on it as an attempt of its own
	if unknown {
		attempt = q.m.request(q.m.uuid)
	}
	all := gather(q, until, func(n *quorumNode) result {
		if q.drops(n, h.id) {
			return result{node: n, err: &upstream.NotSentError{Cause: errOwed}}
		}
		out, err := q.ask(n, until, func(notAfter string) node.Call {
			return extending(extendCall(h, r, q.m.opts, notAfter, registration, known), h.id, attempt)
		})
		return result{n, out, err}
	}, func(all []result) bool { return q.tallyOf(all).Count(1) >= q.majority() })
	t := q.tallyOf(all)
	if unknown && t.Count(1) < q.majority() {
		q.retract(&release{m: q.m, h: h, all: true, registration: registration, attempt: attempt}, all, sent.Add(lease))
	}
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	switch {
	case t.Count(1) >= q.majority():
		h.attempt = attempt
		return []int64{1, max(h.count, 1), t.Lasts()}, sent, nil
	case t.Count(scripts.OtherKind) >= q.majority():
		return []int64{scripts.OtherKind, 0, 0}, sent, nil
	case len(q.all)-t.Count(-1) < q.majority():
		return []int64{-1, slices.Max(append(t.Column(-1, 1), 0)), 0}, sent, nil
	}
	if end := sent.Add(lease - q.drift(lease)); r.Lease > 0 && h.count > 0 && end.Before(h.deadline) {
		h.deadline = end
		q.m.plan(h, sent)
	}
	return nil, sent, q.trouble(all, len(t.Said), "the lease is not lengthened")
}

// retract takes an attempt back from the nodes that said that they have it. Nobody waits for that.
func (q *quorum) retract(r *release, all []result, giveUp time.Time) {
	for _, one := range all {
		if one.code() == 1 {
			q.m.background(func() { q.insist(one.node, giveUp, func(string) node.Call { return r.quietly() }) })
		}
	}
}
