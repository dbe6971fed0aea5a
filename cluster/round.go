package cluster

import (
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// round is what is sent together, each node's in one write.
type round struct {
	batches  []*batch // the first live ones are in use
	live     int
	scanning *Plan         // SCAN, which goes its own way; nil: none
	orderly  bool          // the first round of a Do without replica reads and commands with several keys: nothing waits
	slots    map[int]*lane // slots that something is sent to, or waits for; empty while orderly
	lanes    []*lane       // to be used again
	straight []*batch      // by command: see Straight

	probeUntil time.Time // when the probes of this Do end; zero: there has been none
}

// batch is what one node gets in one round.
type batch struct {
	link  *link
	units []*unit
	req   upstream.Request
	sink  replyCollector
	err   error
	next  int // of the executor's replies, the next one of this batch: see deliver
}

// lane is what this round knows of a slot: what is sent there, and whether what comes next must wait.
type lane struct {
	node    *Node
	many    []*unit // units with several keys, which may be answered TRYAGAIN
	blocked bool    // what comes next must wait
}

// fits says whether a unit may be sent in this round, after what is in it already.
func (r *round) fits(u *unit, node *Node, now time.Time) bool {
	if r.orderly {
		return true
	}
	if u.slot == noSlot {
		return !u.due().After(now)
	}
	l := r.slots[u.slot]
	if l == nil {
		l = r.lane(u.slot)
		l.node = node
	}
	if l.blocked || l.node != node || u.due().After(now) {
		l.blocked = true
		return false
	}
	for _, m := range l.many {
		if !(m.plan.readOnly() && u.plan.readOnly()) && m.shares(u) {
			l.blocked = true
			return false
		}
	}
	if u.count() > 1 {
		l.many = append(l.many, u)
	}
	return true
}

// lane begins a slot's lane.
func (r *round) lane(slot int) *lane {
	used := len(r.slots)
	if used == len(r.lanes) {
		r.lanes = append(r.lanes, &lane{})
	}
	l := r.lanes[used]
	*l = lane{many: l.many[:0]}
	r.slots[slot] = l
	return l
}
