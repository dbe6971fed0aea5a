package cluster

import (
	"cmp"
	"errors"
	"slices"
)

// A node's address may be taken over by a node of another cluster, as pods get each other's addresses, and a node of
// ours may be reset and join another cluster. Both describe a cluster that is not ours, with owners for all slots.

// How much a view has in common with the cluster that is known.
const (
	foreign  = -1 // fewer than half of the shards are known
	halfOurs = 0  // half of them
	ours     = 1  // most of them
)

var errForeign = errors.New("the node describes another cluster")

// membershipOf compares a view with the shards that have slots: a shard is known to the view if the view names the
// shard's master or one of its replicas. While no cluster is known, every view is ours.
func (s *Snapshot) membershipOf(v *view) int {
	shards, named := 0, 0
	for _, master := range s.Masters {
		if s.firstOf(master) < 0 {
			continue
		}
		shards++
		if v.names(master, s.copies[master.ID]) {
			named++
		}
	}
	if shards == 0 {
		return ours
	}
	return cmp.Compare(2*named, shards)
}

// names says whether the view has a shard's master or one of its replicas.
func (v *view) names(master *Node, replicas []*Node) bool {
	return slices.ContainsFunc(append([]*Node{master}, replicas...), func(n *Node) bool { return v.find(n.ID) >= 0 })
}

// better says whether v is to be believed, and not the other view: the one that has more in common with the cluster
// that is known; of equals the one that names owners of more slots.
func (s *Snapshot) better(v, than *view) bool {
	if than == nil {
		return true
	}
	if a, b := s.membershipOf(v), s.membershipOf(than); a != b {
		return a > b
	}
	return v.claimed() > than.claimed()
}
