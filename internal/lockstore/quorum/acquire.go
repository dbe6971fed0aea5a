package quorum

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
)

// splitTries is how often a LOCK that does not wait asks when the nodes were split among several that asked at once.
const splitTries = 4

// Acquire asks all nodes for a lock. What it returns is final: what no majority gave is taken back. A connection's lock
// that it takes once more is renewed: nesting is only counted here.
func (q *store) Acquire(ctx context.Context, a *lockstore.Acquire) (lockstore.Acquired, error) {
	if a.Counts.Total() > 1 && onNode(a.Counts).Total() == 1 {
		return q.acquireAgain(ctx, a)
	}
	for splits := a.Splits; ; splits++ {
		b := q.ballot(a)
		t := q.all.tallyOf(b.all)
		ans, err := q.judge(a, b, t)
		if ans.Sent = b.sent; t.Verdict() == tally.Split {
			ans.Split, ans.TTL = true, splitPause(time.Since(b.sent), splits).Milliseconds()
		}
		if err == nil && ans.Code == lockstore.Granted && a.Fence {
			ans.Token, err = q.fence(a, t)
		}
		b.quiet = t.Verdict() != tally.Won
		if b.decide(err == nil && ans.Code == lockstore.Granted); !b.won {
			b.takeBack()
		}
		if !ans.Split || a.Blocks || splits == splitTries-1 || !q.host.Sleep(ctx, lockstore.Milliseconds(ans.TTL)) {
			return ans, err
		}
	}
}

// acquireAgain is Acquire of a lock that the connection has.
func (q *store) acquireAgain(ctx context.Context, a *lockstore.Acquire) (got lockstore.Acquired, err error) {
	got.Sent = time.Now()
	r := lockstore.Renewal{DB: a.ID.DB, Kind: a.ID.Hold().Kind,
		Holds: []lockstore.Renewed{{ID: a.ID, Counts: a.Counts, Lease: a.Lease}}}
	out, err := q.Renew(ctx, r)
	switch {
	case err != nil:
		return got, err
	case out[0] != lockstore.StillThere:
		got.Code = lockstore.NoHold
		return got, nil
	}
	got.Code, got.TTL = lockstore.Granted, a.Lease-lockstore.Drift(lockstore.Milliseconds(a.Lease)).Milliseconds()
	if a.Fence {
		got.Token, err = q.nextToken(a)
	}
	return got, err
}

// ballot is one round of votes.
type ballot struct {
	q       *store
	a       *lockstore.Acquire
	holds   []*nodeHold // of a connection, of each node
	sent    time.Time
	until   time.Time     // after that no node does anything
	all     []result      // the answers that came in time
	decided chan struct{} // closed when won is set
	won     bool
	made    *lockstore.Expiry // by the votes for a named owner
	quiet   bool              // taking back wakes nobody
	cleared chan *quorumNode  // gets each node that has taken its vote back
}

// decide sets the outcome, and what the nodes are to have from now on.
func (b *ballot) decide(won bool) {
	if b.won = won; !won && !b.a.Named() {
		b.q.holds.leave(b.q.holds.want(b.a.ID, b.before(), b.quiet)...)
	}
	close(b.decided)
}

// before is what the connection had before this LOCK.
func (b *ballot) before() lockstore.Counts {
	return b.a.Counts.With(b.a.ID.Kind, b.a.Counts.Of(b.a.ID.Kind)-1)
}

// ballot asks all nodes for their votes.
func (q *store) ballot(a *lockstore.Acquire) *ballot {
	b := &ballot{q: q, a: a, sent: time.Now(), until: q.until(lockstore.Milliseconds(a.Lease)),
		decided: make(chan struct{}), cleared: make(chan *quorumNode, len(q.all))}
	if !a.Named() {
		b.holds = q.holds.want(a.ID, a.Counts, false)
	} else {
		b.made = &lockstore.Expiry{}
	}
	answers := make(chan result, len(q.all))
	renews := a.There == lockstore.Renews
	skips := renews && q.all.wellEnough()
	for _, n := range q.all {
		q.host.Background(func() {
			r := unasked(n)
			if !skips || !n.troubled() {
				r = b.voteOf(n)
			}
			kept := b.kept(n, r)
			answers <- r
			if <-b.decided; !b.won || !kept {
				b.takeBackOn(n, r)
			}
			if b.holds != nil {
				q.holds.leave(b.holds[n.index])
			}
		})
	}
	if !renews {
		b.all = collect(answers, len(q.all), b.until, q.all.decided)
		return b
	}
	// What a node does later would shorten what the owner is given next.
	b.all = collect(answers, len(q.all), final(b.until), everybody[result])
	q.outlast(b.all, b.until)
	return b
}

// voteOf asks one node for its vote.
func (b *ballot) voteOf(n *quorumNode) (r result) {
	q := b.q
	if b.holds != nil {
		end, ok := b.holds[n.index].beginStep(context.Background(), onNode(b.a.Counts), b.until)
		if !ok {
			return unasked(n)
		}
		defer func() { end(r.err) }()
	}
	select {
	case <-b.decided: // without this node: it must not vote now, since the lock may have been given back
		return unasked(n)
	default:
	}
	return n.askVote(b.until,
		func(notAfter string) node.Call { return q.steps.Vote([]*lockstore.Acquire{q.candidacy(b.a)}, notAfter) })
}

// kept notes what a node has made for a named owner. It returns false if the lock was won without that node, and has
// been given back since.
func (b *ballot) kept(n *quorumNode, r result) bool {
	if !b.a.Named() || r.code() != lockstore.Granted {
		return true
	}
	got := node.Acquired(b.a, r.out)
	return b.made.Add(n.index, got.Expiry.On(0))
}

// takeBackOn takes a node's vote back.
func (b *ballot) takeBackOn(n *quorumNode, r result) {
	switch {
	case !b.a.Named():
		if r.code() == lockstore.Granted || lockstore.Unknown(r.err) {
			b.holds[n.index].dropVote(b.until.Add(lockstore.Milliseconds(b.a.Lease)))
		}
	case r.code() == lockstore.Granted:
		b.q.releaseMadeOn(n, lockstore.Release{ID: b.a.ID, Named: true, Expiry: node.Acquired(b.a, r.out).Expiry,
			Quiet: b.quiet}, b.q.until(0))
	}
	b.cleared <- n
}

// candidacy is an acquire as a node is asked: a hold counts one there.
func (q *store) candidacy(a *lockstore.Acquire) *lockstore.Acquire {
	one := *a
	one.Counts = onNode(a.Counts)
	return &one
}

// takeBack waits, for a moment, for the nodes that have voted for a lock that was not won, and take their votes back:
// others who ask get them. A connection keeps what it had before.
func (b *ballot) takeBack() {
	q := b.q
	voted := map[*quorumNode]bool{}
	for _, r := range b.all {
		if r.code() == lockstore.Granted {
			voted[r.node] = true
		}
	}
	if before := b.before(); !b.a.Named() && before.Total() > 0 {
		if before.Of(b.a.ID.Kind) == 0 {
			_, _ = q.releaseOwn(&lockstore.Release{ID: b.a.ID, Counts: before, Quiet: b.quiet})
		}
		return
	}
	timer := time.NewTimer(time.Until(q.until(0)))
	defer timer.Stop()
	for len(voted) > 0 {
		select {
		case n := <-b.cleared:
			delete(voted, n)
		case <-timer.C:
			return
		}
	}
}

// judge makes one answer from the nodes' answers.
func (q *store) judge(a *lockstore.Acquire, b *ballot, t tally.Tally) (lockstore.Acquired, error) {
	switch t.Verdict() {
	case tally.OtherLock:
		return lockstore.Acquired{Code: lockstore.OtherKind}, nil
	case tally.Upgrade:
		return lockstore.Acquired{Code: lockstore.Upgrade}, nil
	case tally.NoQuorum:
		return lockstore.Acquired{}, q.all.noMajority(b.all, t.Voted(), "the lock was not taken")
	case tally.Held, tally.Split:
		return lockstore.Acquired{TTL: t.Free()}, nil
	}
	return lockstore.Acquired{Code: lockstore.Granted, Made: !t.Had(), TTL: t.Lasts(), Expiry: b.made}, nil
}

// fence raises a majority to the highest token of the nodes that gave the lock: they give no lower one any more.
func (q *store) fence(a *lockstore.Acquire, t tally.Tally) (int64, error) {
	id, token := a.ID, t.Token()
	build := func(notAfter string) node.Call { return node.Raise(id, token, notAfter) }
	until := q.until(lockstore.Milliseconds(a.Lease))
	all := gather(q, until, func(_ context.Context, n *quorumNode) result { return n.askVote(until, build) }, q.all.done)
	if raised := q.all.tallyOf(all); !raised.Done() {
		return 0, q.all.noMajority(all, raised.Count(scripts.Done),
			"the fencing token is not safe, the lock was given back")
	}
	return token, nil
}

// nextToken asks the nodes for a token for a lock that the connection has.
func (q *store) nextToken(a *lockstore.Acquire) (int64, error) {
	again := *a
	again.Counts = onNode(a.Counts)
	b := q.ballot(&again)
	b.decide(true)
	t := q.all.tallyOf(b.all)
	if !t.Done() {
		return 0, q.all.noMajority(b.all, t.Voted(), "the fencing token is not known")
	}
	return q.fence(a, t)
}

// splitPause is how long to wait before votes that were split are asked for again. It is random, from a range that is
// several times as long as asking took, so that those who asked at once do not do so again. The range doubles with each
// split, up to 300 ms. Votes also look split while somebody holds the lock and one of the nodes that voted for the
// holder does not answer. The lock is then asked for some six times a second.
func splitPause(took time.Duration, splits int) time.Duration {
	window := max(6*took, 5*time.Millisecond) << min(splits, 8)
	return time.Millisecond + jitter.N(min(window, max(2*took, 300*time.Millisecond)))
}
