package lockstore

import (
	"fmt"
	"time"
)

// Rules are what the locks of a store are bound by. The zero value is that of a store where each lock is on the only
// Redis.
type Rules struct {
	// Votes: each lock is on several nodes, of which a majority decides. An owner's hold counts one there, and nobody
	// queues.
	Votes    bool
	MaxLease time.Duration // the longest lease of such locks
	// Slots: each lock is on the node of its name's slot.
	Slots bool
	// At is the address of the Redis that keeps the locks and no data; "": that of the data does, or nodes that vote.
	At string
}

// Elsewhere is the setting by which locks are not where the data is; "": they are.
func (r Rules) Elsewhere() string {
	switch {
	case r.Votes:
		return "--quorum"
	case r.At != "":
		return "--locks"
	}
	return ""
}

// Fits says whether a lock may have this name.
func (r Rules) Fits(name string) error {
	if !r.Slots || Clusterable(name) {
		return nil
	}
	return &Error{Code: "ERR",
		Text: "'" + Printable(name) + "' cannot be a lock on a cluster: its braces are no hash tag, so its keys and " +
			"channels would be on different nodes; use a name without braces, or with one {tag}"}
}

// Limit refuses a lease, in ms, and a number of replicas that the store cannot keep.
func (r Rules) Limit(lease, replicas int64) error {
	switch most := r.MaxLease.Milliseconds(); {
	case !r.Votes:
		return nil
	case lease > most:
		return &Error{Code: "ERR", Text: fmt.Sprintf("the lease is longer than the %d ms of quorum-max-lease", most)}
	case replicas > 0:
		return &Error{Code: "ERR", Text: "REPLICAS is not supported with --quorum: its nodes are independent masters"}
	}
	return nil
}

// SeveralHold refuses a lock that several hold, where the store could not count them.
func (r Rules) SeveralHold() error {
	if r.Votes {
		return &Error{Code: "ERR",
			Text: "LIMIT is not supported with --quorum: two majorities may count different owners, so more could hold the lock"}
	}
	return nil
}

// Fences says whether Redis can run a command and look at its lock in one step.
func (r Rules) Fences() error {
	if by := r.Elsewhere(); by != "" {
		return &Error{Code: "ERR",
			Text: "FENCED is not supported with " + by + ": the lock is not where the data is; use LOCK ... FENCE"}
	}
	return nil
}

// Drift is how much earlier than by its lease a lock counts as over.
func (r Rules) Drift(lease time.Duration) time.Duration {
	if !r.Votes {
		return 0
	}
	return Drift(lease)
}

// Drift is how far the clocks of two nodes may come apart within that time: 1 % and 2 ms.
func Drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }
