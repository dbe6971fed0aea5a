package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// splitTries is how often a LOCK that does not wait asks when the nodes were split among several that asked at once.
const splitTries = 4

// acquire asks all nodes for a lock. What it returns is final: what no majority gave is given back.
func (q *quorum) acquire(ctx context.Context, a *acquire) (answer, error) {
	if a.r.Lease > 0 && !q.m.sitOut(ctx, a.h) {
		return answer{}, ctx.Err()
	}
	a.latch = ""
	a.flags = strings.ReplaceAll(a.flags, "L", "")
	for try := 1; ; try++ {
		v := q.vote(ctx, a)
		ans, err := q.judge(a, v)
		if err == nil && ans.code == 1 && a.r.Fence {
			ans.token, err = q.fence(a, v)
		}
		won := err == nil && ans.code == 1
		if v.decide(won, q.until(0)); !won {
			v.sitOut()
		}
		split := err == nil && ans.code == 0 && v.count(0) < q.majority()
		if !split || a.r.Blocks || try == splitTries || !q.m.sleep(ctx, shortPause(time.Since(a.sent))) {
			return ans, err
		}
	}
}

// vote is one round of an acquire.
type vote struct {
	all     []result
	until   time.Time
	cleared chan struct{} // gets one for each of them that has given back what it gave
	bare    bool          // the owner is a connection that had nothing: whatever it has on a node can be given back
	giveUp  time.Time     // the lease is over then
	back    func(notAfter string) call
	decided chan struct{} // closed by decide; what was not won is then given back
	won     bool
	backBy  time.Time            // an owner with a name has given back by then, or does not any more
	counted map[*quorumNode]bool // who was heard
}

func (v *vote) decide(won bool, backBy time.Time) {
	v.won, v.backBy, v.counted = won, backBy, map[*quorumNode]bool{}
	for _, r := range v.all {
		v.counted[r.node] = true
	}
	close(v.decided)
}

// sitOut waits until all nodes that were heard have given back, or can no longer do.
func (v *vote) sitOut() {
	timer := time.NewTimer(time.Until(v.backBy))
	defer timer.Stop()
	for range v.count(1) - v.entered() {
		select {
		case <-v.cleared:
		case <-timer.C:
			return
		}
	}
}

// count is how many nodes said so.
func (v *vote) count(code int64) int {
	n := 0
	for _, r := range v.all {
		if r.code() == code {
			n++
		}
	}
	return n
}

// entered is how many nodes said that the owner had the lock already.
func (v *vote) entered() int {
	n := 0
	for _, r := range v.all {
		if r.code() == 1 && r.out[4] == 0 {
			n++
		}
	}
	return n
}

// vote sends the acquire to all nodes.
func (q *quorum) vote(ctx context.Context, a *acquire) *vote {
	c := a.call("")
	if (a.h.explicit || a.before > 0) && !strings.Contains(c.args[3], "O") {
		c.args[3] += "O" // an owner's hold counts one on a node
	}
	lease, _ := strconv.ParseInt(c.args[0], 10, 64)
	a.sent = time.Now()
	v := &vote{
		bare: !a.h.explicit && a.before == 0, until: q.until(milliseconds(lease)), giveUp: a.sent.Add(milliseconds(lease)),
		back:    (&release{m: q.m, h: a.h, all: true, registration: a.registration}).takeBack(strings.Contains(a.flags, "W")),
		decided: make(chan struct{}), cleared: make(chan struct{}, len(q.nodes)),
	}
	build := func(notAfter string) call {
		mine := c
		mine.args = slices.Clone(c.args)
		mine.args[2] = notAfter
		return mine
	}
	answers := make(chan result, len(q.nodes))
	for _, n := range q.nodes {
		q.m.background(func() { q.voteOf(n, a.h, v, build, answers) })
	}
	v.all = collect(answers, len(q.nodes), v.until, func(all []result) bool {
		v.all = all
		return q.clearly(v)
	})
	return v
}

// voteOf asks one node, and has it give back what was not won.
func (q *quorum) voteOf(n *quorumNode, h *hold, v *vote, build func(string) call, answers chan<- result) {
	mine := q.beginAlone(n, h.id, v)
	if mine == nil {
		answers <- result{node: n, err: &upstream.NotSentError{Cause: errOwed}}
		return
	}
	defer q.end(n, h.id, mine)
	select {
	case <-v.decided: // without this node; the lock may be given back by now
		return
	default:
	}
	out, err := q.ask(n, v.until, build)
	r := result{n, out, err}
	answers <- r
	lost := isUnknown(err)
	if lost {
		q.m.sleep(context.Background(), time.Until(v.until)+clockTolerance) // after that it is not done any more
	}
	<-v.decided
	raised := r.code() == 1 && r.out[4] == 1
	switch {
	case v.won:
	case raised && (!h.explicit || v.counted[n]), lost && v.bare:
		q.clear(n, h.id, v.backBy, v.giveUp, v.back)
		v.cleared <- struct{}{}
	}
	// What a node gave too late to an owner with a name runs out: that owner may have come back through another proxy.
}

// clearly says whether what the other nodes may still say changes nothing.
func (q *quorum) clearly(v *vote) bool {
	pending := len(q.nodes) - len(v.all)
	yes, entered := v.count(1), v.entered()
	answered := yes + v.count(0) + v.count(codeKind) + v.count(codeUpgrade)
	if yes+pending < q.majority() {
		return answered >= q.majority()
	}
	return yes >= q.majority() && (entered == 0 || entered >= q.majority() || entered+pending < q.majority())
}

// judge makes one answer of the nodes' answers. count and raised are what one node would say of the owner's holds.
func (q *quorum) judge(a *acquire, v *vote) (answer, error) {
	need := q.majority()
	for _, code := range []int64{codeKind, codeUpgrade} {
		if v.count(code) >= need {
			return answer{code: code}, nil
		}
	}
	if v.count(1) < need {
		return q.refused(a, v)
	}
	entered := v.entered()
	dark := len(q.nodes) - v.count(1) - v.count(0) // may have it, too
	before := entered > 0 && entered+dark >= need
	ans := answer{code: 1, count: 1, raised: 1, ttl: q.validity(v)}
	switch {
	case !before: // what some nodes had was left behind: a majority does not
	case a.r.Once:
		ans.count, ans.raised = max(a.before, 1), 0
	case !a.h.explicit:
		ans.count = a.before + 1
	case entered >= need:
		return answer{}, &Error{"ERR", fmt.Sprintf("this owner already holds '%s': with --quorum an owner with a name does not nest; say ONCE, or take a fresh name",
			printable(a.r.Key))}
	default: // it may be held, or left behind on a few nodes: that ends with its lease
		return answer{ttl: shortPause(time.Since(a.sent)).Milliseconds()}, nil
	}
	return ans, nil
}

// refused is the answer when no majority said yes.
func (q *quorum) refused(a *acquire, v *vote) (answer, error) {
	answered := v.count(1) + v.count(0) + v.count(codeKind) + v.count(codeUpgrade)
	if answered < q.majority() {
		return answer{}, q.trouble(v.all, answered, "the lock was not taken")
	}
	var left []int64
	for _, r := range v.all {
		if r.code() == 0 {
			left = append(left, r.out[2])
		}
	}
	slices.Sort(left)
	lacking := q.majority() - v.count(1)
	if len(left) < q.majority() || lacking > len(left) { // others asked at once, too
		return answer{ttl: shortPause(time.Since(a.sent)).Milliseconds()}, nil
	}
	return answer{ttl: max(left[lacking-1], 0)}, nil
}

// trouble is why no majority answered: what a node of Redis says, if it says the same everywhere, or NOQUORUM.
func (q *quorum) trouble(all []result, answered int, what string) error {
	refusals := 0
	var said *upstream.ReplyError
	var why error
	for _, r := range all {
		var refusal *upstream.ReplyError
		if r.err != nil {
			why = r.err
		}
		if errors.As(r.err, &refusal) {
			refusals++
			said = refusal
		}
	}
	if refusals >= q.majority() {
		return said
	}
	return q.short(answered, what, why)
}

// validity is for how long in ms a majority has the lock, less what clocks may drift.
func (q *quorum) validity(v *vote) int64 {
	var ttls []int64
	for _, r := range v.all {
		if r.code() == 1 {
			ttls = append(ttls, r.out[2])
		}
	}
	slices.Sort(ttls)
	slices.Reverse(ttls)
	ttl := ttls[q.majority()-1]
	return max(0, ttl-q.m.drift(milliseconds(ttl)).Milliseconds())
}

// fence makes the highest token of those that gave the lock everybody's: on a majority no lower one is given any more.
func (q *quorum) fence(a *acquire, v *vote) (int64, error) {
	var token, known int64
	for _, r := range v.all {
		if r.code() == 1 {
			token = max(token, r.out[3])
			if r.out[4] == 0 {
				known = max(known, r.out[3])
			}
		}
	}
	switch {
	case v.entered() == 0:
	case a.r.Once && v.entered() >= q.majority():
		token = known // it was given before
	default:
		token = max(token, known+1)
	}
	build := func(notAfter string) call {
		return call{a.h.id.db, scripts.Raise, []string{tokenKey(a.h.id.key)}, []string{
			strconv.FormatInt(token, 10), notAfter, strconv.FormatInt(q.m.opts.FenceTTL.Milliseconds(), 10),
		}}
	}
	until := q.until(milliseconds(leaseOf(a.r, q.m.opts)))
	all := gather(q, until, func(n *quorumNode) result {
		out, err := q.ask(n, until, build)
		return result{n, out, err}
	}, func(all []result) bool { return agreed(all, 1) >= q.majority() })
	if n := agreed(all, 1); n < q.majority() {
		return 0, q.trouble(all, n, "the fencing token is not safe, the lock was given back")
	}
	return token, nil
}

func agreed(all []result, code int64) int {
	n := 0
	for _, r := range all {
		if r.code() == code {
			n++
		}
	}
	return n
}
