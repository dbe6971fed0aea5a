package quorum

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// MULTILOCKs that name their keys in opposite orders, through two proxies, do not wait for each other for ever; nor do those
// with one node away.
func TestQuorumMultiLocks(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 5)
	second, _ := q.another()
	q.nodes[4].Kill()
	const clients, times = 6, 6
	var mu sync.Mutex
	inside := ""
	harness.Together(clients, func(i int) {
		w := harness.Dial(t, []*harness.Proxy{q.p, second}[i%2].Addr())
		keys := []string{"a", "b", "c"}
		if i%3 > 0 {
			slices.Reverse(keys)
		}
		for range times {
			if got, err := w.TryQuorum(append([]string{"MULTILOCK", "3"}, append(keys, "BLOCK", "0")...)...); err != nil || got != "+OK\r\n" {
				t.Errorf("%q %v", got, err)
				return
			}
			mu.Lock()
			if inside != "" {
				t.Errorf("%s and %d at once", inside, i)
			}
			inside = fmt.Sprint(i)
			mu.Unlock()
			mu.Lock()
			inside = ""
			mu.Unlock()
			if !frees(t, w, ":3\r\n", append([]string{"MULTIUNLOCK", "3"}, keys...)...) {
				return
			}
		}
	})
	harness.Eventually(t, "nothing is left", func() bool {
		return q.holding("a", 4) == nil && q.holding("b", 4) == nil && q.holding("c", 4) == nil
	})
}

// On one proxy those who wait have the lock in the order in which they asked, with FAIRLOCK and with LOCK; LOCKLIST shows them.
func TestQuorumOrderOnOneProxy(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	for _, verb := range []string{"FAIRLOCK", "LOCK"} {
		for n := 0; !servedInOrder(t, q, verb, fmt.Sprint("k", n)); n++ {
			if n == 5 {
				t.Fatal("the nodes are always late")
			}
		}
	}
}

// servedInOrder says false when one of those who wait was told NOQUORUM, as the nodes of a busy machine may be late: that shows nothing.
func servedInOrder(t *testing.T, q *quorum, verb, key string) bool {
	first, watch := harness.Dial(t, q.p.Addr()), harness.Dial(t, q.p.Addr())
	wants(t, first, "+OK", verb, key)
	var order []int
	var mu sync.Mutex
	var all sync.WaitGroup
	var late atomic.Bool
	list := func() []map[string]any {
		return harness.Objects(t, harness.Decode(t, watch.Do("LOCKLIST", "MATCH", key)))
	}
	const waiters = 6
	for i := range waiters {
		w := harness.Dial(t, q.p.Addr())
		w.Send(verb, key, "BLOCK", "0")
		all.Go(func() {
			got, err := w.TryRead(2 * harness.Patience)
			if strings.HasPrefix(got, "-NOQUORUM ") {
				late.Store(true)
				return
			}
			if err != nil || got != "+OK\r\n" {
				t.Errorf("%q %v", got, err)
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if got, err := w.TryQuorum("UNLOCK", key); err != nil || got != ":1\r\n" {
				t.Errorf("%q %v", got, err)
			}
		})
		harness.Eventually(t, "it waits", func() bool {
			waiting := 0
			for _, e := range list() {
				if e["state"] == "waiting" {
					waiting++
				}
			}
			return waiting == i+1 || late.Load()
		})
	}
	held := list()
	if !late.Load() && (len(held) != waiters+1 || held[0]["state"] != "held" || held[0]["kind"] != "plain" || fmt.Sprint(held[0]["holds"]) != "1") {
		t.Errorf("%v", held)
	}
	wants(t, first, ":1", "UNLOCK", key)
	all.Wait()
	if late.Load() {
		return false
	}
	if !slices.IsSorted(order) {
		t.Errorf("%s: %v", verb, order)
	}
	return true
}

// With one node swallowing everything a majority is as quick as with all of them, for a connection's locks and for those of owners.
func TestQuorumPace(t *testing.T) {
	t.Parallel()
	const timeout = 800 * time.Millisecond
	q := startQuorum(t, 5, "--quorum-node-timeout", timeout.String())
	w := harness.Dial(t, q.p.Addr())
	measure := func(what string, options ...string) time.Duration {
		var took []time.Duration
		for i := range 200 {
			key := fmt.Sprint(what, i)
			began := time.Now()
			lock, unlock := append([]string{"LOCK", key}, options...), []string{"UNLOCK", key}
			if len(options) > 0 {
				id := fmt.Sprint("id", i)
				lock, unlock = append(lock, "OWNER", id), append(unlock, "OWNER", id)
			}
			wants(t, w, "+OK", lock...)
			wants(t, w, ":1", unlock...)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("%-28s LOCK and UNLOCK: p50 %v, p99 %v, longest %v", what, took[100].Round(time.Microsecond), took[198].Round(time.Microsecond), took[199].Round(time.Microsecond))
		return took[len(took)/2]
	}
	measure("well")
	measure("well, owners", "PX", "4000")
	q.links[1].BlackHole()
	for _, d := range []time.Duration{measure("one swallows"), measure("one swallows, owners", "PX", "4000")} {
		if d > timeout/2 {
			t.Errorf("%v is the node's time-out, not the others' answer", d)
		}
	}
	q.links[1].Clear()
	var all sync.WaitGroup
	began := time.Now()
	const clients, times = 16, 40
	for c := range clients {
		w := harness.Dial(t, q.p.Addr())
		all.Go(func() {
			for i := range times {
				for _, verb := range []string{"LOCK", "UNLOCK"} {
					if got, err := w.TryQuorum(verb, fmt.Sprint("c", c, "-", i)); err != nil || strings.HasPrefix(got, "-") {
						t.Errorf("%q %v", got, err)
					}
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d clients: %.0f pairs a second", clients, clients*times/time.Since(began).Seconds())
}
