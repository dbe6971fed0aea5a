package lockstore

import "time"

// A step is what the engine asks of a store about holds: a value, from which the store makes its scripts. The outcome
// is a value, too.

// Allowed is how long Redis may take to get to a verb's step: after that it does nothing.
const Allowed = time.Second

// Counts is how often a connection is in a lock. A named owner has a lock or not, and no count: zero.
type Counts struct {
	Reads  int64 // of a read/write lock
	Writes int64 // of that; or of another lock
}

// Of is the count of one side.
func (c Counts) Of(k Kind) int64 {
	if k == Read {
		return c.Reads
	}
	return c.Writes
}

// With are the counts of which one side's is n.
func (c Counts) With(k Kind, n int64) Counts {
	if k == Read {
		c.Reads = n
	} else {
		c.Writes = n
	}
	return c
}

// Total is the sum of both sides.
func (c Counts) Total() int64 { return c.Reads + c.Writes }

// Acquire asks for a side of a lock, for an owner that may have it already.
type Acquire struct {
	ID ID // its Kind is the side
	// What a connection's hold is to have: 1 in all makes the hold if it is not there, more do not; zero: a named owner.
	Counts Counts
	Lease  int64 // ms
	Limit  int64 // of a lock that so many may hold
	// What becomes of the lease of a hold that a named owner has: Joins, Renews; "": it is lengthened.
	There string
	Fence bool

	Replicas    int64         // so many are to have it,
	ReplicaWait time.Duration // within that
	Patience    time.Duration // for how long it is sent again while it was not done, or may not have been
	Blocks      bool          // its verb waits, and comes again after a refusal: its proxy is woken by name, unless it queues
	Splits      int           // how often in a row a quorum's votes were split when it asked
	Queues      bool          // a refusal puts it into the fair queue
	Place       int64         // there, or of the proxy among those that are woken; 0: the last
}

// What an acquire makes of the lease of a hold that a named owner has, as scripts/lease.lua says it.
const (
	Lengthens = "lengthen"
	Joins     = "join" // the acquire may yet fail: the hold ends when it would have
	Renews    = "renew"
)

// Named says that the owner has a name of its own.
func (a *Acquire) Named() bool { return a.Counts == Counts{} }

// Acquired is the outcome of an acquire. Code is Granted, Refused, Upgrade, NoHold or OtherKind.
type Acquired struct {
	Code   int64
	Made   bool    // the owner did not have it before
	TTL    int64   // ms, of the hold; of a refusal: of the other one's (negative: none known)
	Token  int64   // the fencing token
	Left   int64   // of a lock that several may hold: so many more may have it now
	Expiry *Expiry // of a named owner's hold that this has made

	Place  int64 // of a refusal: in the fair queue, or the proxy's among those that are woken
	Others int64 // of a refusal: so many more wait elsewhere, proxies or JVMs
	Turn   bool  // of a refusal: nobody has the lock, Redis keeps it for another waiter of the fair queue
	Split  bool  // of a quorum: nobody may have the lock, since several asked at once; TTL is when to ask again

	Acked int64     // replicas that have it
	Sent  time.Time // before the request that was answered: the lease counts from then
	Final time.Time // of an unknown outcome: after that it is not done any more
}

// Until is when a grant ends that nobody renews.
func (a Acquired) Until() time.Time { return a.Sent.Add(Milliseconds(a.TTL)) }

// Release gives back what an owner has of a lock, or some of it; or, of no owner, frees the lock whoever holds it.
type Release struct {
	ID     ID     // its Kind is the side that is given back, once or wholly
	Named  bool   // the owner has a name of its own, and gives back that side
	Counts Counts // what a connection's hold is to have from now on
	Whole  bool   // a connection gives back all that it has, on either side; or the lock is freed on both
	// Nothing is done unless a named owner's hold has this expiry: nobody has joined it then; nil: whatever it has.
	Expiry *Expiry
	Quiet  bool // nobody is woken

	Next *Handoff // who gets the lock, if this frees it; nil: nobody
}

// Forced says that the lock is freed whoever holds it.
func (r *Release) Forced() bool { return r.ID.Owner == "" }

// Released is the outcome of a release.
type Released struct {
	Code  int64      // Freed, StillHeld, NotHeld or OtherKind; of one by force NoLock, too
	Sent  time.Time  // before the request that was sent last
	Final time.Time  // of an unknown outcome: after that it is not done any more
	Again bool       // the reply to an earlier request was lost, which may have been done
	Given []Acquired // what each of Release.Next has got, in their order
	// None of them has got the lock, because waiters elsewhere have their turn now: other proxies, and this has that place
	// among those that are woken; or, NoPlace, those that have none.
	Turn int64
}

// NoPlace is the turn of those that listen to a lock's channel and have no place among the proxies that are woken.
const NoPlace = 1

// Handoff is who gets a lock that is given back.
type Handoff struct {
	Line   LineKey
	Turn   bool       // other proxies are to have a turn, if any waits
	Others bool       // so are those that have no place among these, if anybody else listens to the lock's channel
	Asks   []*Acquire // all of one kind
}

// Seen is what there is of one owner's hold.
type Seen struct {
	Plain, Writes, Reads bool
	Place                bool // of a lock that several may hold
	Unsure               bool // of a quorum: with the nodes that have not answered a majority may have it
}

// On says whether there is a hold on that side.
func (s Seen) On(side Kind) bool {
	switch side {
	case Plain:
		return s.Plain
	case Read:
		return s.Reads
	case Limit:
		return s.Place
	}
	return s.Writes
}

// Any says whether there is a hold on any side.
func (s Seen) Any() bool { return s.Plain || s.Reads || s.Writes || s.Place }

// Renewal lets connections' holds last, all of one kind of lock and in one slot.
type Renewal struct {
	DB    int
	Kind  Kind          // one of HoldKinds
	Allow time.Duration // how long Redis may take to get to it
	// Sets: the leases of plain locks are set, which costs Redis less. A lease is to be so long then that one that a late
	// request has cut lasts until the next renewal. Else none is made shorter.
	Sets  bool
	Holds []Renewed
}

// Renewed is one hold of a renewal.
type Renewed struct {
	ID     ID
	Counts Counts
	Lease  int64 // ms, no less than has been promised
}

// Extension sets the lease of one hold anew, whatever it had left.
type Extension struct {
	ID     ID     // its Kind is the side of a named owner; a connection has one lease for both
	Counts Counts // of a connection's hold; zero: a named owner's
	Lease  int64  // ms
	// Nothing is done unless a named owner's hold has this expiry, which says that nobody has joined it; nil: whatever
	// it has.
	Expiry *Expiry
}

// Named says that the owner has a name of its own.
func (e Extension) Named() bool { return e.Counts == Counts{} }

// Extended is the outcome of an extension.
type Extended struct {
	Code   int64   // LeaseSet, NotHeld or OtherKind
	TTL    int64   // ms
	Expiry *Expiry // of a named owner's hold that nobody has joined
	Sent   time.Time
}

// Queue is the owners of one proxy that wait in the fair queue of a plain lock.
type Queue struct {
	DB        int
	Key       string
	Positions []Position
}

// Position is where one of them stands.
type Position struct {
	ID    ID
	Place int64
}
