package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// replicaCheckEvery is how often replicas are asked whether they follow their masters, and masters for slots that move.
	replicaCheckEvery = time.Second
	// settling is for how long a slot is read at its master after it was seen to move: a replica knows nothing of keys
	// that leave, and of those that come only what has been replicated.
	settling = 5 * time.Second
	// barred is for how long an executor asks no replica after one has refused its identity.
	barred = 10 * time.Second
	// full is for how long none is asked after a bound of ours has refused a connection to one.
	full = time.Second
)

// replicaReads says which slots may not be read from replicas at the moment. Node.serves says which replicas may be read from.
type replicaReads struct {
	master [Slots]atomic.Int64 // until when a slot is read at its master; unix nanoseconds
}

// hold makes a slot be read at its master for a while, and also all slots of giver, the node that gives it away: when one slot moves,
// others often follow. s may be nil.
func (s *replicaReads) hold(slot int, giver *Node) {
	if s == nil || slot == noSlot {
		return
	}
	until := time.Now().Add(settling).UnixNano()
	s.master[slot].Store(until)
	if giver != nil {
		giver.gives.Store(until)
	}
}

// changed holds the slots that have another master. Replicas that have another master are checked before they are
// read from. s may be nil, and so may old.
func (s *replicaReads) changed(old, now *Snapshot) {
	if s == nil || old == nil {
		return
	}
	for _, n := range now.Masters {
		n.serves.Store(false) // should it become a replica again, it is checked first
	}
	for master, copies := range now.copies {
		for _, n := range copies {
			if !slices.Contains(old.copies[master], n) { // it may have another master's data
				n.serves.Store(false)
			}
		}
	}
	for slot, n := range now.all() {
		if before := old.Owner(slot); before != n {
			s.hold(slot, before)
		}
	}
}

// replicaFor returns the replica of owner that reads of a slot may go to, or nil. Equal first get the same replica for as
// long as that serves, so that a client does not read data older than it has read before.
func (c *Cluster) replicaFor(s *Snapshot, owner *Node, slot, first int, now time.Time) *Node {
	if t := now.UnixNano(); c.replicaReads.master[slot].Load() > t || owner.gives.Load() > t {
		return nil
	}
	all := s.copies[owner]
	for i := range all {
		if n := all[(first%len(all)+i)%len(all)]; n.serves.Load() && !n.InTrouble() {
			return n
		}
	}
	return nil
}

// replicaWatch is what the checks of a node keep. There is one check of a node at a time.
type replicaWatch struct {
	pipe *upstream.Pipe // nil: none
}

// watchReplicas is the goroutine that keeps what is known of replicas up to date.
func (c *Cluster) watchReplicas() {
	defer c.running.Done()
	for {
		var looks sync.WaitGroup
		s := c.Snapshot()
		for _, n := range s.Replicas {
			looks.Go(func() { c.checkReplica(n) })
		}
		for _, n := range s.Masters {
			looks.Go(func() { c.lookForMoves(n) })
		}
		looks.Wait()
		if !retry.Sleep(c.ctx, retry.Around(replicaCheckEvery), nil) {
			return
		}
	}
}

var askRole = resp.AppendCommand(nil, "ROLE")

// checkReplica finds out whether a replica has its master's data and goes on getting it.
func (c *Cluster) checkReplica(n *Node) {
	r, err := c.askNode(n, askRole)
	if err != nil {
		n.serves.Store(false)
		return
	}
	follows := len(r.Elems) > 3 && string(r.Elems[0].Text) == "slave" && string(r.Elems[3].Text) == "connected"
	unknown := isError(r) && strings.HasPrefix(string(r.Text), "NOPERM") // then only the topology can tell
	n.serves.Store(follows || unknown)
}

// lookForMoves finds out which slots a master gives away, which its replicas do not know.
func (c *Cluster) lookForMoves(n *Node) {
	r, err := c.askNode(n, askNodes)
	if err != nil {
		return
	}
	if own, ok := readSelfDescription(string(r.Text)); ok {
		for slot := range own.moving {
			c.replicaReads.hold(slot, n)
		}
	}
}

// askNode asks a node one thing, as the service account, on a connection that is kept for that.
func (c *Cluster) askNode(n *Node, cmd []byte) (r resp.Reply, err error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, askTimeout, errSlow)
	defer cancel()
	w := &n.watch
	if w.pipe == nil {
		if w.pipe, err = n.up.Aside(ctx, c.account()); err != nil {
			w.pipe = nil
			return r, err
		}
	}
	var replies []resp.Reply
	if replies, err = exchange(ctx, w.pipe, [][]byte{cmd}); err != nil {
		w.pipe = nil
		return r, err
	}
	return replies[0], nil
}

// mayRead says whether a unit may go to a replica. Within the plans of one Do a slot that is written to is read at its
// master, so that no read passes a write of the same client's. A read that a replica does not answer goes to the master, and its client goes
// on while the replica's connection may still write it: so a read of which that has no copy is the master's.
func (e *Executor) mayRead(u *unit) bool {
	return e.replicas.now && u.plan.cmd.Facts.Replica && !u.master && u.node == nil && !e.replicas.writes[u.slot] && u.copied()
}

// Replicas makes commands that only read go to replicas, or again to masters. It changes nothing without
// Options.Replicas. Such reads may be stale: even what this client has written before may be missing.
func (e *Executor) Replicas(on bool) { e.replicas.wanted = on && e.c.replicaReads != nil }

// prepareReads finds out, before the plans are carried out, which slots they write to.
func (e *Executor) prepareReads(plans []*Plan) {
	if e.replicas.now = e.replicas.wanted && time.Now().After(e.replicas.barred); !e.replicas.now {
		return
	}
	if clear(e.replicas.writes); len(plans) == 1 {
		return
	}
	for _, p := range plans {
		for i := range p.units {
			if u := &p.units[i]; !p.cmd.Facts.Replica && u.slot != noSlot {
				e.replicas.writes[u.slot] = true
			}
		}
	}
}

// refuses are the errors by which a replica says that it cannot serve a read, or not this client's. Its master may.
var refuses = []string{"-MOVED ", "-ASK ", "-TRYAGAIN", "-CLUSTERDOWN", "-LOADING ", "-MASTERDOWN ", "-READONLY ", "-NOPERM ", "-NOAUTH "}

// readRefused makes a unit that a replica has refused go to the master; false: the reply stands.
func (e *Executor) readRefused(u *unit, n *Node, reply []byte) bool {
	if reply[0] != '-' {
		return false
	}
	for i, word := range refuses {
		if !strings.HasPrefix(string(reply[:min(len(reply), 16)]), word) {
			continue
		}
		if i < len(refuses)-2 { // it is about the replica's state, which the next check judges anew
			n.serves.Store(false)
			e.c.refreshFrom(n)
		}
		if i < 3 {
			e.c.replicaReads.hold(u.slot, nil)
		}
		e.toMaster(u)
		return true
	}
	return false
}

// countRead counts a unit that a replica has answered.
func (e *Executor) countRead(u *unit) {
	if u.reading {
		e.c.count.replicaReads.Add(1)
		telemetry.ReplicaReads.Add(1)
	}
}

// readFailed makes a unit that a replica has not answered go to the master.
func (e *Executor) readFailed(u *unit, n *Node, err error) {
	switch {
	case upstream.Refused(err) != nil: // it lacks the user, or that may not say READONLY
		e.replicas.barred, e.replicas.now = time.Now().Add(barred), false
	case upstream.IsFull(err): // a bound of ours says nothing of the replica, and will not be another one at once
		e.replicas.barred, e.replicas.now = time.Now().Add(full), false
	default:
		n.serves.Store(false)
		e.c.Refresh()
	}
	e.toMaster(u)
}

func (e *Executor) toMaster(u *unit) {
	u.master, u.reading, u.reply, u.pieces = true, false, nil, nil
	e.c.count.replicaFailures.Add(1)
}
