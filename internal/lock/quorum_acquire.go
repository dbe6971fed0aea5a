package lock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// splitTries is how often a LOCK that does not wait asks when the nodes were split among several that asked at once.
const splitTries = 4

// acquire asks all nodes for a lock. What it returns is final: what no majority gave is taken back.
func (q *quorum) acquire(ctx context.Context, a *acquire) (answer, error) {
	if a.r.Lease > 0 && !q.m.sitOut(ctx, a.h) {
		return answer{}, ctx.Err()
	}
	a.flags = strings.Replace(a.flags, "F", "", 1)
	for try := 1; ; try++ {
		v := q.vote(a)
		t := q.tallyOf(v.all)
		ans, err := q.judge(a, v, t)
		if err == nil && ans.code == 1 && a.r.Fence {
			ans.token, err = q.fence(a, t)
		}
		granted := err == nil && ans.code == 1
		if v.decide(granted, t.Verdict() == tally.Won, q.until(0)); !granted {
			v.sitOut()
		}
		if err != nil || t.Verdict() != tally.Split || a.r.Blocks || try == splitTries || !q.m.sleep(ctx, shortPause(time.Since(a.sent))) {
			return ans, err
		}
	}
}

// vote is one attempt: one round of an acquire. It has a name of its own on the nodes, under which it counts on the hold that it
// made or found there, and under which it is taken back, whoever else counts on that hold.
type vote struct {
	attempt string
	all     []result               // that were heard in time
	until   time.Time              // after that no node does anything
	giveUp  time.Time              // the lease is over then, wherever it was given
	back    func(string) node.Call // takes the attempt back on one node, and tells nobody
	loud    func(string) node.Call // back, and whoever waits is told
	decided chan struct{}          // closed by decide
	won     bool                   // or else it is taken back
	told    bool                   // others may have seen that the lock was had
	backBy  time.Time              // what was heard is taken back by then, for whoever waits for that
	cleared chan struct{}          // gets one for each node that was heard to give the lock, and has taken it back
	heard   map[*quorumNode]bool
}

// decide says what becomes of a vote; told that others may have seen it won.
func (v *vote) decide(won, told bool, backBy time.Time) {
	v.won, v.told, v.backBy, v.heard = won, told, backBy, map[*quorumNode]bool{}
	for _, r := range v.all {
		v.heard[r.node] = r.code() == 1
	}
	close(v.decided)
}

// sitOut waits until all nodes that were heard to give the lock have taken it back, or can no longer do so in time.
func (v *vote) sitOut() {
	timer := time.NewTimer(time.Until(v.backBy))
	defer timer.Stop()
	for _, gave := range v.heard {
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
func (q *quorum) vote(a *acquire) *vote {
	c := a.call("")
	if !a.h.explicit && a.before > 0 {
		c.Args[3] += "O" // an owner's hold counts one on a node
	}
	lease, _ := strconv.ParseInt(c.Args[0], 10, 64)
	a.sent, a.attempt = time.Now(), a.c.request()
	v := &vote{
		attempt: a.attempt, until: q.until(milliseconds(lease)),
		decided: make(chan struct{}), cleared: make(chan struct{}, len(q.all)),
	}
	v.giveUp = v.until.Add(milliseconds(lease))
	back := &release{m: q.m, h: a.h, all: true, registration: a.registration, attempt: a.attempt}
	v.loud = back.onNode
	v.back = func(string) node.Call { return back.quietly() }
	build := func(notAfter string) node.Call { return asVote(c, a.h.id, a.attempt, a.r.Fence, notAfter) }
	answers := make(chan result, len(q.all))
	for _, n := range q.all {
		q.m.background(func() { q.voteOf(n, a.h.id, v, build, answers) })
	}
	v.all = collect(answers, len(q.all), v.until, func(all []result) bool { return q.tallyOf(all).Clear() })
	return v
}

// voteOf asks one node, and has it take back what was not won: also what it gave too late to be heard, or may have given.
func (q *quorum) voteOf(n *quorumNode, id lockstore.ID, v *vote, build func(string) node.Call, answers chan<- result) {
	mine := q.beginAlone(n, id, v.until)
	if mine == nil {
		answers <- result{node: n, err: &upstream.NotSentError{Cause: errOwed}}
		return
	}
	defer q.end(n, id, mine)
	select {
	case <-v.decided: // without this node; the lock may be given back by now
		return
	default:
	}
	out, err := q.ask(n, v.until, build)
	r := result{n, out, err}
	answers <- r
	if isUnknown(err) {
		q.m.sleep(context.Background(), time.Until(v.until)+node.ClockTolerance) // after that it is not done any more
	}
	<-v.decided
	if v.won || r.code() != 1 && !isUnknown(err) {
		return
	}
	back := v.back
	if v.told {
		back = v.loud
	}
	q.insist(n, v.giveUp, back)
	if v.heard[n] {
		v.cleared <- struct{}{}
	}
}

// judge makes one answer of the nodes' answers. count and raised are what one node would say of the owner's holds.
func (q *quorum) judge(a *acquire, v *vote, t tally.Tally) (answer, error) {
	pause := shortPause(time.Since(a.sent)).Milliseconds()
	switch t.Verdict() {
	case tally.OtherLock:
		return answer{code: scripts.OtherKind}, nil
	case tally.Upgrade:
		return answer{code: scripts.Upgrade}, nil
	case tally.Unheard:
		return answer{}, q.trouble(v.all, t.Voted(), "the lock was not taken")
	case tally.Split:
		return answer{ttl: pause}, nil
	case tally.Held:
		return answer{ttl: t.Free()}, nil
	}
	ans := answer{code: 1, count: 1, raised: 1, ttl: t.Lasts()}
	switch {
	case !t.Had(): // what some nodes had was left behind: a majority does not
	case a.h.explicit:
		ans.count, ans.raised = max(a.before, 1), 0
	default:
		ans.count = a.before + 1
	}
	return ans, nil
}

// fence makes the highest token of those that gave the lock everybody's: on a majority no lower one is given any more.
func (q *quorum) fence(a *acquire, t tally.Tally) (int64, error) {
	token := t.Token(a.h.explicit)
	build := func(notAfter string) node.Call {
		return node.Call{DB: a.h.id.DB, Script: scripts.Raise, Keys: []string{lockstore.TokenKey(a.h.id.Key)}, Args: []string{
			strconv.FormatInt(token, 10), notAfter, strconv.FormatInt(q.m.opts.FenceTTL.Milliseconds(), 10),
		}}
	}
	until := q.until(milliseconds(leaseOf(a.r, q.m.opts)))
	all := gather(q, until, func(n *quorumNode) result {
		out, err := q.ask(n, until, build)
		return result{n, out, err}
	}, func(all []result) bool { return q.tallyOf(all).Count(1) >= q.majority() })
	if n := q.tallyOf(all).Count(1); n < q.majority() {
		return 0, q.trouble(all, n, "the fencing token is not safe, the lock was given back")
	}
	return token, nil
}
