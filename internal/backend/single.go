package backend

import (
	"bytes"
	"context"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// single is one Redis.
type single struct{ node *upstream.Node }

// NewSingle is the backend of one Redis, or of the master that Sentinels name.
func NewSingle(n *upstream.Node) Backend { return single{n} }

func (b single) Node() *upstream.Node { return b.node }

func (b single) Authenticate(ctx context.Context, from, user, password string) error {
	return b.node.Authenticate(ctx, from, user, password)
}

func (b single) Admit(ctx context.Context, from string) error { return b.node.Admit(ctx, from) }

func (b single) Renew(concerned func(upstream.Identity) bool) { b.node.Renew(concerned) }

func (b single) Tell(n Notices) {
	b.node.OnRefused(n.Refused)
}

// retryFor is as long as a command waits for a Redis that has just been lost: see upstream.Pipe.
const retryFor = time.Second

func (b single) RetryFor() time.Duration { return retryFor }

// Misnamed warns of a node of a cluster that is served as if it were a single Redis: HELLO, which every user may run,
// names the mode.
func (b single) Misnamed(ask func(words ...string) ([]byte, error)) (warning string, err error) {
	reply, err := ask("HELLO")
	if err == nil && bytes.Contains(reply, []byte("\r\n$4\r\nmode\r\n$7\r\ncluster\r\n")) {
		warning = "the upstream is a node of a Redis Cluster: clients get MOVED for keys of other nodes, and locks are found at this node " +
			"only. Name the upstream redis-cluster:// (or rediss-cluster://)"
	}
	return warning, err
}

func (b single) Describe(line func(name string, value any)) {
	kind, addr, switches := b.node.Upstream()
	line("lockproxy_upstream", kind)
	line("lockproxy_upstream_addr", addr)
	line("lockproxy_upstream_switches", switches)
}

func (b single) Members() []Member {
	_, addr, _ := b.node.Upstream()
	return []Member{{Node: b.node, Addr: addr, Role: "master"}}
}
