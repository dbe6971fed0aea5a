package commandtable

import "slices"

// Standing is what becomes of a command where not all may run: it follows from the name alone.
type Standing struct {
	Locks bool // it may take a lock: LOCKPROXY PAUSE holds it back although lockproxy answers it
}

var takesLocks = []string{"lock", "fairlock", "rlock", "wlock", "multilock", "fenced"}

func standingOf(name string) Standing {
	return Standing{
		Locks: slices.Contains(takesLocks, name),
	}
}
