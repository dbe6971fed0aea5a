package lock

import (
	"context"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// takeBack is the release of what was never a lock: it wakes nobody. Of a registered hold it leaves what the owner has by now
// through another connection.
func (r *release) takeBack(registered bool) func(notAfter string) call {
	return func(notAfter string) call {
		c := r.call(notAfter)
		if !strings.Contains(c.args[3], "Q") {
			c.args[3] += "Q"
		}
		if registered {
			c.args[3] += "R"
		}
		return c
	}
}

// clear drops an owner's hold on one node. That of a connection is dropped for sure, until its lease is over: nobody else has
// that owner, and its next step on this node waits. An owner with a name may be back through another proxy at any time, so it
// is tried once, until then, for as long as the verb waits.
func (q *quorum) clear(n *quorumNode, id holdID, until, giveUp time.Time, build func(notAfter string) call) result {
	explicit := !implicitOwner(id.owner)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		if !explicit {
			until = q.until(0)
		}
		out, err := q.ask(n, until, build)
		r := result{n, out, err}
		if err == nil || explicit || time.Now().After(giveUp) || n.calls.Load() >= manyCalls {
			return r
		}
		if isUnknown(err) {
			pause = max(pause, time.Until(until)+clockTolerance) // the next one must be the last one
		}
		if !q.m.sleep(context.Background(), pause) {
			return r
		}
	}
}

// release gives back one hold, or all: one of several is only counted here, the last one is dropped on all nodes.
// An owner with a name is answered when every node has answered, or can no longer do anything.
func (q *quorum) release(r *release) (code, left int64, err error) {
	if !r.h.explicit && !r.all && r.before > 1 {
		return 0, r.before - 1, nil
	}
	whole := *r
	whole.all, whole.latch = true, ""
	until := q.until(0)
	spared := r.h.explicit && q.wellEnough()
	q.m.mu.Lock()
	giveUp := later(r.h.deadline, time.Now().Add(time.Second))
	q.m.mu.Unlock()
	all := gather(q, until, func(n *quorumNode) result {
		if spared && n.troubled() {
			return result{node: n, err: &upstream.NotSentError{Cause: errUnasked}} // nobody waits for what it may never say
		}
		return q.releaseOf(n, &whole, until, giveUp)
	}, func(all []result) bool {
		return !r.h.explicit && agreed(all, 1) >= q.majority()
	})
	code, left, err = q.freed(all)
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	switch {
	case err != nil:
		q.m.runOut(r.h) // its owner does not want it any more
		r.h.unwanted = true
	case code == -1 && left == 0 && r.h.count > 0 && r.h.unwanted:
		code = 1
	}
	return code, left, err
}

// releaseOf drops the hold on one node, after what is under way for it there. That goes on when nobody waits for it any more.
func (q *quorum) releaseOf(n *quorumNode, r *release, until, giveUp time.Time) result {
	before, mine := q.begin(n, r.h.id)
	if mine == nil {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		select {
		case <-before.done:
			return before.said
		case <-timer.C:
			return result{node: n, err: &upstream.NotSentError{Cause: errOwed}}
		}
	}
	answer := make(chan result, 1)
	q.m.background(func() {
		defer q.end(n, r.h.id, mine)
		if before != nil {
			<-before.done
		}
		mine.said = q.dropOn(n, r, until, giveUp, answer)
	})
	return <-answer
}

// dropOn is the step itself; its first outcome is the answer, what is returned the last one.
func (q *quorum) dropOn(n *quorumNode, r *release, until, giveUp time.Time, answer chan<- result) result {
	if !r.h.explicit {
		until = later(until, q.until(0))
	} else if time.Now().After(until) {
		answer <- result{node: n, err: &upstream.NotSentError{Cause: errOwed}}
		return result{node: n, err: errOwed}
	}
	out, err := q.ask(n, until, r.call)
	said := result{n, out, err}
	answer <- said
	if err == nil || r.h.explicit {
		return said
	}
	if isUnknown(err) {
		q.m.sleep(context.Background(), time.Until(until)+clockTolerance)
	}
	return q.clear(n, r.h.id, q.until(0), giveUp, r.call)
}

// freed makes one answer of what the nodes said to a release. Only when a majority is known not to have had the lock it was
// not held: a node that does not answer is given the benefit.
func (q *quorum) freed(all []result) (code, left int64, err error) {
	had, none, elsewhere, other := 0, 0, false, 0
	for _, r := range all {
		switch r.code() {
		case 0, 1:
			had++
		case -1:
			none++
			elsewhere = elsewhere || r.out[1] == 1
		case codeKind:
			other++
		}
	}
	need := q.majority()
	dark := len(q.nodes) - had - none - other
	switch {
	case had+none+other < need:
		return 0, 0, q.trouble(all, had+none+other, "the lock is no longer renewed and runs out; UNLOCK may be said again")
	case other >= need:
		return codeKind, 0, nil
	case had > 0 && had+dark >= need:
		return 1, 0, nil
	case elsewhere:
		return -1, 1, nil
	default:
		return -1, 0, nil
	}
}
