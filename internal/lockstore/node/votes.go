package node

import (
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// On a node of a quorum a step is the step on one Redis, and a note beside the hold says which attempts count on it. Each LOCK
// is an attempt with a name of its own: what was not won is taken back under that name, at any time and as often as needed, and
// ends a hold only if no other attempt counts on it.

// ever is a not-after that does not come.
const ever = "9007199254740991"

// around is a call with more KEYS and ARGV before its own, to the script in steps that is made from its own, in which it is not short.
func around(c Call, steps map[*scripts.Script]*scripts.Script, keys, args []string) Call {
	c.Shape.Alone = min(c.Shape.Alone, TooLate)
	return Call{DB: c.DB, Script: steps[c.Script], Keys: slices.Concat(keys, c.Keys), Args: slices.Concat(args, c.Args), Shape: c.Shape}
}

// Candidacy is the call of an acquire, which AsVote makes a vote for each node.
func (s Steps) Candidacy(a lockstore.Acquire) Call {
	a.Fence = false // each node gives a token with its vote
	c := s.Acquire(&a, "")
	if !a.Named && a.Count > 0 {
		c.Args[3] += "O" // an owner's hold counts one on a node
	}
	return c
}

// AsVote makes a Candidacy the call that asks one node for a hold.
func AsVote(c Call, id lockstore.ID, attempt string, fence bool, notAfter string) Call {
	letters := ""
	if fence {
		letters = "F"
	}
	c.Args = slices.Clone(c.Args)
	c.Args[2] = notAfter
	return around(c, scripts.Vote, []string{id.VotesKey(), lockstore.TokenKey(id.Key)}, []string{attempt, letters})
}

// IsVote says whether the call asks a node of a quorum for a lock.
func (c Call) IsVote() bool {
	for _, vote := range scripts.Vote {
		if c.Script == vote {
			return true
		}
	}
	return false
}

// Raise makes a fencing token the least that a node gives out from then on.
func (s Steps) Raise(id lockstore.ID, token int64, notAfter string) Call {
	return Call{DB: id.DB, Script: scripts.Raise, Keys: []string{lockstore.TokenKey(id.Key)}, Args: []string{strconv.FormatInt(token, 10), notAfter, s.FenceTTL}}
}

// Retract gives back a hold on a node: what its attempt has, or all of it if it has none.
func (s Steps) Retract(r *lockstore.Release, notAfter string) Call {
	if r.Attempt == "" {
		return s.Drop(r, "", notAfter)
	}
	return around(s.Release(r, ever), scripts.Retract, []string{r.ID.VotesKey(), r.ID.WatchKey()}, []string{r.Attempt, string(r.Registration)})
}

// RetractQuietly is Retract for what was never a lock: it wakes nobody.
func (s Steps) RetractQuietly(r *lockstore.Release) Call {
	c := s.Retract(r, ever)
	c.Args[5] += "Q"
	return c
}

// Drop gives back all of a hold, unless an attempt other than the known one counts on it since then, by the node's clock; then "":
// whatever counts on it.
func (s Steps) Drop(r *lockstore.Release, then, notAfter string) Call {
	return around(s.Release(r, notAfter), scripts.Drop, []string{r.ID.VotesKey()}, []string{then, r.Known})
}

// ForceOwners is Force for the owners alone that have these fields in the lock's hash, whoever else has the lock.
func (s Steps) ForceOwners(f lockstore.Forcing, fields []string, notAfter string) Call {
	return around(s.Force(f, notAfter), scripts.ForceOwners, nil, append([]string{strconv.Itoa(len(fields))}, fields...))
}

// RenewVotes renews holds on a node.
func RenewVotes(r lockstore.Renewal, notAfter string) Call {
	keys, args := make([]string, len(r.Holds)), make([]string, 1+len(r.Holds))
	args[0] = strconv.Itoa(len(r.Holds))
	for i, h := range r.Holds {
		keys[i], args[1+i] = h.ID.VotesKey(), h.Attempt
	}
	return around(Renew(r, notAfter), scripts.StandRenew, keys, args)
}

// ExtendVote is RENEW on a node, for an attempt.
func ExtendVote(c Call, id lockstore.ID, attempt string) Call {
	return around(c, scripts.StandExtend, []string{id.VotesKey()}, []string{attempt})
}
