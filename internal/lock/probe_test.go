package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestClusterWithoutShardedChannels: before Redis 7 locks are given back, and those who wait are woken, by PUBLISH, whatever was set.
func TestClusterWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 2, 0, `--rename-command SPUBLISH ""`, `--rename-command SSUBSCRIBE ""`, `--rename-command SUNSUBSCRIBE ""`)
	for _, way := range []sharded.PubSub{node.PubSubBoth, node.PubSubSharded, node.PubSubClassic} {
		m := clusterEngine(t, tc, ManagerOptions{Poll: time.Minute}, way)
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		got := locking(b, Request{Key: "k", Blocks: true})
		eventually(t, 30*time.Second, "waits", func() bool { return m.Stats().Waiting == 1 })
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
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	for _, k := range []Kind{Plain, Read, Write, Limit} {
		if _, err := a.Lock(t.Context(), Request{Key: "k", Kind: k}); err == nil {
			t.Errorf("%v: a lock was given", k)
		}
	}
	if s.Do(t, "EXISTS", "k").(int64) != 0 {
		t.Error("something is held")
	}
}

// TestNoLockWithoutACommandOfAnyKind: the probe goes through the scripts of all kinds of locks. A Redis that lacks a command by
// which one of them is given back gives no lock, and nothing of the probe is left there.
func TestNoLockWithoutACommandOfAnyKind(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"ZADD", "ZREM", "LRANGE", "GET", "PEXPIRE", "HGET", "LPOP", "HKEYS", "HLEN", "PTTL", "RPUSH"} {
		s := testredis.Start(t, `--rename-command `+command+` ""`)
		m := engine(t, s.URL(), ManagerOptions{})
		a, _ := client(m)
		if _, err := a.Lock(t.Context(), Request{Key: "k"}); err == nil || !strings.Contains(err.Error(), "so no lock is given") {
			t.Errorf("without %s: %v", command, err)
		}
		if left := s.Do(t, "DBSIZE").(int64); left != 0 {
			t.Errorf("without %s %d keys are left: %q", command, left, s.Do(t, "KEYS", "*"))
		}
	}
}
