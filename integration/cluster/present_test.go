package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A client in cluster mode finds all slots at one proxy, before a cluster and before a Redis alone.
func TestPresentCluster(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	alone := testredis.Start(t)
	for name, url := range map[string]string{"cluster": harness.ClusterURL(tc), "alone": alone.URL()} {
		t.Run(name, func(t *testing.T) {
			p := harness.StartProxy(t, url, "--present", "cluster")
			c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{p.Addr()}, ReadTimeout: harness.Patience, DialTimeout: harness.Patience})
			defer c.Close()
			useWidely(t, c)
			node := harness.Dial(t, p.Addr())
			answersAsNode(t, node, p)
			answersAsNode(t, harness.Dial3(t, p.Addr()), p)
			if got := node.Do("CLUSTER", "COUNTKEYSINSLOT", "1"); (name == "cluster") == harness.IsErrorFrame(got) {
				t.Errorf("COUNTKEYSINSLOT: %q", got)
			}
		})
	}
	p := harness.StartProxy(t, harness.ClusterURL(tc), "--present", "cluster", "--announce-address", "lb.example:7000")
	if got := harness.Dial(t, p.Addr()).Do("CLUSTER", "NODES"); !strings.Contains(got, " lb.example:7000@7000 myself,master ") {
		t.Errorf("NODES: %q", got)
	}
}

// Ordinary clients see a Redis alone.
func TestPresentStandalone(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	for _, proto := range []int{2, 3} {
		c := goredis.NewClient(&goredis.Options{Addr: p.Addr(), Protocol: proto, ReadTimeout: harness.Patience, DialTimeout: harness.Patience})
		useWidely(t, c)
		c.Close()
	}
}

// useWidely is an application's use of a client library.
func useWidely(t *testing.T, c goredis.UniversalClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*harness.Patience)
	defer cancel()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("FLUSHALL", c.FlushAll(ctx).Err())
	pipe := c.Pipeline()
	for i := range 200 {
		pipe.Set(ctx, fmt.Sprint("k", i), i, 0)
	}
	_, err := pipe.Exec(ctx)
	check("pipeline", err)
	for i := range 200 {
		if got, err := c.Get(ctx, fmt.Sprint("k", i)).Int(); err != nil || got != i {
			t.Fatalf("k%d: %d %v", i, got, err)
		}
	}
	tx := c.TxPipeline()
	n := tx.Incr(ctx, "{t}a")
	tx.Incr(ctx, "{t}b")
	_, err = tx.Exec(ctx)
	check("MULTI", err)
	if n.Val() != 1 {
		t.Errorf("INCR: %d", n.Val())
	}
	check("WATCH", c.Watch(ctx, func(tx *goredis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(p goredis.Pipeliner) error { return p.Set(ctx, "{t}a", "x", 0).Err() })
		return err
	}, "{t}a"))
	script := goredis.NewScript("return redis.call('INCR', KEYS[1])")
	for i := range 9 {
		check("script", script.Run(ctx, c, []string{fmt.Sprint("s", i)}).Err())
	}
	sub := c.Subscribe(ctx, "news")
	defer sub.Close()
	_, err = sub.Receive(ctx)
	check("SUBSCRIBE", err)
	check("PUBLISH", c.Publish(ctx, "news", "hello").Err())
	if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
		t.Errorf("message: %v %v", m, err)
	}
	shard := c.SSubscribe(ctx, "shard")
	defer shard.Close()
	_, err = shard.Receive(ctx)
	check("SSUBSCRIBE", err)
	check("SPUBLISH", c.SPublish(ctx, "shard", "hello").Err())
	if m, err := shard.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
		t.Errorf("message: %v %v", m, err)
	}
	popped := make(chan error, 1)
	go func() { popped <- c.BLPop(ctx, harness.Patience, "q").Err() }()
	time.Sleep(50 * time.Millisecond)
	check("RPUSH", c.RPush(ctx, "q", "v").Err())
	check("BLPOP", <-popped)
	seen := map[string]bool{}
	iter := c.Scan(ctx, 0, "k*", 50).Iterator()
	for iter.Next(ctx) {
		seen[iter.Val()] = true
	}
	check("SCAN", iter.Err())
	if len(seen) != 200 {
		t.Errorf("SCAN: %d keys", len(seen))
	}
}

// answersAsNode asks what clients ask of a cluster's node.
func answersAsNode(t *testing.T, w *harness.Wire, p *harness.Proxy) {
	t.Helper()
	id := strings.Split(w.Do("CLUSTER", "MYID"), "\r\n")[1]
	if len(id) != 40 {
		t.Errorf("MYID: %q", id)
	}
	harness.Expect(t, w, fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n%s\r\n*0\r\n", p.Port(), id), "CLUSTER", "SLOTS")
	line := fmt.Sprintf("%s 127.0.0.1:%d@%d myself,master - 0 0 1 connected 0-16383\n", id, p.Port(), p.Port())
	for sub, part := range map[string]string{"NODES": line, "SHARDS": id, "INFO": "cluster_state:ok\r\n"} {
		if got := w.Do("CLUSTER", sub); !strings.Contains(got, part) {
			t.Errorf("%s: %q", sub, got)
		}
	}
	harness.Expect(t, w, fmt.Sprintf(":%d\r\n", slots.Slot([]byte("{ab}c"))), "CLUSTER", "KEYSLOT", "{ab}c")
	for _, word := range []string{"READONLY", "READWRITE", "ASKING"} {
		harness.Expect(t, w, "+OK\r\n", word)
	}
	harness.Expect(t, w, "-ERR CLUSTER RESET is not available: lockproxy stands for the cluster's nodes\r\n", "CLUSTER", "RESET")
	info := w.Do("INFO", "server", "cluster") + w.Do("INFO", "cluster")
	if !strings.Contains(info, "redis_mode:cluster") || !strings.Contains(info, "cluster_enabled:1") {
		t.Errorf("INFO: %q", info)
	}
	if hello := w.Do("HELLO"); !strings.Contains(hello, "cluster") {
		t.Errorf("HELLO: %q", hello)
	}
}
