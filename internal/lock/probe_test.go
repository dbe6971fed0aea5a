package lock

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestClusterWithoutShardedChannels: before Redis 7 locks are given back, and those who wait are woken, by PUBLISH, whatever was set.
func TestClusterWithoutShardedChannels(t *testing.T) {
	tc := testredis.StartCluster(t, 2, 0, `--rename-command SPUBLISH ""`, `--rename-command SSUBSCRIBE ""`, `--rename-command SUNSUBSCRIBE ""`)
	for _, way := range []PubSub{PubSubBoth, PubSubSharded, PubSubClassic} {
		m := clusterEngine(t, tc, Options{ClusterPubSub: way, Poll: time.Minute})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		got := locking(b, Request{Key: "k", Blocks: true})
		eventually(t, 10*time.Second, "waits", func() bool { return m.Stats().Waiting == 1 })
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		granted(t, got, "who waits")
		if freed, err := a.Unlock(t.Context(), UnlockRequest{Key: "k", Force: true}); !freed || err != nil {
			t.Fatal(way, freed, err)
		}
	}
}

// TestNoLockWithoutACommandToGiveItBack: a Redis without PUBLISH refuses the UNLOCK of the first try, and nobody gets a lock.
func TestNoLockWithoutACommandToGiveItBack(t *testing.T) {
	s := testredis.Start(t, `--rename-command PUBLISH ""`)
	m := engine(t, s.URL(), Options{})
	a, _ := client(m)
	for _, k := range []Kind{Plain, Read, Write} {
		if _, err := a.Lock(t.Context(), Request{Key: "k", Kind: k}); err == nil {
			t.Errorf("%v: a lock was given", k)
		}
	}
	if s.Do(t, "EXISTS", "k").(int64) != 0 {
		t.Error("something is held")
	}
}
