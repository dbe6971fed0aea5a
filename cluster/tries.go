package cluster

import (
	"bytes"
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

const (
	// mostFollowed is how many redirects are followed one after the other, without a pause. Nodes that disagree send a request round in circles.
	mostFollowed = 5
	// triesPause is the time before a request that has not run is sent to the same node again.
	triesPause = 20 * time.Millisecond
)

// Refusal is why a request has not run. The zero Refusal: it has run, or may have, or no other node would answer anything else.
type Refusal struct {
	kind redirectKind
	slot int   // of what moved and asked say
	to   *Node // whom they name; nil: the topology does not know that node
}

var (
	// Unreached is the Refusal of a request for which there was no connection.
	Unreached = Refusal{kind: unreached}
	// Incomplete is the Refusal of a request whose keys are not all at the same node, while their slot moves.
	Incomplete = Refusal{kind: tryAgain}
)

// unblockedByChange begins the error with which Redis ends its clients' waits when it is no longer a master: it has done nothing for them.
var unblockedByChange = []byte("-UNBLOCKED force unblock from blocking operation, instance state changed")

// readRefusal reads an error that from gave.
func (s *Snapshot) readRefusal(from *Node, reply []byte) Refusal {
	kind, slot, addr := readRedirect(reply)
	switch {
	case kind == moved, kind == asked:
		return Refusal{kind, slot, s.named(addr, from)}
	case kind != noRedirect:
		return Refusal{kind: kind}
	case MasterOnly(reply), bytes.HasPrefix(reply, unblockedByChange):
		return Refusal{kind: demoted}
	}
	return Refusal{}
}

// Refusal reads reply, an error that from gave. It must not be called for the errors of scripts, which can say anything.
func (c *Cluster) Refusal(from *Node, reply []byte) Refusal {
	r := c.Snapshot().readRefusal(from, reply)
	if r.kind == moved || r.kind == asked && r.to == nil {
		c.refreshFrom(from)
	}
	return r
}

// Tries are those of one request, which goes from node to node until one runs it: for requests that no Executor sends, such as those on
// dedicated connections. Where it goes next is decided by After, without I/O.
type Tries struct {
	Until time.Time // nothing is tried again after that
	To    *Node     // the node that a redirect has named for the next try; nil: it is for the slot's owner, whoever that is by then
	Ask   bool      // ASKING goes ahead

	c        *Cluster
	slot     int // of the request's keys
	followed int // redirects, one after the other
}

// Tries begins those of a request whose keys are in slot, below 0 if it has none. They end after Options.RetryFor.
func (c *Cluster) Tries(slot int) *Tries {
	return &Tries{c: c, slot: slot, Until: time.Now().Add(c.opts.RetryFor)}
}

// Slot is that of the request's keys.
func (t *Tries) Slot() int { return t.slot }

// Step is what becomes of a request after a try.
type Step uint8

const (
	Stop   Step = iota // the outcome of this try is that of the request
	Follow             // it is sent to To at once
	Pause              // it is sent to the slot's owner a little later
	Look               // it is, after another look at the topology
)

// After decides what becomes of the request when a try has ended, at the time now, with that Refusal.
func (t *Tries) After(r Refusal, now time.Time) Step {
	t.To, t.Ask = nil, false
	redirect := r.kind == moved || r.kind == asked
	switch {
	case r.kind == noRedirect, !now.Before(t.Until):
		return Stop
	case r.kind == tryAgain:
		return Pause
	case !redirect:
		return Look
	case r.slot != t.slot:
		return Stop
	case r.to == nil, t.followed == mostFollowed:
		t.followed = 0
		return Look
	}
	t.followed++
	t.To, t.Ask = r.to, r.kind == asked
	return Follow
}

// Again says whether there is to be another try after one that has ended with that Refusal, and returns when its time has come. The end of
// ctx ends the tries.
func (t *Tries) Again(ctx context.Context, r Refusal) bool {
	switch t.After(r, time.Now()) {
	case Stop:
		return false
	case Look:
		t.c.Refreshed(ctx)
		retry.Sleep(ctx, triesPause, t.c.ctx.Done())
	case Pause:
		retry.Sleep(ctx, triesPause, t.c.ctx.Done())
	}
	return ctx.Err() == nil && t.c.ctx.Err() == nil
}
