package cluster

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/upstream"
)

// Node is one node of the cluster. It lives as long as it is in the topology at the same address and has not failed,
// and afterwards until nobody uses it, at most half a minute; a failed one is closed at once, so that nobody waits for
// its replies.
type Node struct {
	ID   string // its node id
	Addr string // host:port that is dialled

	target upstream.Target
	up     *upstream.Node
	ctx    context.Context // ends when the node is closed
	stop   context.CancelFunc

	trouble trouble

	users  int  // guarded by Cluster.mu
	left   bool // guarded by Cluster.mu: not in the topology any more
	closed bool // guarded by Cluster.mu
}

// Upstream is the node's connections. They may be used while the node is in the topology, or between Acquire and
// Release.
func (n *Node) Upstream() *upstream.Node { return n.up }

// Target is where the node is dialled, and as whom: for connections that are not this package's.
func (n *Node) Target() upstream.Target { return n.target }

// Snapshot is what the cluster looked like at one moment. It does not change.
type Snapshot struct {
	// Masters are all nodes that are not replicas, in the order of their first slots; those without slots come last.
	Masters []*Node
	// Replicas are all others.
	Replicas []*Node

	owners

	copies  map[string][]*Node // replicas by the id of their master, as far as the nodes know of each other
	epochs  map[*Node]int64
	names   map[string]*Node // by every host:port a redirect may use
	whole   bool             // every slot has an owner
	claimed int              // for how many slots the view named an owner, failed or not
	stamp   uint64           // a hash of the owners and their epochs
}

// named finds the node that a redirect means. asked is the node that gave the redirect, whose host stands for an empty
// one.
func (s *Snapshot) named(addr string, asked *Node) *Node {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		// IPv6 addresses stand in redirects without brackets.
		at := strings.LastIndexByte(addr, ':')
		if at < 0 {
			return nil
		}
		host, port = addr[:at], addr[at+1:]
	}
	if known(host) == "" {
		host, _, _ = net.SplitHostPort(asked.Addr)
	}
	return s.names[net.JoinHostPort(host, port)]
}

// withID finds a node by its id.
func (s *Snapshot) withID(id string) *Node {
	for _, n := range s.All() {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// has says that n is in the topology.
func (s *Snapshot) has(n *Node) bool {
	return slices.Contains(s.Masters, n) || slices.Contains(s.Replicas, n)
}

// All are all nodes, masters first.
func (s *Snapshot) All() []*Node { return slices.Concat(s.Masters, s.Replicas) }

// after makes the next snapshot from a view, with the nodes of the snapshot before if they are the same. A slot stays
// with its owner if that has a newer config epoch than the one that the view names: then the view is out of date,
// because nodes themselves decide by the epoch who has a slot. So an old master that comes back, and does not know
// yet, is not believed.
func (s *Snapshot) after(v *view, m addressMap, open func(d described, addr string) *Node) *Snapshot {
	next := &Snapshot{epochs: map[*Node]int64{}, names: map[string]*Node{}, copies: map[string][]*Node{}, claimed: v.claimed()}
	nodes := make([]*Node, len(v.nodes)) // nil: it has failed
	for i, d := range v.nodes {
		if d.failed {
			continue
		}
		addr := m.to(d.addr)
		n := s.withID(d.id)
		if n == nil || n.Addr != addr {
			n = open(d, addr)
		}
		nodes[i] = n
		next.epochs[n] = d.epoch
		for _, name := range append(d.names, addr) {
			next.names[name] = n
		}
	}
	for slot, at := range v.owner {
		var now *Node
		if at >= 0 {
			now = nodes[at]
		}
		next.give(slot, next.newer(now, s.Owner(slot), s))
	}
	next.whole = !slices.Contains(next.at[:], 0)
	next.order(v, nodes)
	next.stamp = next.fingerprint()
	return next
}

// newer is the owner of a slot that is to be believed: that of the view, or the one before, which is nil if there
// was none.
func (s *Snapshot) newer(now, before *Node, old *Snapshot) *Node {
	_, here := s.epochs[before] // else it is nobody, has left or has failed
	switch {
	case now == nil, !here:
		return now
	case old.epochs[before] > s.epochs[now]:
		return before
	}
	return now
}

// order fills Masters and Replicas.
func (s *Snapshot) order(v *view, nodes []*Node) {
	s.Masters = slices.Clone(s.nodes) // those with slots, in the order of the first of them
	for i, n := range nodes {
		d := v.nodes[i]
		switch {
		case n == nil, slices.Contains(s.Masters, n):
		case d.master:
			s.Masters = append(s.Masters, n)
		default:
			s.Replicas = append(s.Replicas, n)
			s.copies[d.of] = append(s.copies[d.of], n)
		}
	}
}

func (s *Snapshot) fingerprint() uint64 {
	h, before := fnv.New64a(), (*Node)(nil)
	for slot, n := range s.all() {
		if n == before {
			continue
		}
		if before = n; n == nil {
			_, _ = fmt.Fprintln(h, slot)
		} else {
			_, _ = fmt.Fprintln(h, slot, n.ID, s.epochs[n])
		}
	}
	return h.Sum64()
}
