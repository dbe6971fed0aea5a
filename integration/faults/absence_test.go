package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A client that has lost its connection because Redis is away for a moment connects again at once, as libraries do. It waits for its
// reply then, though nobody else is connected. docs/adr/0018 says why.
func TestConnectAgainWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name   string
		rounds int
		start  func(t *testing.T) (*testredis.Server, *harness.Proxy)
	}{
		{"one Redis", 10, func(t *testing.T) (*testredis.Server, *harness.Proxy) {
			s := testredis.Start(t)
			return s, harness.StartProxy(t, s.URL())
		}},
		{"Sentinels", 10, func(t *testing.T) (*testredis.Server, *harness.Proxy) {
			g := testredis.StartGroup(t, testredis.GroupOptions{})
			return g.Nodes[0], harness.StartProxy(t, g.URL())
		}},
		{"cluster", 2, func(t *testing.T) (*testredis.Server, *harness.Proxy) {
			c := testredis.StartCluster(t, 1, 0)
			return c.Servers[0], harness.StartClusterProxy(t, c)
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			redis, p := m.start(t)
			for round := range m.rounds {
				w := harness.Dial(t, p.Addr())
				harness.Expect(t, w, "$-1\r\n", "GET", "k")
				began := time.Now()
				if round%2 == 0 {
					w.Close()
				}
				redis.Kill()
				w.Close()
				answered := make(chan error, 1)
				go func() { answered <- persist(t, p) }()
				time.Sleep(300 * time.Millisecond)
				redis.Restart()
				away := time.Since(began)
				switch err := <-answered; {
				case err == nil:
				case away < 800*time.Millisecond:
					t.Fatalf("Redis was away for %v: %v", away, err)
				default:
					t.Logf("the machine is too busy: Redis was away for %v", away)
				}
			}
		})
	}
}

// persist is a GET by a library that tries four times, 10 ms apart: those are over long before Redis is back, unless it is kept waiting.
func persist(t *testing.T, p *harness.Proxy) (err error) {
	for range 4 {
		w := harness.Dial(t, p.Addr())
		var got string
		if got, err = w.Try("GET", "k"); got == "$-1\r\n" {
			return nil
		}
		err = errors.Join(err, errors.New(got))
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
