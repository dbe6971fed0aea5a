package lockstore

import "time"

// Lost is what is done about a step whose reply was lost: Redis may have done it, or may yet, until its not-after has
// passed there. lost_test.go has the table of all steps.
type Lost struct {
	// For how long a store sends it again, each time when the request before can no longer be done; 0: not at all. To a
	// node of a quorum each request is sent once, and the next step waits until it can no longer be done.
	Again time.Duration
	// What is done when nobody has answered by then.
	Then Then
}

// Then is how it is found out in the end what became of a step. UNLOCK (internal/lock/unlock.go) asks whether it is Alone;
// nothing else reads it, and the other values name what the engine does behind each step.
type Then string

const (
	Tell  Then = "tell"  // Redis is told what the connection has of the lock until it answers; the owner is told that nobody knows
	Look  Then = "look"  // once the step can no longer be done a look decides, and the owner is told what it shows
	Alone Then = "alone" // the release is sent without the hand-off
	Visit Then = "visit" // the watchdog comes to the holds at once, or as soon as it would; the owner is told that nobody knows
	Leave Then = "leave" // nothing: what was made ends with its lease; the owner is told that nobody knows
)

// lostAgain is for how long a step is sent again that may be done twice.
const lostAgain = 5 * time.Second

// IfLost is for LOCK: a connection's says what its count is to be, and a named owner's joins what it has made.
func (a *Acquire) IfLost() Lost {
	if a.Named() {
		return Lost{lostAgain, Leave}
	}
	return Lost{lostAgain, Tell}
}

// IfLost is for UNLOCK and what is given back without one. A named owner may have taken the lock anew meanwhile, and
// those that are handed a lock wait for the answer.
func (r *Release) IfLost() Lost {
	switch {
	case r.Forced():
		return Lost{0, Visit} // once more would free the lock of whoever has it next
	case r.Expiry != nil:
		return Lost{0, Leave}
	case r.Named:
		return Lost{0, Look}
	case r.Next != nil:
		return Lost{0, Alone}
	}
	return Lost{lostAgain, Tell}
}

// IfLost is for the watchdog's renewals, which come again by themselves.
func (r Renewal) IfLost() Lost { return Lost{0, Visit} }

// IfLost is for RENEW. A named owner's only lengthens the lease when it is sent again.
func (e Extension) IfLost() Lost {
	if e.Named() {
		return Lost{lostAgain, Leave}
	}
	return Lost{lostAgain, Visit}
}
