package lock

import (
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/scripts"
)

// On a node of a quorum a step is the step on one Redis, with a note beside the hold of which attempts count on it. A LOCK is an
// attempt, and each has a name of its own: what was not won is taken back under that name, at any time and as often as it takes,
// and ends a hold only when no other attempt counts on it.

// ever is a not-after that does not come.
const ever = "9007199254740991"

// around is a call with more KEYS and ARGV before its own, to the script of those that is made of its own.
func around(c node.Call, steps map[*scripts.Script]*scripts.Script, keys, args []string) node.Call {
	return node.Call{DB: c.DB, Script: steps[c.Script], Keys: slices.Concat(keys, c.Keys), Args: slices.Concat(args, c.Args)}
}

// asVote is an acquire that asks a node for a hold.
func asVote(c node.Call, id lockstore.ID, attempt string, fence bool, notAfter string) node.Call {
	letters := ""
	if fence {
		letters = "F"
	}
	c.Args = slices.Clone(c.Args)
	c.Args[2] = notAfter
	return around(c, scripts.Vote, []string{id.VotesKey(), lockstore.TokenKey(id.Key)}, []string{attempt, letters})
}

// onNode gives back a hold on a node: what its attempt has, or (none) all of it.
func (r *release) onNode(notAfter string) node.Call {
	if r.attempt == "" {
		return r.since("", notAfter)
	}
	return around(r.call(ever), scripts.Retract, []string{r.h.id.VotesKey(), r.h.id.WatchKey()}, []string{r.attempt, r.registration})
}

// quietly is onNode for what was never a lock: it wakes nobody.
func (r *release) quietly() node.Call {
	c := r.onNode(ever)
	c.Args[5] += "Q"
	return c
}

// since gives back all of a hold, unless another attempt than the known one counts on it since then by the node's clock; "": whoever
// does.
func (r *release) since(then, notAfter string) node.Call {
	return around(r.call(notAfter), scripts.Drop, []string{r.h.id.VotesKey()}, []string{then, r.known})
}

// renewing renews holds on a node.
func renewing(r lockstore.Renewal, notAfter string) node.Call {
	keys, args := make([]string, len(r.Holds)), make([]string, 1+len(r.Holds))
	args[0] = strconv.Itoa(len(r.Holds))
	for i, h := range r.Holds {
		keys[i], args[1+i] = h.ID.VotesKey(), h.Attempt
	}
	return around(renewCall(r, notAfter), scripts.StandRenew, keys, args)
}

// extending is RENEW on a node, for an attempt.
func extending(c node.Call, id lockstore.ID, attempt string) node.Call {
	return around(c, scripts.StandExtend, []string{id.VotesKey()}, []string{attempt})
}

// takes says whether the call asks a node of a quorum for a lock.
func takes(c node.Call) bool {
	for _, vote := range scripts.Vote {
		if c.Script == vote {
			return true
		}
	}
	return false
}
