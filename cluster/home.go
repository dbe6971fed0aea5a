package cluster

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lockproxy/lockproxy/upstream"
)

// Commands without keys go to one node, the client's home, so that they keep their order. Any node could answer
// them, and when home is out of reach another one becomes home. Otherwise, when a node dies, the clients whose home
// it is would wait with each PING until the other nodes agree that it has failed.
//
// While home is in trouble (trouble.go) the next node that is not stands in for it. A home that is only slow stays
// home: the commands that it has got may still run, and later ones must not overtake them. Only commands that change
// nothing are sent to another node meanwhile. The same goes for a home that runs nothing at the moment.

// Home is where a client's commands go that any master can answer. All executors of the client have the same Home, so
// that the order holds between them.
type Home struct{ at int }

// NewHome chooses one at random.
func NewHome() *Home {
	return &Home{at: rand.IntN(math.MaxInt32)}
}

// failure is how a request has ended that has got no reply.
type failure uint8

const (
	broken     failure = iota
	unsent             // nothing of it was done
	lost               // it may have been done
	slow               // the node has not answered yet, and another one may be asked
	ended              // it took too long, or nobody wants the reply any more
	full               // a Budget allows no connection
	refused            // the node does not let the user in
	ranNothing         // the node has said so: see runsNothing
)

// failureOf reads the error that a request has ended with.
func failureOf(err error) failure {
	switch {
	case errors.Is(err, upstream.ErrSlow):
		return slow
	case upstream.Ended(err):
		return ended
	case upstream.IsNotSent(err):
		return unsent
	case upstream.IsLost(err):
		return lost
	case upstream.IsFull(err):
		return full
	case isRefusal(err):
		return refused
	}
	return broken
}

// outOfReach says that the node cannot be reached. One that has only not answered yet is slow.
func (f failure) outOfReach() bool { return f == unsent || f == lost || f == ended }

// behindAll is how many masters a command has passed over that goes back to home itself, in trouble or not. A cluster has
// no more masters than slots.
const behindAll = Slots

// pass is the rule for a command that any master can answer, and that has passed over some: how many it has passed
// over when one has failed it so, home itself or not, and whether it is sent to the next for that alone. Home's refusal
// stands when all others have been asked. If there may be no connection to another node, it goes back to home, and
// waits there.
func (f failure) pass(passed int, home bool) (now int, again bool) {
	switch {
	case f == slow:
		return passed + 1, true
	case home && f == ranNothing:
		return passed + 1, passed == 0
	case home:
		return passed, false
	case f == full:
		return behindAll, true
	}
	return passed + 1, f == refused || f == ranNothing
}

// leaveHome makes the next node home if n is home and err says that it is out of reach.
func (e *Executor) leaveHome(n *Node, err error) {
	if e.at == n && err != nil && failureOf(err).outOfReach() {
		e.home.at = slices.Index(e.seen.Masters, n) + 1
	}
}

// passOn chooses where a unit is sent next that has failed so at n. True: it is sent there even where that would be
// its outcome otherwise.
func (e *Executor) passOn(u *unit, n *Node, f failure) (again bool) {
	if !u.goesHome() {
		return false
	}
	u.passed, again = f.pass(u.passed, n == e.seen.Any(e.home.at, behindAll))
	return again
}

// goesHome says that the unit may go to any node, and goes to the executor's home.
func (u *unit) goesHome() bool { return u.slot == noSlot && u.fixed == nil }

// copied says that no connection needs the unit's bytes any more once the wait for its reply has ended.
func (u *unit) copied() bool { return len(u.raw) < upstream.CopiedBelow }

// dispensable says that nobody needs to wait for the unit's reply.
func (u *unit) dispensable() bool { return u.optional && u.copied() }

// replaceable says that the unit does not need its node.
func (u *unit) replaceable() bool { return u.optional || u.goesHome() }

// movable says that the unit may be sent to another node because its own is slow: it may go to any, changes nothing,
// is copied, and was not tried again before. So a unit leaves one slow node only. The next one is waited for,
// because perhaps all nodes are slow.
func (u *unit) movable() bool {
	if !u.goesHome() || !u.until.IsZero() {
		return false
	}
	return u.plan.repeatable() && u.copied()
}
