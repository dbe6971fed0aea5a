package cluster

import (
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// largeSlot is how many keys are in the large slot of these tests: their table has more than 2^20 buckets.
const largeSlot = 1100000

// valkeys is a client of three masters that scan by slot, of which the second has a large slot, and slots ahead of that and behind it.
func valkeys(t *testing.T) (tc *testredis.Cluster, cl *client, keys int) {
	t.Helper()
	testredis.NeedsAtLeast(t, 7, 4)
	tc = testredis.StartCluster(t, 3, 0, "--enable-debug-command local")
	c := openCluster(t, tc, Options{})
	cl = newClient(t, c, learn(t, c), 2)
	fill(t, cl, 3000, func(i int) string { return fmt.Sprint("key", i) })
	tc.Servers[1].Do(t, "DEBUG", "POPULATE", largeSlot, "{"+keyIn(largeSlotAt)+"}")
	if n, err := redis.Int(tc.Servers[1].Do(t, "CLUSTER", "COUNTKEYSINSLOT", largeSlotAt), nil); err != nil || n < largeSlot {
		t.Fatal(n, err)
	}
	return tc, cl, 3000 + largeSlot
}

const largeSlotAt = 7000

// Servers that scan by slot are scanned as others are.
func TestScanOfValkey(t *testing.T) {
	t.Parallel()
	_, cl, n := valkeys(t)
	cl.large = true
	eventually(t, "each key comes, and most of them once", func() bool { // a table that grows just then is gone over in part again
		keys, steps := cl.scanAll(t, "COUNT", "20000")
		if len(keys) < n {
			t.Fatalf("%d keys in %d steps", len(keys), steps)
		}
		came := 0
		for _, times := range keys {
			came += times
		}
		t.Logf("%d keys came %d times in %d steps", len(keys), came, steps)
		return came < n+n/10
	})
	if keys, _ := cl.scanAll(t, "MATCH", "{"+keyIn(largeSlotAt)+"}:10000??", "COUNT", "100000"); len(keys) != 100 { // such a pattern has Valkey look into one slot
		t.Errorf("%d keys match", len(keys))
	}
	if keys, _ := cl.scanAll(t, "MATCH", "key*", "COUNT", "100000"); len(keys) != 3000 {
		t.Errorf("%d keys match", len(keys))
	}
}
