package lock

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// undecided is what a renewal says of a hold for which no majority spoke, or on a cluster nobody.
const undecided = -9

// renew sends a batch of renewals to all nodes. Each hold has the answer of a majority of its own.
func (q *quorum) renew(b *batch) ([]int64, error) {
	until := q.until(b.lease)
	heard := gather(q, until, func(n *quorumNode) result {
		busy := make([]bool, len(b.holds))
		for i, h := range b.holds {
			busy[i] = q.dropping(n, h.id)
		}
		out, err := q.ask(n, until, b.call)
		for i := range out {
			if i < len(busy) && busy[i] {
				out[i] = undecided // it may be dropped there
			}
		}
		return result{n, out, err}
	}, func(all []result) bool { return len(all) >= q.majority() && q.settledAll(b, all) })
	out, any := make([]int64, len(b.holds)), false
	for i := range out {
		out[i] = q.renewal(heard, i)
		any = any || out[i] != undecided
		if out[i] == 1 && b.lease > 0 {
			q.spread(b, i, heard)
		}
	}
	if !any {
		return nil, q.trouble(heard, answeredBy(heard), "the renewal does not count")
	}
	return out, nil
}

// spread gives a hold that a majority has just renewed to those nodes again that have it no more, or never had it: a lock that is
// held for long outlives the restarts of all nodes, as long as a majority has it at any time. Nobody waits for that. A release
// that comes meanwhile is sent after it. The hold is busy.
func (q *quorum) spread(b *batch, i int, heard []result) {
	h := b.holds[i]
	if !q.m.held(h.id) {
		return
	}
	for _, r := range heard {
		if r.err != nil || i >= len(r.out) || r.out[i] != 0 {
			continue
		}
		v := &vote{until: q.until(b.lease), won: true, decided: make(chan struct{})}
		close(v.decided)
		if mine := q.beginIdle(r.node, h.id, v); mine != nil {
			a := &acquire{c: &Client{m: q.m}, h: h, r: Request{Lease: b.lease.Milliseconds(), Once: true}, flags: "O", registration: b.marks[i]}
			if h.explicit {
				a.flags += "W"
			}
			c := a.call("")
			q.m.background(func() { q.spreadTo(r.node, h.id, c, v, mine) })
		}
	}
}

// spreadTo is the step itself.
func (q *quorum) spreadTo(n *quorumNode, id holdID, c call, v *vote, mine *quorumStep) {
	defer q.end(n, id, mine)
	_, err := q.ask(n, v.until, func(notAfter string) call {
		c.args[2] = notAfter
		return c
	})
	if isUnknown(err) {
		q.m.sleep(context.Background(), time.Until(v.until)+clockTolerance)
	}
}

func answeredBy(all []result) int {
	n := 0
	for _, r := range all {
		if r.code() != noCode {
			n++
		}
	}
	return n
}

// settledAll says whether a majority has renewed every hold of a batch.
func (q *quorum) settledAll(b *batch, all []result) bool {
	for i := range b.holds {
		if q.renewal(all, i) != 1 {
			return false
		}
	}
	return true
}

// renewal is what the nodes say together of one hold: 1 a majority has it, 0 a majority cannot have it, 2 another proxy has
// taken it over, or undecided.
func (q *quorum) renewal(all []result, i int) int64 {
	yes, taken, gone := 0, 0, 0
	for _, r := range all {
		if r.err != nil || i >= len(r.out) {
			continue
		}
		switch r.out[i] {
		case 1:
			yes++
		case 2:
			taken++
		case undecided:
		default:
			gone++
		}
	}
	need, nodes := q.majority(), len(q.nodes)
	switch {
	case yes >= need:
		return 1
	case nodes-taken-gone >= need:
		return undecided
	case taken > 0 && nodes-gone >= need:
		return 2
	default:
		return 0
	}
}

// extend is RENEW on all nodes: it counts when a majority has it. A shorter lease that no majority has may be some nodes' all the same.
func (q *quorum) extend(h *hold, r RenewRequest, registration, known string) (out []int64, sent time.Time, err error) {
	lease := milliseconds(leaseOf(Request{Lease: r.Lease}, q.m.opts))
	sent = time.Now()
	until := q.until(lease)
	all := gather(q, until, func(n *quorumNode) result {
		if q.dropping(n, h.id) {
			return result{node: n, err: &upstream.NotSentError{Cause: errOwed}}
		}
		out, err := q.ask(n, until, func(notAfter string) call { return extendCall(h, r, q.m.opts, notAfter, registration, known) })
		return result{n, out, err}
	}, func(all []result) bool { return agreed(all, 1) >= q.majority() })
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	yes, no := agreed(all, 1), agreed(all, -1)
	if yes >= q.majority() {
		var v vote
		for _, one := range all {
			if one.code() == 1 {
				v.all = append(v.all, result{out: []int64{1, 0, one.out[2]}})
			}
		}
		return []int64{1, max(h.count, 1), q.validity(&v)}, sent, nil
	}
	if other := agreed(all, codeKind); other >= q.majority() {
		return []int64{codeKind, 0, 0}, sent, nil
	}
	if len(q.nodes)-no < q.majority() {
		elsewhere := int64(0)
		for _, one := range all {
			if one.code() == -1 {
				elsewhere = max(elsewhere, one.out[1])
			}
		}
		return []int64{-1, elsewhere, 0}, sent, nil
	}
	if end := sent.Add(lease - q.m.drift(lease)); r.Lease > 0 && h.count > 0 && end.Before(h.deadline) {
		h.deadline = end
		q.m.plan(h, sent)
	}
	return nil, sent, q.trouble(all, answeredBy(all), "the lease is not lengthened")
}
