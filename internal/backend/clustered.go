package backend

import (
	"context"
	"math/rand/v2"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/upstream"
)

// Clustered is the Backend of a cluster's nodes.
type Clustered struct {
	*cluster.Cluster
}

// NewClustered is the backend of a cluster.
func NewClustered(c *cluster.Cluster) *Clustered { return &Clustered{Cluster: c} }

// Node is any of the masters that answer.
func (b *Clustered) Node() *upstream.Node { return b.Snapshot().Any(rand.Int(), 0).Upstream() }

// Authenticate asks any node, and another one if that is out of reach, or in trouble. One node's refusal is not the
// cluster's, so another node is asked before a user is refused. A user who is let in may still do at each node only
// what that node allows.
func (b *Clustered) Authenticate(ctx context.Context, from, user, password string) error {
	return b.askAbout(ctx, func(ctx context.Context, n *upstream.Node) error {
		return n.Authenticate(ctx, from, user, password)
	})
}

// Admit asks as Authenticate does.
func (b *Clustered) Admit(ctx context.Context, from string) error {
	return b.askAbout(ctx, func(ctx context.Context, n *upstream.Node) error { return n.Admit(ctx, from) })
}

// askAbout asks about one client, and again while no node is reached, as commands are tried again: a client that greets
// a cluster which restarts waits for it, as one that sends a command does (docs/adr/0018).
func (b *Clustered) askAbout(ctx context.Context, ask func(context.Context, *upstream.Node) error) error {
	for t := b.Tries(NoSlot); ; {
		err := b.askOnce(ctx, ask)
		if !upstream.IsNotSent(err) || !t.Again(ctx, cluster.Unreached) {
			return err
		}
	}
}

// askOnce asks each master in turn, until one lets the client in or two have refused it. The error is the refusal, if
// there was one.
func (b *Clustered) askOnce(ctx context.Context, ask func(context.Context, *upstream.Node) error) (err error) {
	snapshot, first := b.Snapshot(), rand.Int()
	var refusal error
	for passed := range snapshot.Masters {
		n := snapshot.Any(first, passed)
		while, done := snapshot.While(ctx, n)
		err = ask(while, n.Upstream())
		done()
		switch said := !upstream.IsNotSent(err); {
		case err == nil, refusal != nil && said:
			return err
		case said:
			refusal = err
		}
	}
	if refusal != nil {
		return refusal
	}
	return err
}

// Tell implements Backend.
func (b *Clustered) Tell(n Notices) {
	b.OnRefused(n.Refused)
	b.OnChanged(func(_, _ *cluster.Snapshot) { n.Topology() })
}

// Misnamed implements Backend: what is no cluster tells no topology, and is never served as one.
func (b *Clustered) Misnamed(func(words ...string) ([]byte, error)) (warning string, err error) {
	return "", nil
}

// Describe implements Backend.
func (b *Clustered) Describe(line func(name string, value any)) {
	snapshot, n := b.Snapshot(), b.Stats()
	line("lockproxy_upstream", "cluster")
	line("lockproxy_cluster_masters", len(snapshot.Masters))
	line("lockproxy_cluster_replicas", len(snapshot.Replicas))
	line("lockproxy_cluster_moved", n.Moved)
	line("lockproxy_cluster_asked", n.Asked)
	line("lockproxy_cluster_tried_again", n.TriedAgain)
	line("lockproxy_cluster_down", n.Down)
	line("lockproxy_cluster_retried", n.Retried)
	line("lockproxy_cluster_refreshes", n.Refreshes)
}

// Members implements Backend.
func (b *Clustered) Members() (all []Member) {
	snapshot, slots := b.Snapshot(), map[*cluster.Node]int{}
	for slot := range cluster.Slots {
		slots[snapshot.Owner(slot)]++
	}
	for i, n := range snapshot.All() {
		role := "master"
		if i >= len(snapshot.Masters) {
			role = "replica"
		}
		all = append(all, Member{Node: n.Upstream(), ID: n.ID, Addr: n.Addr, Role: role, Slots: slots[n],
			Trouble: n.Trouble()})
	}
	return all
}
