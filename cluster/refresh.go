package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// refreshGap is the least time between two refreshes, before jitter: each slot that moves would be a reason for one.
	refreshGap = 50 * time.Millisecond
	// askTimeout is how long one node may take to describe the cluster before another is asked.
	askTimeout = time.Second
	// controlLane keeps the proxy's own questions on connections apart from the clients'.
	controlLane = -1
)

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

// look asks nodes for the topology, one after the other until one tells: hint, the masters and replicas known in random order, the
// seeds. A node that has been reset, or has left the cluster, knows of itself only: so a node that names owners of fewer slots than
// were known is believed only if no node names more. One that knows fewer than half of our shards is of another cluster, and never
// believed.
func (c *Cluster) look(ctx context.Context, hint *Node) error {
	old := c.snapshot.Load()
	var best *view
	last := errNoTopology
	known := 1
	if old != nil {
		known = max(known, old.claimed)
	}
	full := func(ask context.Context, up *upstream.Node, addr string) bool {
		v, err := c.viewOf(ask, up, addr)
		switch {
		case err != nil:
			last = err
		case old.membershipOf(v) == foreign:
			last = errForeign
			c.rejectForeign(addr)
		default:
			delete(c.refresh.disowned, addr)
			if old.better(v, best) {
				best = v
			}
		}
		return ctx.Err() != nil || best != nil && best.claimed() >= known && old.membershipOf(best) == ours
	}
	done := false
	for _, n := range lookOrder(old, hint) {
		c.Acquire(n)
		ask, asked := old.While(ctx, n)
		done = full(ask, n.up, n.Addr)
		asked()
		c.Release(n)
		if done {
			break
		}
	}
	for _, addr := range c.target.Seeds {
		if done {
			break
		}
		o := c.opts.Node
		o.Logger = slog.New(slog.DiscardHandler) // look reports the failures of these nodes, which each look makes anew
		seed := upstream.NewNode(c.target.At(addr, ""), o)
		done = full(ctx, seed, addr)
		seed.Close()
	}
	if best == nil {
		return last
	}
	c.take(best)
	return nil
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

// lookOrder returns the known nodes in the order in which they are asked: those in trouble last.
func lookOrder(old *Snapshot, hint *Node) []*Node {
	if old == nil {
		return nil
	}
	order := old.All()
	jitter.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	slices.SortStableFunc(order, func(a, b *Node) int {
		switch {
		case a.InTrouble() == b.InTrouble():
			return 0
		case b.InTrouble():
			return -1
		}
		return 1
	})
	if hint != nil && old.has(hint) {
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

// take makes the next snapshot from a view.
func (c *Cluster) take(v *view) {
	old := c.snapshot.Load()
	now := adopt(old, v, c.opts.AddressMap, c.openNode)
	c.replicaReads.changed(old, now)
	c.snapshot.Store(now)
	c.count.refreshes.Add(1)
	failed := map[string]bool{}
	for _, d := range v.nodes {
		failed[d.id] = d.failed
	}
	c.retire(old, now, failed)
	if old != nil && old.stamp != now.stamp {
		c.tellChanged(old, now)
	}
}

var errSlow = errors.New("the node did not answer in time")

// ask sends commands as the service account, in RESP2, on a connection of its own, and takes the replies apart.
func (c *Cluster) ask(ctx context.Context, up *upstream.Node, cmds ...[]string) ([]resp.Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errSlow)
	defer cancel()
	p, err := up.Aside(ctx, c.account())
	if err != nil {
		return nil, err
	}
	var raw [][]byte
	for _, cmd := range cmds {
		raw = append(raw, resp.AppendCommand(nil, cmd...))
	}
	replies, err := exchange(ctx, p, raw)
	if err == nil {
		p.Release()
	}
	return replies, err
}

// exchange sends commands over a private pipe, and takes the replies apart. With an error the pipe has been released.
func exchange(ctx context.Context, p *upstream.Pipe, cmds [][]byte) ([]resp.Reply, error) {
	stop := context.AfterFunc(ctx, p.Release) // a Do under way then ends
	var got upstream.Gathered
	err := p.Do(&upstream.Request{Cmds: cmds, Sink: &got})
	switch left := stop(); {
	case !left:
		return nil, context.Cause(ctx)
	case err != nil:
		p.Release()
		return nil, err
	}
	replies, err := takeApart(got)
	if err != nil {
		p.Release()
	}
	return replies, err
}

func takeApart(got []byte) (replies []resp.Reply, err error) {
	for len(got) > 0 {
		v, ok := resp.ParseReply(got)
		if !ok {
			return nil, errNoTopology
		}
		replies = append(replies, v)
		got = got[len(v.Raw):]
	}
	return replies, nil
}

// account is the proxy's own identity, for questions about the cluster.
func (c *Cluster) account() upstream.Identity {
	id := c.target.Node.Service()
	id.Lane = controlLane
	return id
}
