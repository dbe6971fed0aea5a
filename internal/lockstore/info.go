package lockstore

import (
	"slices"
	"time"
)

// Info is what Redis has of one lock.
type Info struct {
	Kind   string // "none", "plain", "read", "write", or "other" for a key that is no lock
	TTL    int64  // ms; -2 no key, -1 no TTL
	Owners []Owned
	Unread int64      // fields of the hash beside those of Owners, which were not read
	Queue  int64      // waiters in Redisson's fair queue
	Token  int64      // last fencing token
	Fenced bool       // there is one
	Nodes  []NodeInfo // of a quorum, each with what it has; nil without
}

// AllOwners is as many owners as a lock may have that is read: what has more is no lock to scripts/info.lua.
const AllOwners = 5000

// Held says whether what was read looks like a lock that somebody holds. Nothing marks a lock in Redis: it is a hash
// that expires, in which each field is an owner's and counts. A named owner counts one.
func (in Info) Held() bool {
	return in.TTL > 0 && in.Unread+int64(len(in.Owners)) > 0 && !slices.ContainsFunc(in.Owners, func(o Owned) bool {
		if _, _, is := ConnectionIn(o.Owner); is {
			return o.Holds < 1
		}
		return o.Holds != 1 || !ValidOwner(o.Owner)
	})
}

// Owned is what one owner has of a lock.
type Owned struct {
	Owner string `json:"owner"`
	Kind  Kind   `json:"kind"` // which side of a read/write lock
	Holds int64  `json:"holds,omitempty"`
	Field string `json:"-"` // of the hash, which counts them, without the suffix of a write hold
}

// NodeInfo is one node of a quorum, as it was last seen, and what it has of one lock.
type NodeInfo struct {
	Name    string
	State   string        // up, young (started, or its clock set, too recently to count), or down
	Trouble string        // its last error or failure; "": it did what it was asked
	Since   time.Duration // for how long it has been in that state
	Counts  time.Duration // of a young one: in how long it counts
	Has     Info          // in LOCKINFO, if it was up
}
