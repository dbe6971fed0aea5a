package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// underRace says that the race detector slows everything down.
var underRace bool

// clusterEngine is a Manager at work on a cluster.
func clusterEngine(t *testing.T, tc *testredis.Cluster, o ManagerOptions, by ...sharded.PubSub) *Manager {
	t.Helper()
	return shardedEngine(t, seedsOf(t, tc), o, by...)
}

func seedsOf(t *testing.T, tc *testredis.Cluster) upstream.ClusterTarget {
	t.Helper()
	where, err := upstream.ParseURL("redis-cluster://" + tc.Servers[0].Addr() + "," + tc.Servers[1].Addr())
	target, _ := where.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func shardedEngine(t *testing.T, target upstream.ClusterTarget, o ManagerOptions, by ...sharded.PubSub) *Manager {
	t.Helper()
	return retryingEngine(t, target, 0, o, by...)
}

// retryingEngine tries for another time than a cluster's Manager does by itself.
func retryingEngine(t *testing.T, target upstream.ClusterTarget, retryFor time.Duration, o ManagerOptions, by ...sharded.PubSub) *Manager {
	t.Helper()
	o.Logger = testLog()
	c := testredis.Opened(t, func() (*cluster.Cluster, error) {
		return cluster.Open(context.Background(), target, cluster.Options{RetryFor: retryFor, Node: upstream.NodeOptions{Logger: o.Logger}})
	})
	return atWork(t, New(sharded.Cluster(c, cmp.Or(append(by, "")...)), o), c.Close)
}

func slotOf(key string) int { return cluster.Slot([]byte(key)) }

// nameIn is a lock's name in the slots of one of n masters, as StartCluster deals them out.
func nameIn(prefix string, master, n int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint(prefix, i); slotOf(name)*n/cluster.Slots == master {
			return name
		}
	}
}

func owner(t *testing.T, tc *testredis.Cluster, key string) *testredis.Server {
	t.Helper()
	s, err := tc.Owner(slotOf(key))
	if err != nil || s == nil {
		t.Fatalf("the owner of %s: %v %v", key, s, err)
	}
	return s
}

// counting has clients of several Managers add to counters on another server, each under its lock: what was added must be
// there. Adding is a read, a pause and a write, so that two at once lose one.
type counting struct {
	t        *testing.T
	counters *testredis.Server
	keys     []string
	request  Request
	left     atomic.Int64
	added    atomic.Int64
	refused  atomic.Int64 // verbs that were not done for too long
	lost     atomic.Int64 // UNLOCKs told LOCKLOST
	longest  atomic.Int64 // ns that a LOCK took
	work     sync.WaitGroup
}

func count(t *testing.T, total int64, keys int, r Request, clients int, managers ...*Manager) *counting {
	c := &counting{t: t, counters: testredis.Start(t), request: r}
	for i := range keys {
		c.keys = append(c.keys, fmt.Sprint("counted", i))
	}
	c.left.Store(total)
	for _, m := range managers {
		for range clients {
			c.work.Add(1)
			go c.add(m)
		}
	}
	return c
}

func (c *counting) add(m *Manager) {
	defer c.work.Done()
	conn := c.counters.Dial(c.t)
	cl, _ := client(m)
	defer cl.Close(Gone)
	for c.left.Add(-1) >= 0 {
		r := c.request
		r.Key = c.keys[rand.N(len(c.keys))]
		for {
			began := time.Now()
			_, err := cl.Lock(context.Background(), r)
			if took := int64(time.Since(began)); took > c.longest.Load() {
				c.longest.Store(took)
			}
			if err == nil {
				break
			}
			c.refused.Add(1)
			time.Sleep(time.Millisecond)
		}
		n, err := redis.Int64(conn.Do("GET", r.Key))
		if err != nil && !errors.Is(err, redis.ErrNil) {
			c.t.Error(err)
			return
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		if _, err := conn.Do("SET", r.Key, n+1); err != nil {
			c.t.Error(err)
			return
		}
		c.added.Add(1)
		began := time.Now()
		_, err = cl.Unlock(context.Background(), UnlockRequest{Key: r.Key})
		for lockstore.NotSent(err) {
			c.refused.Add(1) // it is still held, and renewed
			began = time.Now()
			_, err = cl.Unlock(context.Background(), UnlockRequest{Key: r.Key})
		}
		switch {
		case isCode(err, "LOCKLOST"):
			c.lost.Add(1)
		case err != nil && strings.Contains(err.Error(), "the reply to this UNLOCK was lost") && time.Since(began) >= patience:
			c.refused.Add(1) // a master's place was empty for longer than an UNLOCK waits: it is given back when there is one
		case err != nil:
			c.t.Errorf("UNLOCK %s: %v", r.Key, err)
			return
		}
	}
}

func (c *counting) wait() {
	c.t.Helper()
	c.work.Wait()
	sum := int64(0)
	for _, key := range c.keys {
		n, err := redis.Int64(c.counters.Dial(c.t).Do("GET", key))
		if err != nil && !errors.Is(err, redis.ErrNil) {
			c.t.Fatal(err)
		}
		sum += n
	}
	c.t.Logf("%d added, %d verbs refused, %d locks lost, the longest LOCK took %v",
		c.added.Load(), c.refused.Load(), c.lost.Load(), time.Duration(c.longest.Load()).Round(time.Millisecond))
	if sum != c.added.Load() || sum == 0 {
		c.t.Errorf("%d were added, %d are there", c.added.Load(), sum)
	}
}
