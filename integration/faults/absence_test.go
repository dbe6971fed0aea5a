package faults

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

type firstWord struct{ line, want string }

// firstWords are what a library may say first: some need a connection of the client's own.
var firstWords = []firstWord{
	{"GET k", "$-1\r\n"},
	{"MULTI", "+OK\r\n"},
	{"WATCH k", "+OK\r\n"},
	{"BLPOP queue 0.01", "*-1\r\n"},
	{"SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"},
}

// A client whose command comes while Redis is away for a moment waits for its reply, whether it has stayed or connects again as libraries do
// that have lost a connection, though nobody else is connected. docs/adr/0018 says why.
func TestCommandsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name   string
		rounds int
		start  func(t *testing.T) (*testredis.Server, *harness.Proxy)
	}{
		{"one Redis", 4, func(t *testing.T) (*testredis.Server, *harness.Proxy) {
			s := testredis.Start(t)
			return s, harness.StartProxy(t, s.URL(), "--log-level", "debug") // which tells of idle connections, too
		}},
		{"Sentinels", 4, func(t *testing.T) (*testredis.Server, *harness.Proxy) {
			g := testredis.StartGroup(t, testredis.GroupOptions{})
			return g.Nodes[0], harness.StartProxy(t, g.URL(), "--log-level", "debug")
		}},
		{"cluster", 2, func(t *testing.T) (*testredis.Server, *harness.Proxy) {
			c := testredis.StartCluster(t, 1, 0)
			return c.Servers[0], harness.StartClusterProxy(t, c, "--log-level", "debug")
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			redis, p := m.start(t)
			for round := range m.rounds {
				harness.Eventually(t, "Redis is there", func() bool {
					got, err := harness.Dial(t, p.Addr()).Try("GET", "k")
					return err == nil && got == "$-1\r\n"
				})
				wires := make([]*harness.Wire, len(firstWords))
				for i := range wires {
					wires[i] = harness.Dial(t, p.Addr())
					harness.Expect(t, wires[i], "+OK\r\n", "AUTH", "default", "any") // whoever has logged in needs not be let in again
					harness.Expect(t, wires[i], "$-1\r\n", "GET", "k")
				}
				stays := round%2 == 0
				losses := func() (n int) { // of the wires' connection: there is one for those who have not logged in, too
					for line := range strings.Lines(p.Log()) {
						if strings.Contains(line, "connection to Redis lost") && strings.Contains(line, "user=default") {
							n++
						}
					}
					return n
				}
				before, began := losses(), time.Now()
				redis.Kill()
				if stays { // what is sent before might have been run
					harness.Eventually(t, "the loss is noticed", func() bool { return losses() > before })
				} else {
					for _, w := range wires {
						w.Close()
					}
				}
				answered := make(chan error, 1)
				go func() {
					errs := make([]error, len(firstWords))
					harness.Together(len(errs), func(i int) {
						if stays {
							errs[i] = firstWords[i].say(wires[i], began)
						} else {
							errs[i] = firstWords[i].persist(t, p, began)
						}
					})
					answered <- errors.Join(errs...)
				}()
				time.Sleep(300 * time.Millisecond)
				redis.Restart()
				if err := <-answered; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// persist is a command of a library that tries four times, 10 ms apart: those are over long before Redis is back, unless it is kept waiting.
func (f firstWord) persist(t *testing.T, p *harness.Proxy, began time.Time) (err error) {
	for range 4 {
		if err = f.say(harness.Dial(t, p.Addr()), began); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// say says it once. A busy machine may take more than the second for which lockproxy has clients wait.
func (f firstWord) say(w *harness.Wire, began time.Time) error {
	got, err := w.Try(strings.Fields(f.line)...)
	if took := time.Since(began); got != f.want && took < 900*time.Millisecond {
		return fmt.Errorf("%s after %v: %q, %v", f.line, took, got, err)
	}
	return nil
}

// An AUTH that comes while a whole cluster restarts waits until one of its nodes can say who the client is.
func TestAuthWaitsWhileAClusterRestarts(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 2, 0)
	p := harness.StartClusterProxy(t, c)
	harness.Expect(t, harness.Dial(t, p.Addr()), "+OK\r\n", "AUTH", "default", "any")
	w, began := harness.Dial(t, p.Addr()), time.Now()
	for _, s := range c.Servers {
		s.Kill()
	}
	answered := make(chan error, 1)
	go func() { answered <- firstWord{"AUTH default any", "+OK\r\n"}.say(w, began) }()
	time.Sleep(300 * time.Millisecond)
	for _, s := range c.Servers {
		s.Restart()
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
}
