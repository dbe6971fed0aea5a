package lockstore

import "sync"

// Expiry is when a named owner's hold ends by Redis' clock, in ms since 1970, on each node on which a step of this
// proxy has made it. It is even, and stays so for as long as nobody has joined the hold: see scripts/lease.lua. A node
// of a quorum may give its vote when the lock has been won without it: what that has made comes later. nil: it is not
// known, or somebody has joined the hold.
type Expiry struct {
	mu   sync.Mutex
	at   map[int]int64
	over bool
}

// ExpiryAt is the expiry of a hold on the only Redis; nil: that says that somebody has joined the hold, or that there
// is none.
func ExpiryAt(at int64) *Expiry {
	if !made(at) {
		return nil
	}
	return &Expiry{at: map[int]int64{0: at}}
}

// made says whether an expiry tells that a step has made the hold, and that nobody has joined it.
func made(at int64) bool { return at != 0 && at%2 == 0 }

// On is the expiry on one node; 0: it is not known.
func (e *Expiry) On(node int) int64 {
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at[node]
}

// Add notes what a node says that gave its vote. It returns false if the hold has been given back meanwhile.
func (e *Expiry) Add(node int, at int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return false
	}
	if _, known := e.at[node]; !known {
		e.set(node, at)
	}
	return true
}

// Set notes what a node says that has given the hold another lease.
func (e *Expiry) Set(node int, at int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.set(node, at)
}

// set notes what a node has; mu is held.
func (e *Expiry) set(node int, at int64) {
	if !made(at) {
		at = 0
	}
	if e.at == nil {
		e.at = map[int]int64{}
	}
	e.at[node] = at
}

// End says that the hold is given back: Add returns false from now on.
func (e *Expiry) End() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
}
