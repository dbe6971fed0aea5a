package locks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// restlessPool is a pool that closes a connection as soon as it has been used, as pools do with idle connections.
func restlessPool(t *testing.T, addr string) *redis.Client {
	return harness.NewGoRedis(t, &redis.Options{Addr: addr, ConnMaxLifetime: time.Millisecond, MaxRetries: -1, ReadTimeout: 30 * time.Second})
}

// poolSays runs a command of a pool's and returns what redis-cli would print, nil for null.
func poolSays(t *testing.T, r *redis.Client, words ...any) any {
	t.Helper()
	got, err := r.Do(context.Background(), words...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(words, err)
	}
	return got
}

// The recipe that docs/VERBS.md gives to pools: a lease, and RENEW as a heartbeat. The lock lives by its worker alone: it does not
// matter which connections the pool closes, and a worker that died is not kept alive by the pool it came from.
func TestPoolWithHeartbeat(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	first, second := harness.StartProxy(t, s.URL()), harness.StartProxy(t, s.URL())
	pools := []*redis.Client{restlessPool(t, first.Addr()), restlessPool(t, second.Addr())} // behind one address they would be one
	rival := harness.NewGoRedis(t, &redis.Options{Addr: first.Addr(), ReadTimeout: 30 * time.Second})

	const lease = 6000
	if got := poolSays(t, pools[0], "LOCK", "orders", "OWNER", "worker", "PX", lease); got != "OK" {
		t.Fatal(got)
	}
	waited := make(chan any, 1)
	go func() {
		waited <- rival.Do(context.Background(), "LOCK", "orders", "OWNER", "rival", "PX", lease, "BLOCK", 3*lease/2).Err()
	}()
	for beat := 0; ; beat++ {
		select {
		case err := <-waited:
			if err != redis.Nil {
				t.Fatalf("while the worker renewed its lock the rival was told %v", err)
			}
		case <-time.After(lease * time.Millisecond / 8):
			if got := poolSays(t, pools[beat%2], "RENEW", "orders", "OWNER", "worker", "PX", lease); got != int64(1) {
				t.Fatal("RENEW:", got)
			}
			continue
		}
		break
	}

	// The worker dies, its pools live on.
	got := make(chan any, 1)
	go func() {
		got <- rival.Do(context.Background(), "LOCK", "orders", "OWNER", "rival", "PX", lease, "BLOCK", 20000).Err()
	}()
	for {
		select {
		case err := <-got:
			if err != nil {
				t.Fatal("the lock of a worker that has died:", err)
			}
			return
		case <-time.After(50 * time.Millisecond):
			poolSays(t, pools[0], "PING")
			poolSays(t, pools[1], "PING")
		}
	}
}
