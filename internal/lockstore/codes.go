package lockstore

import "github.com/lockproxy/lockproxy/scripts"

// The codes of outcomes say what Redis did; on a quorum, what a majority of the nodes did. A step to which Redis got
// too late has no code: that is an error, ErrLate.

// The codes of an acquire.
const (
	Granted = scripts.Done // Redis has given the owner the lock, or has found that the owner had it already
	// Another owner has the lock, or it is another waiter's turn. Redis has at most given the owner a place in the fair
	// queue.
	Refused = 0
	Upgrade = scripts.Upgrade // nothing was done: the owner reads, and asked to write
	NoHold  = scripts.NoHold  // nothing was done: a connection was to take a hold once more that has gone
)

// The codes of a release.
const (
	Freed     = scripts.Done // the owner no longer has that side of the lock
	StillHeld = 0            // it still does, less often
	// Redis gave nothing back, because the owner does not hold the lock, or not with that expiry
	NotHeld = -1
)

// LeaseSet is the code of an extension, beside NotHeld.
const LeaseSet = scripts.Done

// The codes of one hold of a renewal.
const (
	StillThere = scripts.Done // Redis has the hold, and has let it last
	NotThere   = 0            // Redis does not have the hold
	Undecided  = -9           // nothing is known: too few nodes of a quorum have answered
)

// The codes of taking a lock by force, beside Freed.
const (
	NothingHeld = 0              // nobody held the lock, or not on the side that was named
	NoLock      = scripts.NoLock // nothing was done: the hash at the key is no lock
)

// OtherKind is what any step but a renewal may say: nothing was done, because the key holds a lock of another kind, or
// no lock.
const OtherKind = scripts.OtherKind
