// Package tally computes what the replies of a quorum mean together: votes, validity, fencing tokens, and what a
// majority has of a lock. It is arithmetic only: it asks nobody, and reads no clock.
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

// The places in what vote.lua returns for a hold.
const (
	atMade  = 1
	atTTL   = 2
	atToken = 3 // of a grant; of a refusal: who holds the lock
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

// Had says whether the owner had the lock before: a majority of the nodes had it.
func (t Tally) Had() bool { return len(t.Column(lockstore.Granted, atMade))-t.made() >= t.majority() }

// made is how many nodes have made the hold.
func (t Tally) made() (n int) {
	for _, made := range t.Column(lockstore.Granted, atMade) {
		n += int(made)
	}
	return n
}

// Clear says that no answer still to come can change the verdict.
func (t Tally) Clear() bool {
	if t.Done() {
		return true
	}
	pending := t.Nodes - len(t.Said)
	if t.Count(lockstore.Granted)+pending >= t.majority() {
		return false
	}
	most, unknown := t.others()
	return t.Quorate() && (most >= t.majority() || most+unknown < t.majority())
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

// others is on how many nodes, at most, one other owner has the lock, or several that share it, and how many nodes did
// not say who has it.
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

// LastToken is the fencing token that was given last, by what each of the nodes has that answered: the highest one that
// a majority has reached, since no other one was told to anybody. ok is false when the nodes that did not answer could
// make it another one.
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

// Freed is the result of a release. The lock was not held only if a majority is known not to have had it: a node that
// does not answer counts as one that may have had it. ok is false when too few nodes answered.
func (t Tally) Freed() (code int64, ok bool) {
	had, none, other := t.Count(lockstore.StillHeld)+t.Count(lockstore.Freed), t.Count(lockstore.NotHeld), t.Count(lockstore.OtherKind)
	dark := t.Nodes - had - none - other
	switch {
	case dark > t.Nodes-t.majority():
		return 0, false
	case other >= t.majority():
		return lockstore.OtherKind, true
	case had > 0 && had+dark >= t.majority():
		return lockstore.Freed, true
	}
	return lockstore.NotHeld, true
}

// Renewed is the result of a renewal, which asks for the hold anew: lockstore.StillThere when a majority had it before,
// NotThere when no majority can have had it, or Undecided. A node that has made it now, or that refuses it, had it not.
func (t Tally) Renewed() int64 {
	had := len(t.Column(lockstore.Granted, atMade)) - t.made()
	dark := t.Nodes - t.Voted() - t.Count(lockstore.NoHold)
	switch {
	case had >= t.majority():
		return lockstore.StillThere
	case had+dark >= t.majority():
		return lockstore.Undecided
	}
	return lockstore.NotThere
}
