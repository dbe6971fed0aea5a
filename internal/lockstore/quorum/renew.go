package quorum

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// Renew sends a batch of renewals to all nodes. Each hold gets the answer of a majority. A node that answers later is
// still given the holds that it lacks: see spread.
func (q *store) Renew(_ context.Context, r lockstore.Renewal) ([]int64, error) {
	until := q.until(r.Lease)
	out, any, decided := make([]int64, len(r.Holds)), false, make(chan struct{})
	defer close(decided)
	answers := gather(q, until, func(n *quorumNode) result {
		said := q.renewOn(n, r, until, decided)
		if said.err == nil && r.Lease > 0 && slices.Contains(said.out, lockstore.NotThere) {
			q.host.Background(func() { q.spread(decided, r, out, said, until) })
		}
		return said
	}, func(all []result) bool { return q.tallyOf(all).RenewedAll(len(r.Holds)) })
	t := q.tallyOf(answers)
	for i := range out {
		out[i] = q.takenOver(r.Holds[i], t.Renewal(i))
		any = any || lockstore.Answered(out[i])
	}
	if !any {
		return out, q.noMajority(answers, len(t.Said), "the renewal does not count")
	}
	return out, nil
}

// renewOn sends a batch of renewals to one node, unless the others have decided: from then on RENEW may have given the holds another end.
func (q *store) renewOn(n *quorumNode, r lockstore.Renewal, until time.Time, decided <-chan struct{}) result {
	select {
	case <-decided:
		return unasked(n)
	default:
	}
	before := make([]*step, len(r.Holds))
	for i, h := range r.Holds {
		before[i] = q.current(n, h.ID)
	}
	said := q.ask(n, until, func(notAfter string) node.Call { return node.RenewVotes(r, notAfter) })
	for i := range said.out {
		if i < len(before) && before[i] != nil && (before[i].drops || said.out[i] == lockstore.NotThere) {
			said.out[i] = lockstore.Undecided // the release, or the vote, that is under way may come before or after this
		}
	}
	return said
}

// takenOver is the result for a hold, after what the nodes said of it together. That another connection has taken it over is believed only when
// it has been so for three node time-outs, or a quarter of the lease if that is shorter. Until then the result is Taking: the LOCK of that
// connection may still fail, and its votes are taken back then.
func (q *store) takenOver(h lockstore.Renewed, said int64) int64 {
	if said == lockstore.TakenOver && (h.Taken.IsZero() || time.Since(h.Taken) < min(3*q.timeout, h.Lease/4)) {
		return lockstore.Taking
	}
	return said
}

// spread gives a node the holds that it lacks and that a majority has just renewed: it has lost them in a restart, or did not vote for them.
// Without that a lock that is held for long would lose its majority when the nodes are restarted one after the other. A verb on the same hold
// waits only until the step is begun, and not for the node; a release waits for the node, because begin puts it behind that step. What a
// majority has renewed is in out once decided is closed; said is what this node said. The node is not given anything after until, which is the
// renewal's own: a release through another proxy may have passed it, and waits only so long for what was sent before (see settle).
func (q *store) spread(decided <-chan struct{}, r lockstore.Renewal, out []int64, said result, until time.Time) {
	<-decided
	for i, one := range r.Holds {
		if i < len(said.out) && said.out[i] == lockstore.NotThere && out[i] == lockstore.StillThere && one.Attempt != "" {
			q.host.Regain(one, r.Lease, func(a *lockstore.Acquire) { q.spreadOne(a, one.Attempt, said.node, until) })
		}
	}
}

// spreadOne begins the step of one hold.
func (q *store) spreadOne(a *lockstore.Acquire, attempt string, n *quorumNode, until time.Time) {
	if !time.Now().Before(until) {
		return
	}
	mine, _ := q.beginIdle(n, a.ID)
	if mine == nil {
		return
	}
	c, id := q.steps.Candidacy(*a), a.ID
	build := func(notAfter string) node.Call { return node.AsVote(c, id, attempt, false, notAfter) }
	q.host.Background(func() { q.spreadTo(n, id, mine, until, build) })
}

// spreadTo is the step mine itself, on the hold id.
func (q *store) spreadTo(n *quorumNode, id lockstore.ID, mine *step, until time.Time, build func(notAfter string) node.Call) {
	q.endWhenOver(n, id, mine, until, q.ask(n, until, build).err)
}

// endWhenOver ends a step that has ended with err: when its reply was lost, not before the node cannot do it any more.
func (q *store) endWhenOver(n *quorumNode, id lockstore.ID, mine *step, until time.Time, err error) {
	if !lockstore.Unknown(err) {
		q.end(n, id, mine)
		return
	}
	q.host.Background(func() {
		defer q.end(n, id, mine)
		q.host.Sleep(context.Background(), time.Until(until)+node.ClockTolerance)
	})
}

// Extend is RENEW on all nodes: it counts when a majority has done it. If none has, a shorter lease may still be in force on some nodes.
func (q *store) Extend(_ context.Context, e lockstore.Extension) (lockstore.Extended, error) {
	lease := lockstore.Milliseconds(e.Lease)
	done := lockstore.Extended{Sent: time.Now()}
	e.MayEnd(done.Sent.Add(lease - lockstore.Drift(lease)))
	x := &extending{q: q, e: e, attempt: e.Attempt, until: q.until(lease), decided: make(chan struct{})}
	if e.Attempt == "" { // it was taken through another proxy, whose attempt is not known here: this RENEW is an attempt of its own
		x.attempt = q.newAttempt()
	}
	enough := q.done
	if x.skipTroubled = e.Named && q.wellEnough(); e.Named {
		enough = everybody[result]
	}
	all := gather(q, x.until, x.on, enough)
	t := q.tallyOf(all)
	code, left, ok := t.Extended()
	x.won = ok && code == lockstore.LeaseSet
	close(x.decided)
	if x.won && e.Named && mayStillCome(all, len(q.all)) { // it would shorten, or rename, what the owner takes through another proxy next
		q.host.Sleep(context.Background(), time.Until(x.until)+node.ClockTolerance)
	}
	switch {
	case x.won:
		done.Code, done.Count, done.TTL, done.Attempt = lockstore.LeaseSet, max(e.Count, 1), t.Lasts(), x.attempt
		return done, nil
	case ok:
		done.Code, done.Count = code, left
		return done, nil
	}
	if !x.mayBeDone(all) {
		e.MayEnd(time.Time{}) // no node has done it
	} else {
		q.host.Sleep(context.Background(), time.Until(x.until)+node.ClockTolerance) // by then what was sent is done, or never will be
	}
	return done, q.noMajority(all, len(t.Said), "the lease is not lengthened")
}

// mayBeDone says whether a node has done it, or may have, by the answers that came in time.
func (x *extending) mayBeDone(all []result) bool {
	silent := x.asked.Load()
	for _, r := range all {
		if r.code() == lockstore.LeaseSet || lockstore.Unknown(r.err) {
			return true
		}
		if !errors.Is(r.err, errStepUnderWay) {
			silent--
		}
	}
	return silent > 0
}

// extending is one RENEW on all nodes.
type extending struct {
	q       *store
	e       lockstore.Extension
	attempt string        // under which it counts on the hold
	until   time.Time     // after that no node does it
	asked   atomic.Int32  // how many nodes it was sent to, at most
	decided chan struct{} // closed when won is set: from then on it is sent to no node
	won     bool          // a majority has done it

	skipTroubled bool // a node that did not answer what it was asked last is not sent it
}

// on sends it to one node. It does not begin there once the verb is answered, because the owner may have given the lock back then, and taken
// it anew: see voteOf.
func (x *extending) on(n *quorumNode) result {
	if x.skipTroubled && n.troubled() {
		return unasked(n)
	}
	mine := x.q.beginAlone(n, x.e.ID, x.until)
	if mine == nil {
		return unasked(n)
	}
	x.asked.Add(1)
	select {
	case <-x.decided:
		x.q.end(n, x.e.ID, mine)
		return unasked(n)
	default:
	}
	r := x.q.ask(n, x.until, func(notAfter string) node.Call { return node.ExtendVote(node.Extend(x.e, notAfter), x.e.ID, x.attempt) })
	x.q.endWhenOver(n, x.e.ID, mine, x.until, r.err)
	if x.e.Attempt == "" && (r.code() == lockstore.LeaseSet || lockstore.Unknown(r.err)) {
		x.q.host.Background(func() { x.retract(r) })
	}
	return r
}

// retract takes back, on a node that has done it or may have, a RENEW that turns out to have no majority. If it stayed, whoever renewed the
// hold before would find the registration of this RENEW there, and stop.
func (x *extending) retract(r result) {
	if <-x.decided; x.won {
		return
	}
	if lockstore.Unknown(r.err) {
		x.q.host.Sleep(context.Background(), time.Until(x.until)+node.ClockTolerance) // after that it is not done any more
	}
	back := &lockstore.Release{ID: x.e.ID, Named: x.e.Named, All: true, Registration: x.e.Registration, Attempt: x.attempt}
	x.q.insist(r.node, x.until.Add(lockstore.Milliseconds(x.e.Lease)), func(string) node.Call { return x.q.steps.RetractQuietly(back) })
}
