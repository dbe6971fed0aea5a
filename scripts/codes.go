package scripts

// What the scripts on locks return first. lockstore has a name for each number that a step may have as its code, and says what Redis did.
const (
	Done      = 1  // what was asked for was done
	Late      = -2 // its not-after had passed: nothing was done
	OtherKind = -3 // the key holds a lock of another kind, or no lock
	NoLock    = -4
	Upgrade   = -5 // the owner reads, and asked to write
	NoHold    = -6 // the owner does not have the hold that it was to re-enter: nothing was done
)
