package lock

import (
	"slices"
	"time"
)

// tally is what the nodes of a quorum said to one step, and what that comes to for all of them. It is arithmetic only: it asks
// nobody, and knows no time.
type tally struct {
	nodes int       // of the quorum
	said  [][]int64 // what the script returned at each node that answered
}

// verdict is what the votes for a lock come to.
type verdict int

const (
	unheard   verdict = iota // too few nodes answered
	won                      // a majority gave the lock
	held                     // somebody else has it
	split                    // nobody has it: several asked at once
	otherLock                // the key holds a lock of another kind
	upgrade                  // the owner reads, and asked to write
)

// The places in what vote.lua returns.
const (
	atTTL    = 2
	atToken  = 3 // of a grant; of a refusal: who holds the lock
	atRaised = 4
)

func majorityOf(nodes int) int { return nodes/2 + 1 }

func (t tally) majority() int { return majorityOf(t.nodes) }

// count is how many nodes said so.
func (t tally) count(code int64) (n int) {
	for _, out := range t.said {
		if out[0] == code {
			n++
		}
	}
	return n
}

// voted is how many nodes said anything about the lock: one that was too late did not.
func (t tally) voted() int {
	return t.count(1) + t.count(0) + t.count(codeKind) + t.count(codeUpgrade)
}

// entered is how many nodes gave the lock to an owner that had it already.
func (t tally) entered() (n int) {
	for _, out := range t.said {
		if out[0] == 1 && out[atRaised] == 0 {
			n++
		}
	}
	return n
}

// had says whether the owner may have had the lock before: a majority of the nodes had it, as far as is known.
func (t tally) had() bool {
	dark := t.nodes - t.count(1) - t.count(0)
	return t.entered() > 0 && t.entered()+dark >= t.majority()
}

// clear says whether nothing that the nodes may still say changes the verdict, or whether the owner had the lock.
func (t tally) clear() bool {
	pending := t.nodes - len(t.said)
	yes, entered := t.count(1), t.entered()
	if yes+pending < t.majority() {
		return t.voted() >= t.majority()
	}
	return yes >= t.majority() && (entered == 0 || entered >= t.majority() || entered+pending < t.majority())
}

// verdict is what the votes come to.
func (t tally) verdict() verdict {
	need := t.majority()
	switch {
	case t.count(codeKind) >= need:
		return otherLock
	case t.count(codeUpgrade) >= need:
		return upgrade
	case t.count(1) >= need:
		return won
	case t.voted() < need:
		return unheard
	case t.count(0) < need || !t.oneHolds():
		return split
	}
	return held
}

// oneHolds says whether a single owner, or several that share the lock, may have it on a majority of the nodes.
func (t tally) oneHolds() bool {
	of := map[int64]int{}
	for _, out := range t.said {
		if out[0] == 0 {
			of[out[atToken]]++
		}
	}
	unknown := t.nodes - t.voted() + of[0]
	delete(of, 0)
	most := 0
	for _, n := range of {
		most = max(most, n)
	}
	return most+unknown >= t.majority()
}

// free is in how many ms enough of the nodes that refused may be free for a majority to give the lock.
func (t tally) free() int64 {
	left := t.column(0, atTTL)
	slices.Sort(left)
	lacking := t.majority() - t.count(1)
	if lacking > len(left) {
		return 0
	}
	return max(left[lacking-1], 0)
}

// lasts is for how many ms a majority has the lock, less what clocks may drift; 0: it has not.
func (t tally) lasts() int64 { return lasts(t.column(1, atTTL), t.majority()) }

// lasts is for how many ms so many of the nodes have a lock that it is left for that long on each.
func lasts(left []int64, need int) int64 {
	if len(left) < need {
		return 0
	}
	slices.Sort(left)
	ttl := left[len(left)-need]
	return max(0, ttl-drift(milliseconds(ttl)).Milliseconds())
}

// drift is how much earlier than by its lease a lock of a quorum counts as over, since clocks differ: 1 % and 2 ms.
func drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

// column is one number of what each node returned that said so.
func (t tally) column(code int64, at int) (all []int64) {
	for _, out := range t.said {
		if out[0] == code {
			all = append(all, out[at])
		}
	}
	return all
}

// token is the fencing token of a grant: the highest one that was proposed; of an owner that had the lock, and asked for the same
// grant again, the one that it was given.
func (t tally) token(again bool) int64 {
	var highest, known int64
	for _, out := range t.said {
		if out[0] == 1 {
			highest = max(highest, out[atToken])
			if out[atRaised] == 0 {
				known = max(known, out[atToken])
			}
		}
	}
	switch {
	case t.entered() == 0:
		return highest
	case again && t.entered() >= t.majority():
		return known
	}
	return max(highest, known+1)
}

// lastToken is the fencing token that was given last, by what each of the nodes has that answered: the highest one that a majority
// has reached, since no other one was told to anybody. ok is false when the nodes that did not answer could make it another one.
func lastToken(tokens []int64, nodes int) (token int64, ok bool) {
	need, dark := majorityOf(nodes), nodes-len(tokens)
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

// freed is what a release comes to. Only when a majority is known not to have had the lock it was not held: a node that does not
// answer is given the benefit. ok is false when too few nodes answered.
func (t tally) freed() (code, left int64, ok bool) {
	had, none, other := t.count(0)+t.count(1), t.count(-1), t.count(codeKind)
	dark := t.nodes - had - none - other
	switch {
	case had+none+other < t.majority():
		return 0, 0, false
	case other >= t.majority():
		return codeKind, 0, true
	case had > 0 && had+dark >= t.majority():
		return 1, 0, true
	case slices.Max(append(t.column(-1, 1), 0)) == 1:
		return -1, 1, true // it ended through another connection
	}
	return -1, 0, true
}

// retracted is what taking back one attempt comes to: 1 the hold has ended where it was, 0 others count on it. ok is false when
// too few nodes answered.
func (t tally) retracted() (code, left int64, ok bool) {
	others := t.count(0)
	dark := t.nodes - others - t.count(1) - t.count(-1) - t.count(codeKind)
	switch {
	case t.nodes-dark < t.majority():
		return 0, 0, false
	case others > 0 && others+dark >= t.majority():
		return 0, 1, true
	}
	return 1, 0, true
}

// renewal is what the nodes say together of one of the holds of a renewal: 1 a majority has it, 0 a majority cannot have it, 2 another
// proxy has taken it over, or undecided.
func (t tally) renewal(i int) int64 {
	yes, taken, gone := 0, 0, 0
	for _, out := range t.said {
		if i >= len(out) {
			continue
		}
		switch out[i] {
		case 1:
			yes++
		case 2:
			taken++
		case undecided:
		default:
			gone++
		}
	}
	need := t.majority()
	switch {
	case yes >= need:
		return 1
	case t.nodes-taken-gone >= need:
		return undecided
	case taken > 0 && t.nodes-gone >= need:
		return 2
	default:
		return 0
	}
}
