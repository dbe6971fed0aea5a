package sharded

import (
	"testing"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/held"
)

// BenchmarkUse is what every step of a lock on a cluster takes of what all steps share.
func BenchmarkUse(b *testing.B) {
	n := &cluster.Node{}
	m := &masters{shards: map[*cluster.Node]*shard{n: {clusterShard: clusterShard{is: n}}}}
	held.Measure(b, func() {
		for range b.N {
			m.unuse(m.use(0, n))
		}
	}, held.Mutex{Name: "masters.mu", Of: &m.mu})
}
