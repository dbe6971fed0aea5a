package commandtable

import (
	"slices"
	"strings"
)

// Standing is what becomes of a command where not all may run: it follows from the name alone.
type Standing struct {
	Kept  bool // a client on a place that is kept for operators may run it
	Locks bool // it may take a lock: LOCKPROXY PAUSE holds it back although lockproxy answers it
}

// keptFor are the commands by which one logs in, finds out who has all the other places, and closes them. Names of
// libraries' greetings are among them.
var keptFor = []string{"auth", "hello", "lockproxy", "client", "info", "command", "ping", "reset", "quit"}

var takesLocks = []string{"lock", "fairlock", "rlock", "wlock", "multilock", "fenced"}

func standingOf(name string) Standing {
	whole, _, _ := strings.Cut(name, "|")
	return Standing{
		Kept:  slices.Contains(keptFor, whole),
		Locks: slices.Contains(takesLocks, name),
	}
}
