package lock

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// givingStore gives every lock to everybody, at once.
type givingStore struct{ lockstore.Store }

func (givingStore) Admit(context.Context, string, time.Duration) error { return nil }

func (givingStore) Acquire(_ context.Context, a *lockstore.Acquire) (lockstore.Acquired, error) {
	return lockstore.Acquired{Code: lockstore.Granted, Made: true, TTL: a.Lease, Sent: time.Now()}, nil
}

func (givingStore) Release(context.Context, *lockstore.Release) (lockstore.Released, error) {
	return lockstore.Released{Code: lockstore.Freed, Sent: time.Now()}, nil
}

// giving is an engine on a store that gives every lock to everybody. Nothing of it runs.
func giving() *Manager {
	return New(func(lockstore.Host) (lockstore.Store, lockstore.Rules) { return givingStore{}, lockstore.Rules{} },
		ManagerOptions{Logger: slog.New(slog.DiscardHandler)})
}

// What LOCK and UNLOCK cost the engine, and with the store and its Redis.
func BenchmarkPair(b *testing.B) {
	pairs := func(b *testing.B, m *Manager) {
		c := m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "test"})
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Lock(context.Background(), Request{Key: "orders:17"}); err != nil {
				b.Fatal(err)
			}
			if _, err := c.Unlock(context.Background(), UnlockRequest{Key: "orders:17"}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("engine", func(b *testing.B) { pairs(b, giving()) })
	b.Run("redis", func(b *testing.B) { pairs(b, engine(b, testredis.Start(b).URL(), ManagerOptions{})) })
}

// What a held lock takes of the engine's memory.
func BenchmarkHeld(b *testing.B) {
	const locks, each = 100_000, 100
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	for b.Loop() {
		before, m := heap(), giving()
		var c *Client
		for i := range locks {
			if i%each == 0 {
				c = m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "test"})
			}
			if _, err := c.Lock(context.Background(), Request{Key: fmt.Sprint("orders:", i)}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/locks, "B/lock")
		runtime.KeepAlive(m)
	}
}
