package node

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// ever is a not-after that does not come.
const ever = "9007199254740991"

// Vote asks one node of a quorum for some holds, all of one kind of lock: for connections' holds, which count one
// there, or for one of a named owner. If the node has a hold it lasts for the lease from then on, and the answer says
// that it was there.
func (s Steps) Vote(all []*lockstore.Acquire, notAfter string) Call {
	c := Call{DB: all[0].ID.DB, Script: scripts.Vote, Args: []string{"0"}, Shape: Shape{Least: granted * len(all)}}
	if all[0].ID.Kind != lockstore.Plain {
		c.Script = scripts.RWVote
	}
	for _, a := range all {
		if a.Fence {
			c.Args[0] = "1"
		}
		one := *a
		one.Fence = false // each node proposes a token with its vote
		call := s.Acquire(&one, notAfter)
		c.Keys, c.Args = append(c.Keys, call.Keys...), append(c.Args, call.Args...)
	}
	return c
}

// VoteOf is what of that is about one of the holds.
func VoteOf(out []int64, hold int) []int64 { return out[granted*hold : granted*(hold+1)] }

// IsVote says whether the call asks a node of a quorum for a lock.
func (c Call) IsVote() bool { return c.Script == scripts.Vote || c.Script == scripts.RWVote }

// Raise makes a fencing token the least that a node gives out from then on.
func Raise(id lockstore.ID, token int64, notAfter string) Call {
	return Call{DB: id.DB, Script: scripts.Raise, Keys: []string{lockstore.TokenKey(id.Key)},
		Args: []string{strconv.FormatInt(token, 10), notAfter}}
}
