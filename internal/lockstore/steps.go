package lockstore

import "time"

// A step is what the engine asks of a store about holds: a value, from which the store makes its scripts. The outcome is a value, too.

// Allowed is how long Redis may take to get to a verb's step: after that it does nothing.
const Allowed = time.Second

// Acquire asks for a hold, for an owner that may have it already.
type Acquire struct {
	ID           ID
	Named        bool         // the owner has a name of its own: it has the lock or not
	Count        int64        // how often the owner is in the lock, as far as is known
	Beside       bool         // it holds the other side of a read/write lock
	Lease        int64        // ms
	Watched      bool         // it is renewed
	Registration Registration // of a named owner's hold
	Fence        bool

	Replicas    int64         // so many are to have it,
	ReplicaWait time.Duration // within that
	Patience    time.Duration // for how long it is sent again while it was surely not done
	Blocks      bool          // whoever asks waits, and comes again after a refusal
	Splits      int           // how often in a row a quorum's votes were split when it asked
	Queues      bool          // a refusal puts it into the fair queue,
	Ticket      int64         // at this place; 0: the last
}

// Acquired is the outcome of an acquire, perhaps found out after its reply was lost. Code is Granted, Refused, Upgrade, NoHold or OtherKind.
type Acquired struct {
	Code   int64
	Count  int64 // of the owner's holds; of a refusal OthersTurn, or 0
	TTL    int64 // ms, of the hold; of a refusal: of the other one's (negative: none known)
	Token  int64 // of a refusal the place in the fair queue
	Raised bool  // it made a hold, or entered one again; else a named owner had it

	Unrenewed bool // and nobody renewed it before this

	Acked    int64     // replicas that have it
	Attempt  string    // of a quorum: under which the hold counts there
	Split    bool      // of a quorum: nobody may have the lock, since several asked at once; TTL is when to ask again
	Sent     time.Time // before the request that was answered: the lease counts from then
	NotAfter int64     // of the request sent last, whatever came of it
}

// Release gives back one hold, or all of an owner.
type Release struct {
	ID           ID
	Named        bool
	Count        int64        // how often the owner is in the lock, as far as is known
	All          bool         // every hold of the owner
	Alone        bool         // nothing is done when a named owner is back through another connection, or another LOCK counts on its hold
	Registration Registration // the one known; if Redis has another one, its proxy is told that the hold has ended

	// Of a quorum.
	Attempt string    // only what counts for the hold under this name is given back
	Known   string    // the attempt by which the hold is held
	GiveUp  time.Time // there is nothing left to give back then

	Waiters Waiters // who may be given the lock by the same script; nil: nobody
}

// Frees says that no hold of the owner is left after this, as far as is known.
func (r *Release) Frees() bool { return r.All || r.Count <= 1 }

// Released is the outcome of a release.
type Released struct {
	Code     int64     // Freed, StillHeld, NotHeld or OtherKind
	Left     int64     // beside StillHeld how many holds; beside NotHeld and OtherKind EndedElsewhere, or 0
	Sent     time.Time // before the request that was sent last
	NotAfter int64     // of that
	RunsOut  bool      // with an error: it is not to be renewed any more
}

// Waiters are those on this proxy that wait for a lock which is given back.
type Waiters interface {
	// Claim picks those that may be given it next; nil: nobody. They wait from then on until Given has been called.
	Claim() *Handoff
	// Given tells them what each has got, in their order. turn says that none of them has got the lock, because waiters elsewhere have their
	// turn now.
	Given(all []Acquired, turn bool, err error)
}

// Handoff is who gets a lock that is given back.
type Handoff struct {
	Line LineKey
	Turn bool       // others are to have a turn, if anybody else listens to the lock's channel
	Asks []*Acquire // all of one kind
}

// Forcing frees a lock, whoever holds it.
type Forcing struct {
	DB   int
	Key  string
	Kind Kind // Plain; or Read or Write for a read/write lock
	Side Kind // of that only this one; Plain: both
	// Only are those who alone are to lose it: nothing is freed if another one has the lock by then, and of readers the others go on.
	// nil: everybody.
	Only []Owned
}

// Fields are where the lock's hash counts the holds of Only.
func (f Forcing) Fields() (all []string) {
	for _, o := range f.Only {
		all = append(all, ID{Key: f.Key, Owner: o.Owner, Kind: o.Kind}.Field())
	}
	return all
}

// Seen is what there is of one owner's hold.
type Seen struct {
	At                time.Time // before it was asked
	Count, TTL, Token int64
	Most              int64        // of a quorum: the TTL for which a majority may have it, by what is known; else 0
	Registration      Registration // of a named owner's hold
	Registered        bool         // there is one, be it empty
	Watched           bool         // and somebody renews the hold
	Unsure            bool         // of a quorum: with the nodes that have not answered a majority may have it although Count is 0. Most, Watched and Registration are, then, as if it had
}

// MayEnd is until when the hold may last, by what is known; zero: it has no end.
func (s Seen) MayEnd() time.Time {
	ttl := max(s.TTL, s.Most)
	if ttl <= 0 {
		return time.Time{}
	}
	return s.At.Add(Milliseconds(ttl))
}

// Renewal begins the leases of some holds anew, all of one kind and in one slot, or only looks at the holds.
type Renewal struct {
	DB       int
	Kind     Kind
	Lease    time.Duration // 0: only look
	Replicas int64
	Allow    time.Duration // how long Redis may take to get to it
	Holds    []Renewed
}

// Renewed is one hold of a renewal.
type Renewed struct {
	ID           ID
	Named        bool
	Registration Registration  // of a named owner's hold, as far as it is known: by it Redis tells whether another connection has ended it, or taken it over
	Attempt      string        // of a quorum: what it was had by
	Lease        time.Duration // of the hold, also when it is only looked at
	Taken        time.Time     // since when another connection seems to have taken it over; zero: it does not
}

// Extension sets the lease of one hold anew, whatever it had left.
type Extension struct {
	ID           ID
	Named        bool
	Lease        int64        // ms
	Watched      bool         // it is renewed from now on; else it ends with that lease
	Registration Registration // of a named owner's hold from now on
	Known        Registration // and so far; if Redis has another one, its proxy is told that the hold has ended
	Attempt      string       // of a quorum: the attempt by which it is held; "": it was taken through another proxy
	Count        int64        // how often its owner is in the lock, as far as is known
	Again        bool         // an earlier request may have been done: nothing is done when a named owner is back through another connection

	// MayEnd is called before each request is sent, with when the hold ends if Redis does it: the holder must be told by then, even if no
	// answer comes. It is called again when Redis has not done the request, with what is still possible then; zero: no request without an
	// answer can have been done. After an error the last call stands; when the error is returned no request can be done any more.
	MayEnd func(at time.Time)
}

// Extended is the outcome of an extension.
type Extended struct {
	Code       int64     // LeaseSet, Overruled, NotHeld or OtherKind
	Count, TTL int64     // beside NotHeld and OtherKind Count is EndedElsewhere, or 0
	Sent       time.Time // before the request that was answered
	Attempt    string    // the attempt by which the hold is held now
}

// Queue is the owners of one proxy that wait in the fair queue of a plain lock.
type Queue struct {
	DB     int
	Key    string
	Places []Place
}

// Place is where one of them stands.
type Place struct {
	ID     ID
	Ticket int64
}
