package lock

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/held"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// passingStore is a givingStore that hands locks on, and renews them.
type passingStore struct{ givingStore }

func (passingStore) Release(_ context.Context, r *lockstore.Release) (lockstore.Released, error) {
	done := lockstore.Released{Code: lockstore.Freed, Sent: time.Now()}
	if r.Next != nil {
		for _, a := range r.Next.Asks {
			done.Given = append(done.Given, lockstore.Acquired{Code: lockstore.Granted, Made: true, TTL: a.Lease, Sent: done.Sent})
		}
	}
	return done, nil
}

func (passingStore) Renew(_ context.Context, r lockstore.Renewal) ([]int64, error) {
	out := make([]int64, len(r.Holds))
	for i := range out {
		out[i] = lockstore.StillThere
	}
	return out, nil
}

func (passingStore) Location(string) lockstore.Location { return lockstore.Location{AtOnce: 1} }

func (passingStore) Subscribe(string, chan<- struct{}) lockstore.Subscription {
	return lockstore.Subscription{Close: func() {},
		Ready: func(context.Context, <-chan time.Time) error { return nil }}
}

// oneLockStore has one lock, which one owner can have at a time.
type oneLockStore struct {
	passingStore
	mu    sync.Mutex
	taken bool
	wakes chan<- struct{}
}

func (s *oneLockStore) Acquire(ctx context.Context, a *lockstore.Acquire) (lockstore.Acquired, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken {
		return lockstore.Acquired{Code: lockstore.Refused, TTL: a.Lease, Sent: time.Now()}, nil
	}
	s.taken = true
	return s.passingStore.Acquire(ctx, a)
}

func (s *oneLockStore) Release(ctx context.Context, r *lockstore.Release) (lockstore.Released, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken = r.Next != nil; !s.taken && s.wakes != nil {
		retry.Wake(s.wakes)
	}
	return s.passingStore.Release(ctx, r)
}

func (s *oneLockStore) Subscribe(name string, wake chan<- struct{}) lockstore.Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakes = wake
	return s.passingStore.Subscribe(name, wake)
}

// passing is an engine on such a store. Nothing of it runs.
func passing(s lockstore.Store) *Manager {
	return New(func(lockstore.Host) (lockstore.Store, lockstore.Rules) { return s, lockstore.Rules{} },
		ManagerOptions{Logger: slog.New(slog.DiscardHandler), Events: events.New(nil, "")})
}

func lockUnlock(b *testing.B, c *Client, r Request) {
	if _, err := c.Lock(context.Background(), r); err != nil {
		b.Error(err)
	}
	if r.Blocks {
		runtime.Gosched() // others come to stand in line
	}
	if _, err := c.Unlock(context.Background(), UnlockRequest{Key: r.Key}); err != nil {
		b.Error(err)
	}
}

// measured runs run, and reports for how long the engine's mutexes are held.
func measured(b *testing.B, m *Manager, run func()) {
	held.Measure(b, run, held.Mutex{Name: "holds.mu", Of: &m.holds.mu}, held.Mutex{Name: "lines.mu", Of: &m.lines.mu},
		held.Mutex{Name: "watchdog.mu", Of: &m.watchdog.mu})
}

// BenchmarkMutexesOfPairs is how long LOCK and UNLOCK, of locks that nobody else wants, hold the engine's mutexes.
func BenchmarkMutexesOfPairs(b *testing.B) {
	m := passing(passingStore{})
	c := m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "test"})
	measured(b, m, func() {
		for range b.N {
			lockUnlock(b, c, Request{Key: "orders:17"})
		}
	})
}

// BenchmarkPairsEverywhere is the same on all processors, each with a lock of its own.
func BenchmarkPairsEverywhere(b *testing.B) {
	m := passing(passingStore{})
	b.RunParallel(func(p *testing.PB) {
		n := clientNumbers.Add(1)
		c := m.NewClient(ClientInfo{ID: n, Addr: "test"})
		r := Request{Key: fmt.Sprint("orders:", n)}
		for p.Next() {
			lockUnlock(b, c, r)
		}
	})
}

// BenchmarkMutexesOfHandoffs is the same for a lock that eight clients of this proxy want, time and again.
func BenchmarkMutexesOfHandoffs(b *testing.B) {
	m := passing(&oneLockStore{})
	var left atomic.Int64
	left.Store(int64(b.N))
	measured(b, m, func() {
		var clients sync.WaitGroup
		for range 8 {
			c := m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "test"})
			clients.Go(func() {
				for left.Add(-1) >= 0 {
					lockUnlock(b, c, Request{Key: "orders:17", Blocks: true})
				}
			})
		}
		clients.Wait()
	})
	b.ReportMetric(float64(m.handedOff.Value())/float64(b.N), "handed-on/op")
}

// BenchmarkMutexesOfRenewals is the same for one of 100,000 holds that the watchdog is to visit at once, as after the
// connection to Redis was lost.
func BenchmarkMutexesOfRenewals(b *testing.B) {
	const locks, each = 100_000, 100
	m := passing(passingStore{})
	var c *Client
	for i := range locks {
		if i%each == 0 {
			c = m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "test"})
		}
		if _, err := c.Lock(context.Background(), Request{Key: fmt.Sprint("orders:", i)}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	longest := waits(m.holds, func() {
		measured(b, m, func() {
			for done := 0; done < b.N; done += locks {
				m.holds.recheckIf(func(_, _ string) string { return reasonGone })
				m.watchdog.startDue()
				m.tasks.Wait()
			}
		})
	})
	b.ReportMetric(float64(longest.Microseconds()), "longest-wait-µs")
}

// waits is the longest wait for holds.mu while run runs, of one that wants it all the time.
func waits(hs *holds, run func()) (longest time.Duration) {
	var over atomic.Bool
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for !over.Load() {
			began := time.Now()
			hs.count()
			longest = max(longest, time.Since(began))
			runtime.Gosched()
		}
	})
	run()
	over.Store(true)
	waiting.Wait()
	return longest
}
