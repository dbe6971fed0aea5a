package locks

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// crowd has n connections take and give back one lock by turns through p until stop says so; pick chooses the verb. It returns
// how many grants there were; the test waits for its end.
func crowd(t *testing.T, p *harness.Proxy, n int, pick func() string, stop *atomic.Bool) *atomic.Int64 {
	t.Helper()
	var grants atomic.Int64
	wires := make([]*harness.Wire, n)
	for i := range wires {
		wires[i] = harness.Dial(t, p.Addr())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		harness.Together(n, func(i int) {
			for !stop.Load() {
				if got, err := wires[i].Try(pick(), "k", "BLOCK", "0"); err != nil || got != "+OK\r\n" {
					t.Errorf("locking: %q %v", got, err)
					return
				}
				grants.Add(1)
				if got, err := wires[i].Try("UNLOCK", "k"); err != nil || got != ":1\r\n" {
					t.Errorf("unlocking: %q %v", got, err)
					return
				}
			}
		})
	}()
	t.Cleanup(func() { stop.Store(true); <-ended })
	return &grants
}

// A lock that 128 clients of one proxy take by turns is handed on in one script, as Redis counts them.
func TestHandoffScripts(t *testing.T) {
	t.Parallel()
	enough := int64(500)
	if harness.Long() {
		enough = 2000
	}
	for name, verbs := range map[string][]string{"plain": {"LOCK"}, "write": {"WLOCK"}, "mixed": {"RLOCK", "WLOCK"}} {
		t.Run(name, func(t *testing.T) {
			s := testredis.Start(t)
			p := harness.StartProxy(t, s.URL())
			var stop atomic.Bool
			grants := crowd(t, p, 128, func() string { return verbs[rand.N(len(verbs))] }, &stop)
			harness.Eventually(t, "a start", func() bool { return grants.Load() > 512 })
			// The grants are counted around the scripts: a machine that stalls between two counts must not make these too many.
			from := grants.Load()
			before := scriptCalls(t, s)
			harness.Eventually(t, "more grants", func() bool { return grants.Load() > from+enough })
			ran := scriptCalls(t, s) - before
			count := grants.Load() - from
			stop.Store(true)
			per := float64(ran) / float64(count)
			t.Logf("128 waiters: %.3f scripts a hand-off (%d for %d)", per, ran, count)
			if per > 1.1 {
				t.Errorf("%.3f scripts a hand-off", per)
			}
		})
	}
}
