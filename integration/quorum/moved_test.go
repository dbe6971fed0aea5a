package quorum

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A node's address moves to another Redis, and the former one lives on as its replica: the proxy follows the address, the other Redis counts once
// it could not give away any more what the former one had given, and locks go on meanwhile.
func TestQuorumNodeWhoseAddressMoves(t *testing.T) {
	t.Parallel()
	next := testredis.Start(t)
	q := startQuorum(t, 3)
	w := harness.Dial(t, q.p.Addr())
	wants(t, w, "+OK", "LOCK", "before")
	host, port, _ := strings.Cut(next.Addr(), ":")
	q.nodes[0].Do(t, "REPLICAOF", host, port)
	q.links[0].Redirect(next.Addr())
	moved := time.Now()
	wants(t, w, "+OK", "LOCK", "meanwhile")
	harness.Eventually(t, "it has what is renewed", func() bool { return next.Do(t, "EXISTS", "before", "meanwhile").(int64) == 2 })
	if took := time.Since(moved); took < 8*time.Second {
		t.Errorf("it was asked for locks after %v", took)
	}
	harness.Eventually(t, "it counts", func() bool { return harness.NodeState(w, 0, "state") == "up" })
	q.nodes[1].Stop()
	wants(t, w, "+OK", "LOCK", "after")
	q.nodes[1].Cont()
	for _, key := range []string{"before", "meanwhile", "after"} {
		wants(t, w, ":1", "UNLOCK", key)
	}
}
