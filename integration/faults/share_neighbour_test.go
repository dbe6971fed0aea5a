package faults

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A user whose clients send far more than their share is answered no more than that, and the clients of another user are served beside them.
func TestNeighbourOfOneOverItsShare(t *testing.T) {
	const perSecond, clients, depth, enough = 3000, 8, 100, 10000
	server := testredis.Start(t, "--user greedy on >p ~* &* +@all", "--user calm on >p ~* &* +@all")
	server.Do(t, "SET", "small", "x")
	p := harness.StartProxy(t, server.URL(), "--max-commands-per-user", strconv.Itoa(perSecond))
	as := func(user string) *harness.Wire {
		w := harness.Dial(t, p.Addr())
		harness.Expect(t, w, "+OK\r\n", "AUTH", user, "p")
		return w
	}
	calm := as("calm")
	var alone, beside neighbour
	quiet := make(chan struct{})
	time.AfterFunc(time.Second, func() { close(quiet) })
	alone.get(t, calm, quiet)

	var answered, refused atomic.Int64
	var greedy sync.WaitGroup
	began := time.Now()
	pipeline := strings.Repeat("*2\r\n$3\r\nGET\r\n$5\r\nsmall\r\n", depth)
	for range clients {
		w := as("greedy")
		greedy.Go(func() {
			for refused.Load() < enough {
				for _, reply := range w.Pipeline(pipeline, depth) {
					switch {
					case reply == "$1\r\nx\r\n":
						answered.Add(1)
					case strings.HasPrefix(reply, "-ERR max number of commands a second per user reached"):
						refused.Add(1)
					default:
						t.Errorf("who is over the share gets %q", reply)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		greedy.Wait()
		close(done)
	}()
	beside.get(t, calm, done)
	took := time.Since(began)
	t.Logf("p50 and p99 of %d GETs alone: %v, %v; of %d beside %d clients over their share: %v, %v; of these %d were answered and %d refused in %v", len(alone.took),
		alone.at(50), alone.at(99), len(beside.took), clients, beside.at(50), beside.at(99), answered.Load(), refused.Load(), took)
	if most := perSecond * (took.Seconds() + 1); float64(answered.Load()) > most+clients {
		t.Errorf("%d commands were answered in %v", answered.Load(), took)
	}
	if p99 := beside.at(99); p99 > harness.Bound(10*time.Millisecond) {
		t.Errorf("p99 of a neighbour: %v", p99)
	}
}
