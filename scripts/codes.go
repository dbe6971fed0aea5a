package scripts

// What the scripts on locks return first, beside 1 (done), 0 (somebody else has it, or counts on it) and -1 (this owner has not).
const (
	Late      = -2 // its not-after had passed: nothing was done
	OtherKind = -3 // the key holds a lock of another kind, or no lock
	NoLock    = -4
	Upgrade   = -5 // the owner reads, and asked to write
)
