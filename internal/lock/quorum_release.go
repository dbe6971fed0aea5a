package lock

import (
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

// insist has a node take something back: until it has answered, or giveUp, when the lease is over there.
func (q *quorum) insist(n *quorumNode, giveUp time.Time, build func(notAfter string) node.Call) result {
	for failures := backoff(); ; {
		until := q.until(0)
		out, err := q.ask(n, until, build)
		r := result{n, out, err}
		if err == nil || time.Now().After(giveUp) || n.calls.Load() >= manyCalls {
			return r
		}
		pause := failures.Next()
		if isUnknown(err) {
			pause = max(pause, time.Until(until)+node.ClockTolerance) // the next one must be the last one
		}
		if !q.m.sleep(context.Background(), pause) {
			return r
		}
	}
}

// release gives back one hold, or all: one of several is only counted here, the last one is dropped on all nodes. With an attempt
// only what that has is given back. An owner with a name is answered when every node has answered, or can no longer act unless it
// is known that the owner has not come back.
func (q *quorum) release(_ context.Context, r *release) (code, left int64, err error) {
	if !r.h.explicit && !r.all && r.before > 1 {
		return 0, r.before - 1, nil
	}
	whole := *r
	whole.all = true
	giveUp := r.giveUp(time.Second)
	q.m.mu.Lock()
	whole.known = r.h.attempt
	q.m.mu.Unlock()
	d := &dropping{q: q, r: &whole, until: q.until(0), giveUp: giveUp, spares: r.h.explicit && q.wellEnough()}
	all := gather(q, d.until, d.from, func(all []result) bool {
		return !r.h.explicit && q.tallyOf(all).Count(1) >= q.majority()
	})
	t, ok := q.tallyOf(all), false
	if r.attempt != "" {
		code, left, ok = t.Retracted()
	} else {
		code, left, ok = t.Freed()
	}
	if !ok {
		err = q.trouble(all, len(t.Said), "the lock is no longer renewed and runs out; UNLOCK may be said again")
	}
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	switch {
	case err != nil:
		q.m.runOut(r.h) // its owner does not want it any more
		r.h.unwanted = true
	case r.attempt != "" && left > 0 && r.h.attempt == r.attempt:
		r.h.attempt = "" // what others have it by is not known here
	case code == -1 && left == 0 && r.h.count > 0 && r.h.unwanted:
		code = 1
	}
	return code, left, err
}

// dropping is one release on all nodes. It goes on when nobody waits for it any more, until each node has done it or the lease is
// over there. The owner of a connection comes back through this proxy only, and its next step on a node waits. An owner with a name may come
// back through another one: what it has from then on is left alone.
type dropping struct {
	q             *quorum
	r             *release
	until, giveUp time.Time
	spares        bool // a node that did not answer last is not waited for
}

// from gives the hold back on one node, after what is under way for it there.
func (d *dropping) from(n *quorumNode) result {
	q := d.q
	before, mine := q.begin(n, d.r.h.id, n.earliest())
	unasked := result{node: n, err: &upstream.NotSentError{Cause: errOwed}}
	if mine == nil { // a former release is at it, and does this one, too
		timer := time.NewTimer(time.Until(d.until))
		defer timer.Stop()
		select {
		case <-before.done:
			return before.said
		case <-timer.C:
			return unasked
		}
	}
	answer := make(chan result, 1)
	q.m.background(func() {
		defer q.end(n, d.r.h.id, mine)
		if before != nil {
			<-before.done
		}
		mine.said = d.step(n, mine, answer)
	})
	if d.spares && n.troubled() {
		return unasked // nobody waits for what it may never say
	}
	return <-answer
}

// step is what one node is asked; its first outcome is the answer, what is returned the last one.
func (d *dropping) step(n *quorumNode, mine *quorumStep, answer chan<- result) result {
	q, named := d.q, d.r.h.explicit
	said := result{node: n, err: &upstream.NotSentError{Cause: errOwed}}
	if until := d.until; !named || time.Now().Before(until) {
		if !named {
			until = later(until, q.until(0))
		}
		said.out, said.err = q.ask(n, until, d.r.onNode)
	}
	answer <- said
	if said.err == nil {
		return said
	}
	if isUnknown(said.err) {
		q.m.sleep(context.Background(), time.Until(d.until)+node.ClockTolerance) // after that it is not done any more
	}
	for {
		asked := q.askedAt(mine)
		said = q.insist(n, d.giveUp, func(notAfter string) node.Call {
			if named && d.r.attempt == "" {
				return d.r.since(strconv.FormatInt(asked, 10), notAfter)
			}
			return d.r.onNode(notAfter)
		})
		if said.err != nil || q.askedAt(mine) == asked {
			return said
		}
	}
}
