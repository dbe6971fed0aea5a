package cluster

import (
	"bytes"
	"strconv"
)

// refusalKind is why a node has run nothing of a command.
type refusalKind uint8

const (
	noRefusal   refusalKind = iota // no error, or one of the command's own
	moved                          // another node has the slot
	asked                          // another node is asked for this key, after ASKING, while its slot moves
	tryAgain                       // the keys of the command are at two nodes, while their slot moves
	clusterDown                    // the slot has no node, or the node sees no cluster
	demoted                        // the node is no master, or no longer
	unreached                      // there was no connection
	runsNothing                    // the node loads its data, runs a long script, or is a replica without a master
	notAllowed                     // the node does not let the user run it

	refusalKinds
)

var refusalWords = map[string]refusalKind{
	"-MOVED": moved, "-ASK": asked, "-TRYAGAIN": tryAgain, "-CLUSTERDOWN": clusterDown, "-READONLY": demoted,
	"-LOADING": runsNothing, "-BUSY": runsNothing, "-MASTERDOWN": runsNothing, "-NOPERM": notAllowed, "-NOAUTH": notAllowed,
}

// Refusal is why a request has not run. The zero Refusal: it has run, or may have.
type Refusal struct {
	kind refusalKind
	slot int    // that moved and asked are about
	addr string // of the node that they name
	to   *Node  // that node; nil: the topology does not know it
}

var (
	// Unreached is the Refusal of a request for which there was no connection.
	Unreached = Refusal{kind: unreached}
	// Incomplete is the Refusal of a request whose keys are not all at the same node, while their slot moves.
	Incomplete = Refusal{kind: tryAgain}
)

// readRefusal reads a reply. What names a slot that no cluster has is no refusal. A script can return an error that
// looks like any of them.
func readRefusal(reply []byte) Refusal {
	if len(reply) == 0 || reply[0] != '-' {
		return Refusal{}
	}
	line, _, _ := bytes.Cut(reply, []byte("\r\n"))
	word, rest, _ := bytes.Cut(line, []byte(" "))
	r := Refusal{kind: refusalWords[string(word)]}
	switch {
	case r.kind == moved, r.kind == asked:
		slot, addr, _ := bytes.Cut(rest, []byte(" "))
		n, err := strconv.Atoi(string(slot))
		if err != nil || !areSlots(n, n) || len(bytes.Fields(addr)) != 1 {
			return Refusal{}
		}
		r.slot, r.addr = n, string(addr)
	case r.kind == noRefusal && saysDemoted(line):
		r.kind = demoted
	}
	return r
}

// saysDemoted says that a node answers so because it is a replica, in other words than READONLY: to WAIT and
// WAITAOF, and to those who wait for something when it is made one. It has done nothing for them.
func saysDemoted(line []byte) bool {
	const waits, unblocked = "-ERR WAIT", "-UNBLOCKED force unblock from blocking operation, instance state changed"
	if bytes.HasPrefix(line, []byte(waits)) {
		return bytes.Contains(line, []byte(" with replica instances"))
	}
	return bytes.HasPrefix(line, []byte(unblocked))
}

// Moving says that the slot is on its way to another node, or there already.
func (r Refusal) Moving() bool { return r.kind >= moved && r.kind <= tryAgain }

// OfSlot says that the refusal is about the slot: another node, or the same one later, runs the command.
func (r Refusal) OfSlot() bool { return r.kind >= moved && r.kind <= clusterDown }

// RefusedForSlot says that a node has refused a command because of its slot: it has not run, and can be sent again. The
// first hundred bytes of a reply are enough.
func RefusedForSlot(reply []byte) bool { return readRefusal(reply).OfSlot() }

// Redirects says that the refusal names another node, which a client that is to know of no nodes would go to.
func Redirects(reply []byte) bool {
	r := readRefusal(reply)
	return r.kind == moved || r.kind == asked
}

// readRefusal reads an error that from gave.
func (s *Snapshot) readRefusal(from *Node, reply []byte) Refusal {
	r := readRefusal(reply)
	r.to = s.named(r.addr, from)
	return r
}

// Refusal reads reply, an error that from gave. It must not be called for the errors of scripts, which can say
// anything.
func (c *Cluster) Refusal(from *Node, reply []byte) Refusal {
	r := c.Snapshot().readRefusal(from, reply)
	if r.kind == moved || r.kind == asked && r.to == nil {
		c.refreshFrom(from)
	}
	return r
}

// Step is what becomes of a request after a try.
type Step uint8

const (
	Stop   Step = iota // the outcome of this try is that of the request
	Follow             // it is sent at once to the node that the refusal names
	Pause              // it is sent to the slot's owner a little later
	Look               // it is, after another look at the topology
)

// mostFollowed is how many redirects are followed one after the other, without a pause. Nodes that disagree send a
// request round in circles.
const mostFollowed = 5

// step is the one rule for a request with keys of slot that was refused so, and has followed so many redirects, one
// after the other. A redirect counts only if it is about that slot, and is followed only to a node that the topology
// names.
func (r Refusal) step(slot, followed int) Step {
	switch r.kind {
	case tryAgain:
		return Pause
	case clusterDown, demoted, unreached:
		return Look
	case moved, asked:
		switch {
		case r.slot != slot:
			return Stop
		case r.to == nil, followed == mostFollowed:
			return Look
		}
		return Follow
	}
	return Stop
}
