package cluster

import (
	"context"

	"github.com/lockproxy/lockproxy/upstream"
)

// links are an executor's pipes to nodes.
type links struct {
	c       *Cluster
	id      upstream.Identity // of later commands
	private bool              // they are the executor's own, not those that executors share
	open    map[*Node]*link
}

// link is the pipe to a node.
type link struct {
	node *Node
	pipe *upstream.Pipe // nil: to be opened
}

// to is the link to a node, whose pipe is opened when it is first needed.
func (l *links) to(n *Node) *link {
	k := l.open[n]
	if k == nil {
		k = &link{node: n}
		l.c.Acquire(n)
		l.open[n] = k
	}
	return k
}

// connect opens the pipe of a link. Several may be connected at the same time.
func (l *links) connect(ctx context.Context, k *link) (err error) {
	open := k.node.up.Open
	if l.private {
		open = k.node.up.Private
	}
	pipe, err := open(ctx, l.id)
	if err == nil {
		k.pipe = pipe
	}
	return err
}

// answered gives a pipe back that others may be waiting for, even while this executor waits for another node's.
func (l *links) answered(k *link) {
	if l.private && l.id.For == upstream.Scripts {
		k.pipe.Release()
		k.pipe = nil
	}
}

// drop gives a link back.
func (l *links) drop(k *link) {
	if k.pipe != nil {
		k.pipe.Release()
	}
	l.c.Release(k.node)
	delete(l.open, k.node)
}

// dropAll gives all links back, for others that are made in another way.
func (l *links) dropAll() {
	for _, k := range l.open {
		l.drop(k)
	}
}

// dropLeft gives back the links to nodes that are no longer in the topology.
func (l *links) dropLeft(s *Snapshot) {
	for _, k := range l.open {
		if !s.has(k.node) {
			l.drop(k)
		}
	}
}
