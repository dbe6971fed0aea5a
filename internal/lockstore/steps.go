package lockstore

import "time"

// A step is what the engine asks of a store about holds: a value, from which the store makes its scripts. What came of it is a value, too.

// Renewal has the leases of some holds begin anew, all of one kind and in one slot, or only looks at them.
type Renewal struct {
	DB       int
	Kind     Kind
	Lease    time.Duration // 0: only look
	Replicas int64
	Allow    time.Duration // how long Redis may take to come to it
	Holds    []Renewed
}

// Renewed is one hold of a renewal.
type Renewed struct {
	ID      ID
	Named   bool
	Mark    string        // of a named owner's that is watched: its registration
	Attempt string        // of a quorum: what it was had by
	Lease   time.Duration // of the hold, also when it is only looked at
	Taken   time.Time     // since when another connection seems to have taken it over; zero: it does not
}

// What a renewal says of a hold beside what its script does: 1 it is there, 2 another connection has taken it over, 0 it is gone.
const (
	Taking    = -7 // 2, for the first time, and not to be relied on yet
	ReplyLost = -8 // it may be done yet
	Undecided = -9 // nothing is known
)

// Answered says whether what a renewal says of a hold is to be relied on.
func Answered(code int64) bool { return code != Taking && code != ReplyLost && code != Undecided }

// Extension sets the lease of one hold anew, whatever it had left.
type Extension struct {
	ID           ID
	Named        bool
	Lease        int64  // ms
	Watched      bool   // it is renewed from now on; else it ends then
	Registration string // of a named owner's hold from now on
	Known        string // and so far; another one in Redis is told that the hold has ended
	Attempt      string // of a quorum: what it was had by; "": it was had through another proxy
	Count        int64  // how often its owner is in the lock, as far as is known
}

// Extended is what came of an extension.
type Extended struct {
	Code, Count, TTL int64     // Code 1: done; else what the script says
	Sent             time.Time // before the request that was answered
	Attempt          string    // what the hold is had by now
	Ends             time.Time // with an error: where it was done all the same the hold ends then; zero: nowhere
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
