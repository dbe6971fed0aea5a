package cluster

import (
	"bytes"
	"errors"
	"math"

	"github.com/lockproxy/lockproxy/upstream"
)

// Commands without keys go to one node, an executor's home, so that they keep their order. Any other would do as well: when home is out of
// reach, they go to another from then on. Otherwise a node that has died keeps a part of all clients waiting, by nothing but a
// health check, until the others say that it has failed. A home that is only slow stays home, since what it has got may still run, and
// what comes later must not overtake that: only commands that change nothing are asked elsewhere. Nor is home left when it refuses them
// because it loads its data or runs a script for long: until that is over they are asked elsewhere.

// goesHome says that the unit may go to any node, and goes to the executor's home.
func (u *unit) goesHome() bool { return u.slot == noSlot && u.node == nil && !u.home }

// leaveHome has another node be home, if n, of which err came, was.
func (e *Executor) leaveHome(n *Node, err error) {
	if err == nil {
		return // each batch comes here, and what follows allocates
	}
	var unsent *upstream.NotSentError
	var lost *upstream.LostError
	if (errors.As(err, &unsent) || errors.As(err, &lost)) && !errors.Is(err, upstream.ErrSlow) && e.seen.Any(e.home) == n {
		e.home++
	}
}

// passOn has a unit be sent to the node behind home if home is slow to reply, and to the next one if that is out of reach, or does not let the
// user in. If there may be no connection there, the unit goes back to home and waits. True: it is sent again, whatever else err means.
func (e *Executor) passOn(u *unit, err error) (again bool) {
	slow, away := errors.Is(err, upstream.ErrSlow), e.passedHome(u)
	switch t := u.attempts; {
	case away && refused(err):
		t.passed += len(e.seen.Masters) - t.passed%len(e.seen.Masters)
		return true
	case slow, t != nil && t.passed > 0 && !refused(err):
		u.tries().passed++
	}
	return away && upstream.Refused(err) != nil
}

// passedHome says that the unit goes home but was sent to another node. Once it has passed all others it is sent to home again, which
// has the last word.
func (e *Executor) passedHome(u *unit) bool {
	return u.attempts != nil && u.attempts.passed%len(e.seen.Masters) != 0
}

// passRefusal has a unit be sent to the next node, and at last to home again, if reply says that this one can run nothing at the moment.
// False: the reply stands. Only what changes nothing is sent on, because later commands may have run, and no script, because it may have
// run and given this error itself.
func (e *Executor) passRefusal(u *unit, reply []byte) bool {
	if !u.goesHome() || !u.plan.repeatable() || len(e.seen.Masters) == 1 {
		return false
	}
	switch word, _, _ := bytes.Cut(reply[:min(len(reply), 16)], []byte(" ")); string(word) {
	case "-LOADING", "-BUSY", "-MASTERDOWN":
	default:
		return false
	}
	t := u.tries()
	if t.passed > 0 && !e.passedHome(u) {
		return false
	}
	t.passed++
	return true
}

// copied is the length of a command that package upstream has surely copied: it may wait to be written for longer than it is waited for.
const copied = 1 << 10

// movable says that another node is to be asked if this one is slow: nothing has come of a reply, and all of it is short, changes nothing,
// and was not sent before but to nodes that refused it. The second one that is slow is waited for as long as it takes, since it may be that
// all are.
func (b *batch) movable() bool {
	if b.req.Quiet() != math.MaxInt64 {
		return false
	}
	for _, u := range b.units {
		if t := u.attempts; t != nil && (t.passed == 0 || !t.until.IsZero()) {
			return false
		}
		if !u.goesHome() || !u.plan.repeatable() || len(u.raw) > copied {
			return false
		}
	}
	return true
}
