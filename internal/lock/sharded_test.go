package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestClusterNames(t *testing.T) {
	for name, good := range map[string]bool{
		"orders": true, "a{b}c": true, "{b}": true, "a}b{c}": true, "{{b}": true, "{a}{}": true, " ": true,
		"": false, "a{b": false, "{}x": false, "x{}{y}": false, "a}b": false, "}": false, "{": false, "}{": false,
	} {
		if lockstore.Clusterable(name) != good {
			t.Errorf("%q: want %v", name, good)
		}
		if !good {
			continue
		}
		for _, other := range []string{
			lockstore.ChannelOf(name), lockstore.TokenKey(name), lockstore.QueueKey(name), lockstore.GuardKey(name), lockstore.ReadPrefix(name) + ":{o}",
			lockstore.LineKey{Key: name, Kind: Write}.Channel(),
			lockstore.Prefixed("redisson_lock_timeout", name), lockstore.Prefixed("lockproxy_fair", name),
		} {
			if slotOf(other) != slotOf(name) {
				t.Errorf("%q is not in the slot of %q", other, name)
			}
		}
	}
}

// TestClusterVerbs is one walk through the verbs, over locks of all nodes.
func TestClusterVerbs(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	m := clusterEngine(t, tc, ManagerOptions{})
	ctx := context.Background()
	a, _ := client(m)
	b, _ := client(m)
	var keys []string
	for i := range 3 {
		keys = append(keys, nameIn("verbs", i, 3), fmt.Sprint("more", i), fmt.Sprint("more{", i, "}"))
	}
	grants, err := a.MultiLock(ctx, keys, Request{Fence: true})
	if err != nil || len(grants) != len(keys) || grants[0].Token == 0 {
		t.Fatal(grants, err)
	}
	for _, key := range keys {
		if got := hash(t, owner(t, tc, key), key); got[a.Owner()] != "1" {
			t.Errorf("%s: %v", key, got)
		}
		if _, err := b.Lock(ctx, Request{Key: key}); err != ErrNotAcquired {
			t.Errorf("%s: %v", key, err)
		}
		if in, err := m.Info(ctx, 0, key); err != nil || len(in.Holders) != 1 || !in.Fenced {
			t.Errorf("%s: %+v %v", key, in, err)
		}
		if err := a.Renew(ctx, RenewRequest{Key: key, Lease: 60000}); err != nil || pttl(t, owner(t, tc, key), key) < 50000 {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := b.Unlock(ctx, UnlockRequest{Key: keys[0], Force: true}); err != nil {
		t.Error(err)
	}
	if freed, err := a.MultiUnlock(ctx, keys, UnlockRequest{}); freed != 8 || !isCode(err, "LOCKLOST") {
		t.Error(freed, err)
	}
	for i := range 3 {
		key := nameIn("sides", i, 3)
		mustLock(t, a, Request{Key: key, Kind: Read, Owner: "reader", Lease: 30_000})
		mustLock(t, b, Request{Key: key, Kind: Read})
		if _, err := b.Lock(ctx, Request{Key: key, Kind: Write, Owner: "writer", Lease: 30_000}); err != ErrNotAcquired {
			t.Error(err)
		}
		mustUnlock(t, a, UnlockRequest{Key: key, Owner: "reader"}, true)
		mustUnlock(t, b, UnlockRequest{Key: key}, true)
		mustLock(t, a, Request{Key: key, Kind: Write})
		mustUnlock(t, a, UnlockRequest{Key: key}, true)
		mustLock(t, a, Request{Key: key, Fair: true, Blocks: true, Block: 30000, Owner: "fair", Lease: 30_000})
		mustUnlock(t, a, UnlockRequest{Key: key, Owner: "fair"}, true)
	}
	for _, name := range []string{"a{b", "{}x", "x{}{y}", "a}b"} {
		_, err := a.Lock(ctx, Request{Key: name})
		wantCode(t, err, "ERR")
		_, err = a.Unlock(ctx, UnlockRequest{Key: name})
		wantCode(t, err, "ERR")
		_, err = a.Unlock(ctx, UnlockRequest{Key: name, Force: true})
		wantCode(t, err, "ERR")
		wantCode(t, a.Renew(ctx, RenewRequest{Key: name}), "ERR")
		_, err = a.MultiLock(ctx, []string{"fine", name}, Request{})
		wantCode(t, err, "ERR")
		_, err = m.Info(ctx, 0, name)
		wantCode(t, err, "ERR")
	}
	one := engine(t, testredis.Start(t).URL(), ManagerOptions{})
	c, _ := client(one)
	mustLock(t, c, Request{Key: "a{b"})
	mustUnlock(t, c, UnlockRequest{Key: "a{b"}, true)
}

// TestClusterWakeUps: whoever publishes, in whichever way, wakes those who wait; and we are heard by who listens in that way.
func TestClusterWakeUps(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	for _, c := range []struct {
		way    sharded.PubSub
		verbs  []string
		listen []string
	}{
		{node.PubSubBoth, []string{"PUBLISH", "SPUBLISH"}, []string{"SUBSCRIBE", "SSUBSCRIBE"}},
		{node.PubSubSharded, []string{"SPUBLISH"}, []string{"SSUBSCRIBE"}},
		{node.PubSubClassic, []string{"PUBLISH"}, []string{"SUBSCRIBE"}},
	} {
		m := clusterEngine(t, tc, ManagerOptions{Poll: time.Hour, Watchdog: time.Hour}, c.way)
		for i, verb := range c.verbs {
			key := nameIn(string(c.way)+verb, i, 3)
			s := owner(t, tc, key)
			heldByRedisson(t, s, key)
			cl, _ := client(m)
			got := locking(cl, Request{Key: key, Blocks: true})
			channel := lockstore.ChannelOf(key)
			eventually(t, 30*time.Second, "listened to", func() bool { return subscribers(t, s, channel) == len(c.listen) })
			eventually(t, 30*time.Second, "it has tried again", func() bool { return settledDown(m, key) })
			s.Do(t, "DEL", key)
			s.Do(t, verb, channel, "0")
			granted(t, got, string(c.way)+" after "+verb)
			for _, how := range c.listen {
				conn := s.Dial(t)
				if _, err := conn.Do(how, channel); err != nil {
					t.Fatal(err)
				}
				mustUnlock(t, cl, UnlockRequest{Key: key}, true)
				if words, err := redis.Strings(redis.ReceiveWithTimeout(conn, 10*time.Second)); err != nil || words[2] != "0" {
					t.Errorf("%s: by %s heard %q %v", c.way, how, words, err)
				}
				mustLock(t, cl, Request{Key: key})
			}
		}
	}
}

// TestClusterExclusion: 4 proxies count under 50 locks, hand-offs included, and lose nothing.
func TestClusterExclusion(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	var all []*Manager
	for range 4 {
		all = append(all, clusterEngine(t, tc, ManagerOptions{}))
	}
	total := int64(6000)
	if underRace {
		total = 2000
	}
	c := count(t, total, 50, Request{Blocks: true}, 25, all...)
	c.wait()
	if c.lost.Load()+c.refused.Load() > 0 {
		t.Error("with nothing wrong something went wrong")
	}
}

// TestClusterFrozenNode: a node that hangs delays the renewal of no other's locks.
func TestClusterFrozenNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		nodes := w.NewCluster("10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379").Nodes()
		m := shardedEngine(t, upstream.ClusterTarget{
			Seeds: []string{nodes[0].Addr(), nodes[1].Addr()}, Node: upstream.Target{Network: "tcp", Dialer: w.Proxy("one")},
		}, ManagerOptions{})
		cl, lost := client(m)
		for i := range 300 {
			mustLock(t, cl, Request{Key: nameIn(fmt.Sprint("held", i, "-"), i%3, 3)})
		}
		nodes[0].Stop()
		time.Sleep(90 * time.Second)
		nodes[0].Cont()
		lost.mu.Lock()
		defer lost.mu.Unlock()
		for _, l := range lost.all {
			if slotOf(l.Key)*3/cluster.Slots != 0 {
				t.Errorf("%s was lost: %s", l.Key, l.Reason)
			}
		}
		if len(lost.all) != 100 {
			t.Errorf("%d locks of the frozen node were reported lost, of 100", len(lost.all))
		}
	})
}
