package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	// replicaCheckEvery is how often replicas are asked whether they follow their masters, and masters for slots
	// that move.
	replicaCheckEvery = time.Second
	// settling is for how long a slot is read at its master after it was seen to move: a replica knows nothing of keys
	// that leave, and of those that come only what has been replicated.
	settling = 5 * time.Second
	// barred is for how long an executor asks no replica after one has refused its identity.
	barred = 10 * time.Second
	// barredByBound is for how long it asks none after a bound of ours has refused a connection to one.
	barredByBound = time.Second
)

// replicaReads says which slots may not be read from replicas at the moment. Node.serves says which replicas may be
// read from.
type replicaReads struct {
	master [Slots]atomic.Int64 // until when a slot is read at its master; unix nanoseconds
}

// hold makes a slot be read at its master for a while, and also all slots of giver, the node that gives it away:
// when one slot moves, others often follow. s may be nil, and so may giver.
func (s *replicaReads) hold(slot int, giver *Node) {
	if s == nil {
		return
	}
	until := time.Now().Add(settling).UnixNano()
	s.master[slot].Store(until)
	if giver != nil {
		giver.gives.Store(until)
	}
}

// changed holds the slots that have another master. Replicas that have another master are checked before they are
// read from. s may be nil, and old empty, when nothing has changed.
func (s *replicaReads) changed(old, now *Snapshot) {
	if s == nil || len(old.Masters) == 0 {
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

// replicaFor returns the replica of owner that reads of a slot may go to, or nil. Equal first get the same replica
// for as long as that serves, so that a client does not read data older than it has read before.
func (c *Cluster) replicaFor(s *Snapshot, owner *Node, slot, first int, now time.Time) *Node {
	if max(c.replicaReads.master[slot].Load(), owner.gives.Load()) > now.UnixNano() {
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

// checkReplica finds out whether a replica has its master's data and goes on getting it.
func (c *Cluster) checkReplica(n *Node) {
	said, err := n.watch.ask(c.ctx, n.up, c.account(), askRole)
	n.serves.Store(err == nil && follows(said[0]))
}

// follows reads a replica's answer to ROLE. If the service account may not ask, only the topology can tell.
func follows(role resp.Reply) bool {
	if e := role.Elems; len(e) > 3 {
		return string(e[0].Text) == "slave" && string(e[3].Text) == "connected"
	}
	return readRefusal(role.Raw).kind == notAllowed
}

// lookForMoves finds out which slots a master gives away, which its replicas do not know.
func (c *Cluster) lookForMoves(n *Node) {
	said, err := n.watch.ask(c.ctx, n.up, c.account(), askNodes)
	if err != nil {
		return
	}
	for _, slot := range leaving(string(said[0].Text)) {
		c.replicaReads.hold(slot, n)
	}
}

// countRead counts a unit if a replica has answered it.
func (c *Cluster) countRead(u *unit) {
	if u.reading {
		c.count.replicaReads.Add(1)
		telemetry.ReplicaReads.Add(1)
	}
}

// replicaChoice is whether an executor's reads go to replicas.
type replicaChoice struct {
	wanted bool
	now    bool         // in this Do they go there
	barred time.Time    // reads do not go to replicas before
	writes map[int]bool // slots that this Do's plans write to
}

// begin finds out, before the plans are carried out, which slots they write to.
func (r *replicaChoice) begin(plans []*Plan) {
	if r.now = r.wanted && time.Now().After(r.barred); !r.now {
		return
	}
	if clear(r.writes); len(plans) == 1 {
		return
	}
	for _, p := range plans {
		if p.cmd.Facts.Replica {
			continue
		}
		for _, u := range p.units {
			r.writes[u.slot] = true
		}
	}
}

// may says whether a unit may go to a replica. Within the plans of one Do a slot that is written to is read at its
// master, so that no read passes a write of the same client's. A read that a replica does not answer goes to the
// master, and its client goes on while the replica's connection may still write it: so a read of which that has no
// copy is the master's.
func (r *replicaChoice) may(u *unit) bool {
	if !r.now || u.master || r.writes[u.slot] {
		return false
	}
	return u.plan.cmd.Facts.Replica && u.copied()
}

// bar keeps reads from replicas for a while.
func (r *replicaChoice) bar(d time.Duration) { r.barred, r.now = time.Now().Add(d), false }

// readRefused makes a unit that a replica has refused go to the master; false: the reply stands.
func (e *Executor) readRefused(u *unit, n *Node, why refusalKind) bool {
	switch why {
	case noRefusal:
		return false
	case moved, asked, tryAgain:
		e.c.replicaReads.hold(u.slot, nil)
	}
	if why != notAllowed { // it is about the replica's state, which the next check judges anew
		n.serves.Store(false)
		e.c.refreshFrom(n)
	}
	e.toMaster(u)
	return true
}

// readFailed makes a unit that a replica has not answered go to the master.
func (e *Executor) readFailed(u *unit, n *Node, err error) {
	switch failureOf(err) {
	case refused: // it lacks the user, or that may not say READONLY
		e.replicas.bar(barred)
	case full: // that says nothing of the replica, and will not be another one at once
		e.replicas.bar(barredByBound)
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
