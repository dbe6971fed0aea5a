package commandtable

import (
	"slices"
	"strings"
)

// Standing is what becomes of a command where not all may run: it follows from the name alone.
type Standing struct {
	Kept  bool // a client on a place that is kept for operators may run it
	Turn  bool // for a user who is over the share it waits for its turn, and is not refused
	Locks bool // it may take a lock: LOCKPROXY PAUSE holds it back although lockproxy answers it
}

// keptFor are the commands by which one logs in, finds out who has all the other places, and closes them. Names of
// libraries' greetings are among them.
var keptFor = []string{"auth", "hello", "lockproxy", "client", "info", "command", "ping", "reset", "quit"}

// inTurn are commands that lockproxy answers: what gives locks back or keeps them, and what says who the client is and
// what its next commands mean; LOCKPROXY, which operators use, and CLUSTER, with which a client in cluster mode
// begins.
var inTurn = []string{
	"unlock", "multiunlock", "renew", "lockproxy", "cluster",
	"auth", "hello", "select", "reset", "quit", "post", "host:", "readonly", "readwrite", "asking",
	"client|setname", "client|setinfo", "client|capa", "client|reply", "client|no-evict", "client|no-touch", "client|id", "client|getname",
}

var takesLocks = []string{"lock", "fairlock", "rlock", "wlock", "multilock", "fenced"}

func standingOf(name string) Standing {
	whole, _, _ := strings.Cut(name, "|")
	return Standing{
		Kept:  slices.Contains(keptFor, whole),
		Turn:  slices.Contains(inTurn, name) || slices.Contains(inTurn, whole),
		Locks: slices.Contains(takesLocks, name),
	}
}

// MayRefuse says whether the command may be refused to a user who is over the share. It may not if later ones depend
// on it, such as MULTI or SELECT.
func (c *Command) MayRefuse() bool {
	switch c.Conn {
	case ConnNone, ConnBlock, ConnWait:
		return !c.Turn
	}
	return false
}
