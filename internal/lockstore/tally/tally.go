// Package tally computes what the replies of a quorum mean together: votes, validity, fencing tokens, and what a majority has of a lock.
// It is arithmetic only: it asks nobody, and reads no clock.
package tally

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// Tally is what the nodes of a quorum said to one step; its methods say what that means together.
type Tally struct {
	Nodes int       // of the quorum
	Said  [][]int64 // what the script returned at each node that answered
}

// Verdict is the result of the votes for a lock.
type Verdict int

const (
	NoQuorum  Verdict = iota // too few nodes answered
	Won                      // a majority gave the lock
	Held                     // somebody else has it
	Split                    // several asked at once: as far as is known, nobody has it
	OtherLock                // the key holds a lock of another kind
	Upgrade                  // the owner reads, and asked to write
)

// The places in what vote.lua returns.
const (
	atTTL    = 2
	atToken  = 3 // of a grant; of a refusal: who holds the lock
	atRaised = 4
)

// Majority is how many of so many nodes decide.
func Majority(nodes int) int { return nodes/2 + 1 }

func (t Tally) majority() int { return Majority(t.Nodes) }

// Count is how many nodes returned that code.
func (t Tally) Count(code int64) (n int) {
	for _, out := range t.Said {
		if out[0] == code {
			n++
		}
	}
	return n
}

// Voted is how many nodes said anything about the lock: one that was too late did not.
func (t Tally) Voted() int {
	return t.Count(lockstore.Granted) + t.Count(lockstore.Refused) + t.Count(lockstore.OtherKind) + t.Count(lockstore.Upgrade)
}

// Quorate says whether a majority said anything about the lock.
func (t Tally) Quorate() bool { return t.Voted() >= t.majority() }

// Done says whether a majority has done the step.
func (t Tally) Done() bool { return t.Count(scripts.Done) >= t.majority() }

// entered is how many nodes gave the lock to an owner that had it already.
func (t Tally) entered() int { return t.gave(func(raised int64) bool { return raised < 1 }) }

// gave is how many nodes gave the lock and said of it what is asked for: 1 for a new hold, 0 for one that the owner had, -1 if nobody renewed that.
func (t Tally) gave(is func(raised int64) bool) (n int) {
	for _, raised := range t.Column(lockstore.Granted, atRaised) {
		if is(raised) {
			n++
		}
	}
	return n
}

// dark is how many nodes said nothing about the lock: what they have is not known.
func (t Tally) dark() int { return t.Nodes - t.Voted() }

// Had says whether the owner may have had the lock before: a majority of the nodes had it, as far as is known.
func (t Tally) Had() bool { return t.entered() > 0 && t.entered()+t.dark() >= t.majority() }

// renewed is how many nodes gave the lock to an owner that had it already, and did not say that nobody renewed it.
func (t Tally) renewed() int { return t.gave(func(raised int64) bool { return raised == 0 }) }

// Unrenewed says whether the lock was given to an owner for which nobody renewed it: a node said so, and no majority can say otherwise.
func (t Tally) Unrenewed() bool {
	return t.entered() > t.renewed() && t.renewed()+t.dark() < t.majority()
}

// Clear says that no answer still to come can change the verdict, nor whether the owner had the lock, and whether it was renewed.
func (t Tally) Clear() bool {
	pending := t.Nodes - len(t.Said)
	yes, entered := t.Count(lockstore.Granted), t.entered()
	if yes+pending < t.majority() {
		most, unknown := t.others()
		return t.Quorate() && (most >= t.majority() || most+unknown < t.majority())
	}
	settled := func(n int) bool { return n == 0 || n >= t.majority() || n+pending < t.majority() }
	return t.Done() && settled(entered) && settled(t.renewed())
}

// Verdict is the result of the votes.
func (t Tally) Verdict() Verdict {
	need := t.majority()
	switch {
	case t.Count(lockstore.OtherKind) >= need:
		return OtherLock
	case t.Count(lockstore.Upgrade) >= need:
		return Upgrade
	case t.Done():
		return Won
	case !t.Quorate():
		return NoQuorum
	}
	if most, _ := t.others(); most >= need {
		return Held
	}
	return Split
}

// others is on how many nodes, at most, one other owner has the lock, or several that share it, and how many nodes did not say who
// has it.
func (t Tally) others() (most, unknown int) {
	of := map[int64]int{}
	for _, out := range t.Said {
		if out[0] == lockstore.Refused {
			of[out[atToken]]++
		}
	}
	sharing := of[0]
	delete(of, 0)
	for _, n := range of {
		most = max(most, n)
	}
	return most + sharing, t.Nodes - t.Voted()
}

// Free is in how many ms enough of the nodes that refused may be free for a majority to give the lock.
func (t Tally) Free() int64 {
	left := t.Column(lockstore.Refused, atTTL)
	slices.Sort(left)
	lacking := t.majority() - t.Count(lockstore.Granted)
	if lacking > len(left) {
		return 0
	}
	return max(left[lacking-1], 0)
}

// Lasts is for how many ms a majority has the lock, less what clocks may drift; 0: it has not.
func (t Tally) Lasts() int64 { return Lasts(t.Column(scripts.Done, atTTL), t.majority()) }

// Lasts is for how many ms need of the nodes have a lock, less what clocks may drift; left is what each has left of it.
func Lasts(left []int64, need int) int64 {
	if len(left) < need {
		return 0
	}
	slices.Sort(left)
	ttl := left[len(left)-need]
	return max(0, ttl-ttl/100-2) // as Drift
}

// Column is the number at place at of what each node returned that returned that code.
func (t Tally) Column(code int64, at int) (all []int64) {
	for _, out := range t.Said {
		if out[0] == code {
			all = append(all, out[at])
		}
	}
	return all
}

// Token is the fencing token of a grant: the highest one that was proposed.
func (t Tally) Token() int64 { return slices.Max(t.Column(lockstore.Granted, atToken)) }

// LastToken is the fencing token that was given last, by what each of the nodes has that answered: the highest one that a majority
// has reached, since no other one was told to anybody. ok is false when the nodes that did not answer could make it another one.
func LastToken(tokens []int64, nodes int) (token int64, ok bool) {
	need, dark := Majority(nodes), nodes-len(tokens)
	if len(tokens) < need {
		return 0, false
	}
	all := slices.Clone(tokens)
	slices.Sort(all)
	slices.Reverse(all)
	lowest := all[need-1] // the others have none
	if dark >= need {
		return 0, false
	}
	highest := all[need-1-dark] // the others have higher ones
	return lowest, lowest == highest && lowest > 0
}

// Freed is the result of a release. The lock was not held only if a majority is known not to have had it: a node that does not
// answer counts as one that may have had it. ok is false when too few nodes answered.
func (t Tally) Freed() (code, left int64, ok bool) {
	had, none, other := t.Count(lockstore.StillHeld)+t.Count(lockstore.Freed), t.Count(lockstore.NotHeld), t.Count(lockstore.OtherKind)
	dark := t.Nodes - had - none - other
	switch {
	case had+none+other < t.majority():
		return 0, 0, false
	case other >= t.majority():
		return lockstore.OtherKind, 0, true
	case had > 0 && had+dark >= t.majority():
		return lockstore.Freed, 0, true
	case slices.Contains(t.Column(lockstore.NotHeld, 1), lockstore.EndedElsewhere):
		return lockstore.NotHeld, lockstore.EndedElsewhere, true
	}
	return lockstore.NotHeld, 0, true
}

// Overtaken says whether a release that has freed the lock may leave a majority with it: for one of the attempts that counted on it, nodes to
// which that attempt may come after the release, and those that did not answer. What is known of the attempts is what the nodes noted that
// had the hold.
func (t Tally) Overtaken() bool {
	if code, _, ok := t.Freed(); !ok || code != lockstore.Freed || len(t.Said) == t.Nodes {
		return false // those that were given to a majority before have all been ended on a majority
	}
	came := map[int64]int{}
	for _, out := range t.Said {
		if out[0] != lockstore.Freed {
			continue
		}
		attempts := out[2:]
		if len(attempts) == 0 {
			attempts = []int64{manyAttempts}
		}
		for _, attempt := range attempts {
			came[attempt]++
		}
	}
	for attempt, nodes := range came {
		if attempt == manyAttempts || t.Nodes-nodes >= t.majority() {
			return true
		}
	}
	return false
}

// Attempts are those that the nodes noted that had the hold which a release has ended; manyAttempts among them: they are not known.
func (t Tally) Attempts() (all []int64) {
	for _, out := range t.Said {
		switch {
		case out[0] != lockstore.Freed:
		case len(out) == 2:
			return []int64{manyAttempts}
		default:
			all = append(all, out[2:]...)
		}
	}
	return all
}

// manyAttempts is what a node returns for attempts that it no longer tells apart.
const manyAttempts = 0

// Retracted is the result of taking back one attempt: lockstore.Freed when the hold has ended where it was, StillHeld when others count on
// it, NotHeld when no majority had it. ok is false when too few nodes answered.
func (t Tally) Retracted() (code, left int64, ok bool) {
	others := t.Count(lockstore.StillHeld)
	dark := t.Nodes - others - t.Count(lockstore.Freed) - t.Count(lockstore.NotHeld) - t.Count(lockstore.OtherKind)
	switch {
	case t.Nodes-dark < t.majority():
		return 0, 0, false
	case others > 0 && others+dark >= t.majority():
		return lockstore.StillHeld, 1, true
	case t.Count(lockstore.Freed) > 0:
		return lockstore.Freed, 0, true
	}
	return lockstore.NotHeld, 0, true
}

// Extended is the result of a RENEW: lockstore.LeaseSet when a majority has done it, OtherKind, or NotHeld when no majority can have the hold,
// beside which left may be EndedElsewhere. ok is false when too few nodes answered, or they did not agree.
func (t Tally) Extended() (code, left int64, ok bool) {
	switch {
	case t.Done():
		return lockstore.LeaseSet, 0, true
	case t.Count(lockstore.OtherKind) >= t.majority():
		return lockstore.OtherKind, 0, true
	case t.Nodes-t.Count(lockstore.NotHeld) < t.majority():
		return lockstore.NotHeld, slices.Max(append(t.Column(lockstore.NotHeld, 1), 0)), true
	}
	return 0, 0, false
}

// RenewedAll says whether a majority has renewed each of that many holds of a renewal.
func (t Tally) RenewedAll(holds int) bool {
	for i := range holds {
		if t.Renewal(i) != lockstore.StillThere {
			return false
		}
	}
	return true
}

// Renewal is the result for one of the holds of a renewal: lockstore.StillThere when a majority has it, NotThere when a majority cannot have
// it, TakenOver by another proxy, or Undecided.
func (t Tally) Renewal(i int) int64 {
	yes, taken, gone := 0, 0, 0
	for _, out := range t.Said {
		if i >= len(out) {
			continue
		}
		switch out[i] {
		case lockstore.StillThere:
			yes++
		case lockstore.TakenOver:
			taken++
		case lockstore.Undecided:
		default:
			gone++
		}
	}
	need := t.majority()
	switch {
	case yes >= need:
		return lockstore.StillThere
	case t.Nodes-taken-gone >= need:
		return lockstore.Undecided
	case taken > 0 && t.Nodes-gone >= need:
		return lockstore.TakenOver
	default:
		return lockstore.NotThere
	}
}
