package cluster

import (
	"bytes"
	"errors"
	"math"
	"slices"

	"github.com/lockproxy/lockproxy/upstream"
)

// Commands without keys go to one node, the executor's home, so that they keep their order. Any node could answer them, and when home is out
// of reach another one becomes home (leaveHome). Otherwise, when a node dies, the clients whose home it is would wait with each PING until
// the other nodes agree that it has failed.
//
// While home is in trouble (trouble.go) the next node that is not stands in for it. A home that is only slow stays home: the commands that it has got may still run, and later ones must not overtake them. Only commands that
// change nothing are sent to another node meanwhile (passOn). The same goes for a home that refuses commands because it loads its data or
// runs a long script (passRefusal).

// goesHome says that the unit may go to any node, and goes to the executor's home.
func (u *unit) goesHome() bool { return u.slot == noSlot && u.node == nil && !u.home }

// leaveHome makes the next node home if n is home and err says that it is out of reach.
func (e *Executor) leaveHome(n *Node, err error) {
	if e.at == n && outOfReach(err) {
		e.home = slices.Index(e.seen.Masters, n) + 1
	}
}

// outOfReach says by how a request has ended that its node cannot be reached. One that has only not answered yet is slow.
func outOfReach(err error) bool {
	return (upstream.IsNotSent(err) || upstream.IsLost(err)) && !errors.Is(err, upstream.ErrSlow)
}

// passOn chooses where a unit that goes home is sent next, after err. If home is slow that is the node after home. If that one is out of reach,
// or does not let the user in, it is the one after it, and so on, until it is home's turn again. If a Budget allows no connection to such a
// node, the unit goes back to home, and waits there. True: the unit is sent again, even where err would otherwise be its outcome.
func (e *Executor) passOn(u *unit, err error) (again bool) {
	slow, away := errors.Is(err, upstream.ErrSlow), e.passedHome(u)
	switch t := u.attempts; {
	case away && upstream.IsFull(err):
		t.passed += len(e.seen.Masters) - t.passed%len(e.seen.Masters)
		return true
	case slow, t != nil && t.passed > 0 && !upstream.IsFull(err):
		u.tries().passed++
	}
	return away && upstream.Refused(err) != nil
}

// passedHome says that the unit goes home but was sent to another node in place of home. When all the others have been tried it is sent to
// home again, whose reply stands.
func (e *Executor) passedHome(u *unit) bool {
	return u.attempts != nil && u.attempts.passed%len(e.seen.Masters) != 0
}

// passRefusal has a unit be sent to the next node, and at last to home again, if reply says that this one can run nothing at the moment.
// False: the reply stands. Only what changes nothing is sent on, because later commands may have run, and no script, because it may have
// run and given this error itself.
func (e *Executor) passRefusal(u *unit, reply []byte) bool {
	if !u.goesHome() || !u.plan.repeatable() || len(e.seen.Masters) == 1 || !runsNothing(reply) {
		return false
	}
	t := u.tries()
	if t.passed > 0 && !e.passedHome(u) {
		return false
	}
	t.passed++
	return true
}

// runsNothing says that a node has refused a command because it loads its data, runs a long script, or is a replica without a master.
func runsNothing(reply []byte) bool {
	word, _, _ := bytes.Cut(reply[:min(len(reply), 16)], []byte(" "))
	switch string(word) {
	case "-LOADING", "-BUSY", "-MASTERDOWN":
		return true
	}
	return false
}

// elsewhere says that no unit of a batch needs its node.
func (b *batch) elsewhere() bool {
	return len(b.units) > 0 && !slices.ContainsFunc(b.units, func(u *unit) bool { return !u.goesHome() && !u.mayMiss() })
}

// dispensable says that nobody needs to wait for what was sent of a batch: its node does not answer, and may be left out.
func (b *batch) dispensable() bool {
	return b.link.node.InTrouble() && len(b.units) > 0 &&
		!slices.ContainsFunc(b.units, func(u *unit) bool { return !u.mayMiss() || !u.copied() })
}

// mayMiss says that nothing is wrong if the unit's node does not answer: it may be left out, or the master is asked in its place.
func (u *unit) mayMiss() bool { return u.optional || u.reading }

// copied says that no connection needs the unit's bytes any more once the wait for its reply has ended.
func (u *unit) copied() bool { return len(u.raw) < upstream.CopiedBelow }

// movable says whether the units of a batch may be sent to another node because this one is slow. They may if no byte of a reply has come, and
// each of them may go to any node, changes nothing, is copied, and was not tried before; that a node refused it (passRefusal) does not count.
// So a unit leaves one slow node only. The next one is waited for, because perhaps all nodes are slow.
func (b *batch) movable() bool {
	if b.req.Quiet() != math.MaxInt64 || len(b.units) == 0 { // without units it is Straight's, and each command has its slot
		return false
	}
	for _, u := range b.units {
		if t := u.attempts; t != nil && (t.passed == 0 || !t.until.IsZero()) {
			return false
		}
		if !u.goesHome() || !u.plan.repeatable() || !u.copied() {
			return false
		}
	}
	return true
}
