package quorum

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
)

// splitTries is how often a LOCK that does not wait asks when the nodes were split among several that asked at once.
const splitTries = 4

// Acquire asks all nodes for a lock. What it returns is final: what no majority gave is taken back.
func (q *store) Acquire(ctx context.Context, a *lockstore.Acquire) (lockstore.Acquired, error) {
	for splits := a.Splits; ; splits++ {
		v := q.vote(a)
		t := q.tallyOf(v.all)
		ans, err := q.judge(a, v, t)
		ans.Sent, ans.Attempt = v.sent, v.attempt
		if t.Verdict() == tally.Split {
			ans.Split, ans.TTL = true, splitPause(time.Since(v.sent), splits).Milliseconds()
		}
		if err == nil && ans.Code == lockstore.Granted && a.Fence {
			ans.Token, err = q.fence(a, t)
		}
		granted := err == nil && ans.Code == lockstore.Granted
		if v.decide(granted, t.Verdict() == tally.Won, q.until(0)); !granted {
			v.sitOut()
		}
		if !ans.Split || a.Blocks || splits == splitTries-1 || !q.host.Sleep(ctx, lockstore.Milliseconds(ans.TTL)) {
			return ans, err
		}
	}
}

// vote is one attempt: one round of an acquire. It has a name of its own on the nodes, under which it counts on the hold that it
// made or found there, and under which it is taken back, whoever else counts on that hold.
type vote struct {
	attempt string
	sent    time.Time
	all     []result               // the answers that came in time
	until   time.Time              // after that no node does anything
	giveUp  time.Time              // by then the lease is over on every node that voted
	back    func(string) node.Call // takes the attempt back on one node, and wakes nobody
	loud    func(string) node.Call // as back, and wakes whoever waits
	decided chan struct{}          // closed by decide
	won     bool                   // or else it is taken back
	told    bool                   // it had a majority: others may have seen that the lock was held, and wait for it
	backBy  time.Time              // until when sitOut waits for votes to be taken back
	cleared chan struct{}          // gets one for each node whose vote came in time, when that is taken back
	gave    map[*quorumNode]bool   // of the nodes whose answer came in time: whether it was a vote
}

// decide sets the outcome of a vote.
func (v *vote) decide(won, told bool, backBy time.Time) {
	v.won, v.told, v.backBy, v.gave = won, told, backBy, map[*quorumNode]bool{}
	for _, r := range v.all {
		v.gave[r.node] = r.code() == lockstore.Granted
	}
	close(v.decided)
}

// sitOut waits until all nodes whose vote came in time have taken it back, or backBy has passed.
func (v *vote) sitOut() {
	timer := time.NewTimer(time.Until(v.backBy))
	defer timer.Stop()
	for _, gave := range v.gave {
		if !gave {
			continue
		}
		select {
		case <-v.cleared:
		case <-timer.C:
			return
		}
	}
}

// vote sends the acquire to all nodes.
func (q *store) vote(a *lockstore.Acquire) *vote {
	c, lease := q.steps.Candidacy(*a), lockstore.Milliseconds(a.Lease)
	v := &vote{
		attempt: q.newAttempt(), sent: time.Now(), until: q.until(lease),
		decided: make(chan struct{}), cleared: make(chan struct{}, len(q.all)),
	}
	v.giveUp = v.until.Add(lease)
	back := &lockstore.Release{ID: a.ID, Named: a.Named, All: true, Registration: a.Registration, Attempt: v.attempt}
	v.loud = func(notAfter string) node.Call { return q.steps.Retract(back, notAfter) }
	v.back = func(string) node.Call { return q.steps.RetractQuietly(back) }
	id, fence := a.ID, a.Fence
	build := func(notAfter string) node.Call { return node.AsVote(c, id, v.attempt, fence, notAfter) }
	answers := make(chan result, len(q.all))
	for _, n := range q.all {
		q.host.Background(func() { q.voteOf(n, id, v, build, answers) })
	}
	v.all = collect(answers, len(q.all), v.until, q.decided)
	return v
}

// decided says whether to wait for no more votes: either those still to come cannot change the result, or a majority has voted and only nodes
// are missing that did not answer what they were asked last. Such a node is not waited for, because the votes given so far are kept
// meanwhile: others who ask for the lock do not get them, are refused, and come again at the same time as this one does. A vote that comes
// later is taken back.
func (q *store) decided(all []result) bool {
	t := q.tallyOf(all)
	if t.Clear() {
		return true
	}
	if !t.Quorate() {
		return false
	}
	answered := map[*quorumNode]bool{}
	for _, r := range all {
		answered[r.node] = true
	}
	for _, n := range q.all {
		if !answered[n] && !n.troubled() {
			return false
		}
	}
	return true
}

// voteOf asks one node for its vote, and makes it take the vote back if the lock was not won: also a vote that came too late, or
// whose reply was lost.
func (q *store) voteOf(n *quorumNode, id lockstore.ID, v *vote, build func(string) node.Call, answers chan<- result) {
	mine := q.beginAlone(n, id, v.until)
	if mine == nil {
		answers <- unasked(n)
		return
	}
	defer q.end(n, id, mine)
	select {
	case <-v.decided: // without this node: it must not vote now, since the lock may have been given back
		return
	default:
	}
	r := q.ask(n, v.until, build)
	answers <- r
	if lockstore.Unknown(r.err) {
		q.host.Sleep(context.Background(), time.Until(v.until)+node.ClockTolerance) // after that it is not done any more
	}
	<-v.decided
	if v.won || r.code() != lockstore.Granted && !lockstore.Unknown(r.err) {
		return
	}
	back := v.back
	if v.told {
		back = v.loud
	}
	q.insist(n, v.giveUp, back)
	if v.gave[n] {
		v.cleared <- struct{}{}
	}
}

// judge makes one answer from the nodes' answers. Its Count and Raised are what a single Redis would say of the owner's holds.
func (q *store) judge(a *lockstore.Acquire, v *vote, t tally.Tally) (lockstore.Acquired, error) {
	switch t.Verdict() {
	case tally.OtherLock:
		return lockstore.Acquired{Code: lockstore.OtherKind}, nil
	case tally.Upgrade:
		return lockstore.Acquired{Code: lockstore.Upgrade}, nil
	case tally.NoQuorum:
		return lockstore.Acquired{}, q.noMajority(v.all, t.Voted(), "the lock was not taken")
	case tally.Held, tally.Split:
		return lockstore.Acquired{TTL: t.Free()}, nil
	}
	ans := lockstore.Acquired{Code: lockstore.Granted, Count: 1, Raised: true, TTL: t.Lasts()}
	switch {
	case !t.Had(): // if some nodes had it nevertheless, that was left of an earlier hold
	case a.Named:
		ans.Count, ans.Raised, ans.Unrenewed = max(a.Count, 1), false, t.Unrenewed()
	default:
		ans.Count = a.Count + 1
	}
	return ans, nil
}

// fence raises a majority to the highest token of the nodes that gave the lock: they give no lower one any more.
func (q *store) fence(a *lockstore.Acquire, t tally.Tally) (int64, error) {
	id, token := a.ID, t.Token()
	build := func(notAfter string) node.Call { return q.steps.Raise(id, token, notAfter) }
	until := q.until(lockstore.Milliseconds(a.Lease))
	all := gather(q, until, func(n *quorumNode) result { return q.ask(n, until, build) }, q.done)
	if raised := q.tallyOf(all); !raised.Done() {
		return 0, q.noMajority(all, raised.Count(scripts.Done), "the fencing token is not safe, the lock was given back")
	}
	return token, nil
}
