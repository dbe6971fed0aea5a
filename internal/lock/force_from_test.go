package lock

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestForceFromNamedHolders: a force that names holders ends their holds alone. Whoever has got the lock since keeps it, and so do
// readers that were not named.
func TestForceFromNamedHolders(t *testing.T) {
	t.Parallel()
	single := testredis.Start(t)
	nodes := []string{testredis.Start(t).Addr(), testredis.Start(t).Addr(), testredis.Start(t).Addr()}
	for name, m := range map[string]*Manager{
		"one Redis": engine(t, single.URL(), ManagerOptions{}), "cluster": clusterEngine(t, testredis.StartCluster(t, 2, 0), ManagerOptions{}), "quorum": quorumEngine(t, nodes, 0, ManagerOptions{}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := client(m)
			b, _ := client(m)
			force := func(key string, freed bool, from ...lockstore.Owned) {
				t.Helper()
				if got, err := a.Unlock(t.Context(), UnlockRequest{Key: key, Force: true, From: from}); got != freed || err != nil {
					t.Fatalf("%s of %v: %v, %v", key, from, got, err)
				}
			}
			holds := func(c *Client, kind Kind) lockstore.Owned { return lockstore.Owned{Owner: c.Owner(), Kind: kind} }

			mustLock(t, a, Request{Key: "plain"})
			mustUnlock(t, a, UnlockRequest{Key: "plain"}, true)
			force("plain", false, holds(a, Plain))
			mustLock(t, b, Request{Key: "plain"})
			force("plain", false, holds(a, Plain))
			mustUnlock(t, b, UnlockRequest{Key: "plain"}, true)
			mustLock(t, b, Request{Key: "plain"})
			force("plain", true, holds(a, Plain), holds(b, Plain))

			mustLock(t, a, Request{Key: "write", Kind: Write})
			force("write", false, holds(b, Write))
			mustUnlock(t, a, UnlockRequest{Key: "write"}, true)
			mustLock(t, a, Request{Key: "write", Kind: Write})
			force("write", true, holds(a, Write))

			mustLock(t, a, Request{Key: "read", Kind: Read})
			mustLock(t, b, Request{Key: "read", Kind: Read})
			force("read", true, holds(a, Read))
			mustUnlock(t, b, UnlockRequest{Key: "read"}, true)
		})
	}
}
