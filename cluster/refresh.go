package cluster

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// refreshGap is the least time between two refreshes, before jitter: each slot that moves would be a reason for one.
const refreshGap = 50 * time.Millisecond

// refresher lets others ask for a refresh, and wait for it.
type refresher struct {
	wake chan struct{} // one slot: somebody wants a refresh

	mu   sync.Mutex    // guards all below
	hint *Node         // the node to ask first; nil: any
	next chan struct{} // closed when a refresh that begins from now on is done

	disowned map[string]bool // addresses whose nodes describe another cluster; only look uses it
}

func newRefresher() refresher {
	return refresher{wake: make(chan struct{}, 1), next: make(chan struct{}), disowned: map[string]bool{}}
}

// Refresh asks for a new look at the topology soon, and does not wait for it. There is one look at a time: all that
// ask during one share the next.
func (c *Cluster) Refresh() { c.refreshFrom(nil) }

// Refreshed is Refresh, and waits for the look, at most until ctx ends. The look may have failed.
func (c *Cluster) Refreshed(ctx context.Context) { c.await(ctx, c.refreshFrom(nil)) }

func (c *Cluster) await(ctx context.Context, look <-chan struct{}) {
	select {
	case <-look:
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// refreshFrom is Refresh, which asks hint first. The channel that it returns is closed when that look has been taken.
func (c *Cluster) refreshFrom(hint *Node) <-chan struct{} {
	r := &c.refresh
	r.mu.Lock()
	defer r.mu.Unlock()
	if hint != nil {
		r.hint = hint
	}
	retry.Wake(r.wake)
	return r.next
}

// refreshLoop is the goroutine that keeps the topology up to date.
func (c *Cluster) refreshLoop() {
	defer c.running.Done()
	failed := false
	for {
		if !retry.Sleep(c.ctx, retry.Around(c.opts.Refresh), c.refresh.wake) && c.ctx.Err() != nil {
			return
		}
		c.refresh.mu.Lock()
		hint, done := c.refresh.hint, c.refresh.next
		c.refresh.hint, c.refresh.next = nil, make(chan struct{})
		c.refresh.mu.Unlock()
		switch err := c.look(c.ctx, hint); {
		case err != nil && c.ctx.Err() == nil:
			level := slog.LevelWarn
			if failed { // the log has said so
				level = slog.LevelDebug
			}
			c.log.Log(c.ctx, level, "the cluster's topology could not be refreshed", "upstream", c.target.String(), "error", err)
			failed = true
		case err == nil && failed:
			c.log.Info("the cluster's topology is known again", "upstream", c.target.String())
			failed = false
		}
		close(done)
		if !retry.Sleep(c.ctx, retry.Around(refreshGap), nil) {
			return
		}
	}
}

// look asks nodes for the topology, one after the other until one tells: hint, the masters and replicas known in
// random order, the seeds. A node that has been reset, or has left the cluster, knows of itself only: so a node that
// names owners of fewer slots than were known is believed only if no node names more. One that knows fewer than half
// of our shards is of another cluster, and never believed.
func (c *Cluster) look(ctx context.Context, hint *Node) error {
	l := topologyLook{c: c, old: c.Snapshot(), err: errNoTopology}
	for _, n := range l.old.lookOrder(hint) {
		if l.enough() || ctx.Err() != nil {
			break
		}
		c.Acquire(n)
		ask, asked := l.old.While(ctx, n)
		l.ask(ask, n.up, n.Addr)
		asked()
		c.Release(n)
	}
	for _, addr := range c.target.Seeds {
		if l.enough() || ctx.Err() != nil {
			break
		}
		o := c.opts.Node
		o.Logger = slog.New(slog.DiscardHandler) // look reports the failures of these nodes, which each look makes anew
		seed := upstream.NewNode(c.target.At(addr, ""), o)
		l.ask(ctx, seed, addr)
		seed.Close()
	}
	if l.best == nil {
		return l.err
	}
	c.replace(l.best)
	return nil
}

// topologyLook is what one look at the topology has found.
type topologyLook struct {
	c    *Cluster
	old  *Snapshot
	best *view // nil: none that is to be believed
	err  error // of the last node that told nothing
}

// enough says that no other node can tell more.
func (l *topologyLook) enough() bool {
	if l.best == nil || l.old.membershipOf(l.best) != ours {
		return false
	}
	return l.best.claimed() >= max(1, l.old.claimed)
}

// ask asks one node what the cluster looks like.
func (l *topologyLook) ask(ctx context.Context, up *upstream.Node, addr string) {
	v, err := l.c.viewOf(ctx, up, addr)
	switch {
	case err != nil:
		l.err = err
	case l.old.membershipOf(v) == foreign:
		l.err = errForeign
		l.c.rejectForeign(addr)
	default:
		delete(l.c.refresh.disowned, addr)
		if l.old.better(v, l.best) {
			l.best = v
		}
	}
}

// rejectForeign logs, once, that the node at an address is not believed.
func (c *Cluster) rejectForeign(addr string) {
	if c.refresh.disowned[addr] {
		return
	}
	c.refresh.disowned[addr] = true
	c.log.Warn("a node describes another cluster than the one that is known, it is not believed; restart lockproxy if the cluster was made anew",
		"address", addr, "upstream", c.target.String())
}

// lookOrder returns the nodes in the order in which they are asked: those in trouble last.
func (s *Snapshot) lookOrder(hint *Node) []*Node {
	order := s.All()
	jitter.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	last := map[bool]int{true: 1}
	slices.SortStableFunc(order, func(a, b *Node) int { return last[a.InTrouble()] - last[b.InTrouble()] })
	if slices.Contains(order, hint) {
		order = append([]*Node{hint}, order...)
	}
	return order
}

// viewOf asks one node what the cluster looks like.
func (c *Cluster) viewOf(ctx context.Context, up *upstream.Node, addr string) (*view, error) {
	replies, err := c.ask(ctx, up, []string{"CLUSTER", "SHARDS"}, []string{"CLUSTER", "SLOTS"}, []string{"CLUSTER", "NODES"})
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(addr)
	return readView(replies[0], replies[1], replies[2], host, c.target.Node.TLS != nil)
}

// replace makes the next snapshot from a view.
func (c *Cluster) replace(v *view) {
	old := c.Snapshot()
	now := old.after(v, c.opts.AddressMap, c.openNode)
	c.snapshot.Store(now)
	c.count.refreshes.Add(1)
	failed := map[string]bool{}
	for _, d := range v.nodes {
		failed[d.id] = d.failed
	}
	c.retire(old, now, failed)
	if old.stamp != now.stamp {
		c.tellChanged(old, now)
	}
}
