package lockstore

import "github.com/lockproxy/lockproxy/scripts"

// The codes of outcomes say what Redis did; on a quorum, what a majority of the nodes did. A step to which Redis got too late has no code:
// that is an error, ErrLate.

// The codes of an acquire.
const (
	Granted = scripts.Done    // Redis has given the owner the lock, or has found that the owner had it already
	Refused = 0               // another owner has the lock, or it is another waiter's turn. Redis has at most given the owner a place in the fair queue
	Upgrade = scripts.Upgrade // nothing was done: the owner reads, and asked to write
	NoHold  = scripts.NoHold  // nothing was done: a connection was to re-enter a hold that has gone. A quorum makes it anew instead

	// OthersTurn is the Count of a refusal when nobody has the lock: Redis keeps it for another waiter of the fair queue.
	OthersTurn = 1
)

// The codes of a release. On a quorum a release may take back one attempt only: StillHeld says then that other attempts count on the hold.
const (
	Freed     = scripts.Done // Redis has deleted the owner's last hold, or all of its holds
	StillHeld = 0            // Redis has given back one of several holds of the owner
	NotHeld   = -1           // Redis gave nothing back, because the owner does not hold the lock, or not as the step wants it: see Release.Alone

	// EndedElsewhere is what is Left, beside NotHeld or OtherKind, when the owner has given its hold back through another connection: an
	// empty registration says so. With NotHeld it may also be that Alone kept Redis from doing anything.
	EndedElsewhere = 1
)

// The codes of an extension, beside NotHeld; its Count is then what is Left of a release.
const (
	LeaseSet  = scripts.Done // Redis has set the lease and the registration
	Overruled = 0            // nothing was done: the owner has sent another LOCK or RENEW since an earlier request that may have been done (Extension.Again)
)

// The codes of one hold of a renewal. With the last three nothing is to be relied on yet.
const (
	StillThere = scripts.Done // Redis has the hold, and has begun its lease anew, unless it was only to look
	NotThere   = 0            // Redis does not have the hold, or its registration's key has another type
	TakenOver  = 2            // nothing was done: another connection has ended the hold, or has taken it over, as the registration says
	Taking     = -7           // of a quorum: as TakenOver, but for the first time
	ReplyLost  = -8           // it may still be done
	Undecided  = -9           // nothing is known: too few nodes of a quorum have said the same, or one script could not check all holds
)

// Answered says whether what a renewal says of a hold is to be relied on.
func Answered(code int64) bool { return code != Taking && code != ReplyLost && code != Undecided }

// The codes of taking a lock by force, beside Freed.
const (
	NothingHeld = 0              // nobody held the lock, or not on the side that was named
	NoLock      = scripts.NoLock // nothing was done: the hash at the key is no lock
)

// OtherKind is what any step but a renewal may say: nothing was done, because the key holds a lock of another kind, or no lock.
const OtherKind = scripts.OtherKind
