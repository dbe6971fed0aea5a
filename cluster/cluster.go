// Package cluster speaks to a Redis Cluster: many nodes, each with some of the hash slots.
//
// A Cluster knows which node has which slot: a Snapshot that is replaced as a whole, read without locks. A Command
// becomes a Plan: which node gets what, and how the replies become one. An Executor sends the plans of one client over
// the nodes' upstream.Pipes, follows redirects, and hands the replies over in the client's order.
//
// Only addresses that the topology names are dialled, never what a redirect says on its own.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// Defaults of Options.
const (
	defaultRefresh  = 5 * time.Second
	defaultRetryFor = 5 * time.Second
)

// Options are a Cluster's settings; zero fields stand for the defaults.
type Options struct {
	Node       upstream.NodeOptions // of every node
	Refresh    time.Duration        // how often the topology is asked for when nothing happens; jittered by half
	RetryFor   time.Duration        // how long a command that did not run is tried again: a node out of reach, CLUSTERDOWN, TRYAGAIN
	Timeout    time.Duration        // for a node's reply to a command; 0: none
	AddressMap map[string]string    // see ParseAddressMap
}

// leftFor is how long a node that has left is kept for its users.
const leftFor = 30 * time.Second

// Cluster is a Redis Cluster and the connections to its nodes.
type Cluster struct {
	// Static after construction.
	target  upstream.ClusterTarget
	opts    Options
	log     *slog.Logger
	ctx     context.Context // ends when the cluster is closed
	stop    context.CancelFunc
	leftFor time.Duration
	running sync.WaitGroup // refreshLoop, nodes that are watched, and nodes being closed

	snapshot atomic.Pointer[Snapshot]

	refresh refresher
	count   counters

	mu         sync.Mutex // guards all below, and the nodes' users, left and closed
	nodes      map[*Node]struct{}
	confirming map[upstream.Identity]chan struct{} // accounts that all masters are being asked about; a value in the channel has them asked again
	hooks      hooks
}

// hooks are called when something happens in the cluster.
type hooks struct {
	refused func(upstream.Identity, *upstream.ReplyError)
	changed []func(before, now *Snapshot)
}

// Open finds the cluster by its seeds. It fails when none of them tells of a cluster within ctx; a *upstream.ReplyError
// inside the error is a node's refusal.
func Open(ctx context.Context, target upstream.ClusterTarget, o Options) (*Cluster, error) {
	if o.Refresh <= 0 {
		o.Refresh = defaultRefresh
	}
	if o.RetryFor <= 0 {
		o.RetryFor = defaultRetryFor
	}
	if o.Timeout <= 0 {
		o.Timeout = math.MaxInt64
	}
	if o.Node.DialTimeout <= 0 {
		o.Node.DialTimeout = upstream.DefaultDialTimeout
	}
	if o.Node.Logger == nil {
		o.Node.Logger = slog.Default()
	}
	c := &Cluster{target: target, opts: o, log: o.Node.Logger, leftFor: leftFor, refresh: newRefresher(),
		nodes: map[*Node]struct{}{}, confirming: map[upstream.Identity]chan struct{}{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.snapshot.Store(&Snapshot{})
	if err := c.look(ctx, nil); err != nil {
		c.Close()
		return nil, fmt.Errorf("cluster %s: %w", target, err)
	}
	c.running.Add(1)
	go c.refreshLoop()
	return c, nil
}

// counters are what Stats reads.
type counters struct {
	refusals           [refusalKinds]atomic.Int64
	retried, refreshes atomic.Int64
}

// Stats count what has happened since Open.
type Stats struct {
	Moved, Asked, TriedAgain, Down int64 // refusals of commands, by their kinds
	Retried                        int64 // commands sent again because their node was out of reach, or was lost while they only read
	Refreshes                      int64 // looks at the topology
}

// Stats returns the counts.
func (c *Cluster) Stats() Stats {
	n := &c.count
	return Stats{
		Moved: n.refusals[moved].Load(), Asked: n.refusals[asked].Load(),
		TriedAgain: n.refusals[tryAgain].Load(), Down: n.refusals[clusterDown].Load(),
		Retried: n.retried.Load(), Refreshes: n.refreshes.Load(),
	}
}

// Snapshot is the topology as it was last seen.
func (c *Cluster) Snapshot() *Snapshot { return c.snapshot.Load() }

// RetryFor is how long a command that did not run is tried again: of Options.
func (c *Cluster) RetryFor() time.Duration { return c.opts.RetryFor }

// OnChanged makes the cluster call f, too, from now on, for each topology in which slots have other nodes, or nodes
// another config epoch, than in the one before. One call at a time; the next look at the topology waits for it.
func (c *Cluster) OnChanged(f func(before, now *Snapshot)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks.changed = append(c.hooks.changed, f)
}

// tellChanged calls the hooks. Only the refresh calls it.
func (c *Cluster) tellChanged(before, now *Snapshot) {
	c.mu.Lock()
	told := c.hooks.changed
	c.mu.Unlock()
	for _, f := range told {
		f(before, now)
	}
}

// Close closes all nodes and waits until their goroutines, and the cluster's own, have ended.
func (c *Cluster) Close() {
	c.stop()
	c.mu.Lock()
	var open []*Node
	for n := range c.nodes {
		n.closed = true
		open = append(open, n)
	}
	clear(c.nodes)
	c.mu.Unlock()
	for _, n := range open {
		n.up.Close()
	}
	c.running.Wait()
}

// openNode makes a node of the topology.
func (c *Cluster) openNode(d described, addr string) *Node {
	target := c.target.At(addr, d.name)
	target.NodeID = d.id
	n := &Node{ID: d.id, Addr: addr, target: target, up: upstream.NewNode(target, c.opts.Node)}
	n.ctx, n.stop = context.WithCancel(c.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		n.closed = true // it has no goroutine yet
		n.up.Close()
		return n
	}
	c.nodes[n] = struct{}{}
	n.up.OnRefused(c.nodeRefused)
	c.running.Add(1)
	go c.watchNode(n)
	return n
}

// Renew is upstream.Node's, for all nodes.
func (c *Cluster) Renew(concerned func(upstream.Identity) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.nodes {
		n.up.Renew(concerned)
	}
}

// Acquire keeps a node from being closed when it leaves the topology, until Release or half a minute later. A node that
// has failed is closed all the same: then its connections return errors.
func (c *Cluster) Acquire(n *Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.users++
}

// Release ends what Acquire began.
func (c *Cluster) Release(n *Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.users--; n.left && n.users == 0 {
		c.close(n)
	}
}

// retire removes nodes that the topology no longer names. Those that have failed are closed at once, those that
// nobody uses, too.
func (c *Cluster) retire(old, now *Snapshot, failed map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range old.All() {
		if now.has(n) {
			continue
		}
		n.left = true
		if n.users == 0 || failed[n.ID] {
			c.close(n)
			continue
		}
		time.AfterFunc(c.leftFor, func() { // idle sessions do not notice, and keep it
			c.mu.Lock()
			defer c.mu.Unlock()
			c.close(n)
		})
	}
}

// close closes a node, once; mu is held.
func (c *Cluster) close(n *Node) {
	if n.closed {
		return
	}
	n.closed = true
	n.stop()
	delete(c.nodes, n)
	c.running.Add(1)
	go c.closeNode(n)
}

// closeNode is the goroutine that waits for a node's own.
func (c *Cluster) closeNode(n *Node) {
	defer c.running.Done()
	n.up.Close()
}
