package faults

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// greedyUser sends pipelines of GETs far over its share.
type greedyUser struct {
	clients           []*harness.Wire
	answered, refused atomic.Int64
}

// send goes on until so many commands were refused, and then closes done.
func (g *greedyUser) send(t *testing.T, enough int64, done chan<- struct{}) {
	const depth = 100
	pipeline := strings.Repeat("*2\r\n$3\r\nGET\r\n$5\r\nsmall\r\n", depth)
	var all sync.WaitGroup
	for _, w := range g.clients {
		all.Go(func() {
			for g.refused.Load() < enough {
				for _, reply := range w.Pipeline(pipeline, depth) {
					switch {
					case reply == "$1\r\nx\r\n":
						g.answered.Add(1)
					case strings.HasPrefix(reply, "-ERR max number of commands a second per user reached"):
						g.refused.Add(1)
					default:
						t.Errorf("who is over the share gets %q", reply)
					}
				}
			}
		})
	}
	all.Wait()
	close(done)
}

// A user whose clients send far more than their share is answered no more than that, and the clients of another user are served beside
// them: their p99 is at most 1.5 times what it is alone, by the median of fifteen turns where the machine has nothing else to do.
func TestNeighbourOfOneOverItsShare(t *testing.T) {
	const perSecond, clients, enough = 3000, 8, 10000
	server := testredis.Start(t, "--user greedy on >p ~* &* +@all", "--user calm on >p ~* &* +@all")
	server.Do(t, "SET", "small", "x")
	p := harness.StartProxy(t, server.URL(), "--max-commands-per-user", strconv.Itoa(perSecond))
	as := func(user string) *harness.Wire {
		w := harness.Dial(t, p.Addr())
		harness.Expect(t, w, "+OK\r\n", "AUTH", user, "p")
		return w
	}
	calm := as("calm")
	var many []*harness.Wire
	for range clients {
		many = append(many, as("greedy"))
	}
	turns := 1
	if harness.Long() {
		turns = 15
	}
	var ratios []float64
	for range turns {
		var alone, beside neighbour
		quiet, done := make(chan struct{}), make(chan struct{})
		time.AfterFunc(time.Second, func() { close(quiet) })
		alone.get(t, calm, quiet)

		greedy, began := greedyUser{clients: many}, time.Now()
		go greedy.send(t, enough, done)
		beside.get(t, calm, done)
		took, answered := time.Since(began), greedy.answered.Load()
		ratios = append(ratios, float64(beside.at(99))/float64(alone.at(99)))
		t.Logf("p50 and p99 of %d GETs alone: %v, %v; of %d beside %d clients over their share: %v, %v; of these %d were answered and %d refused in %v", len(alone.took),
			alone.at(50), alone.at(99), len(beside.took), clients, beside.at(50), beside.at(99), answered, greedy.refused.Load(), took)
		if most := perSecond * (took.Seconds() + 1); float64(answered) > most+clients {
			t.Errorf("%d commands were answered in %v", answered, took)
		}
		if p99 := beside.at(99); p99 > harness.Bound(10*time.Millisecond) {
			t.Errorf("p99 of a neighbour: %v", p99)
		}
	}
	slices.Sort(ratios)
	t.Logf("p99 beside over p99 alone: %.2f", ratios)
	if median := ratios[turns/2]; harness.Long() && median > 1.5 {
		t.Errorf("p99 of a neighbour is %.2f times what it is alone", median)
	}
}
