package redisson

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// A wake-up is by message when it is soon enough: every timer of either side is seconds away, only the refresh of the fair
// queue may come within three. The machine may be busy, and Java cold, so that some are late; a quarter of them is not.
const (
	prompt  = 100 * time.Millisecond // the best quarter of each test's, where there are processors for all
	overdue = 4 * time.Second        // all of them
)

// wakeups are how long wake-ups took, by what woke, and by test.
type wakeups struct {
	mu         *sync.Mutex
	what, test map[string][]time.Duration
}

func newWakeups() wakeups {
	return wakeups{
		mu: new(sync.Mutex), what: map[string][]time.Duration{}, test: map[string][]time.Duration{},
	}
}

// woke notes how long a wake-up took, and has the test demand that they came by message.
func (e *env) woke(t testing.TB, what string, took time.Duration) {
	t.Helper()
	if took > overdue {
		t.Errorf("%s: woken after %v: not by a message", what, took)
	}
	w := &e.wakes
	w.mu.Lock()
	defer w.mu.Unlock()
	w.what[what] = append(w.what[what], took)
	if w.test[t.Name()] == nil {
		t.Cleanup(func() { e.demandPrompt(t) })
	}
	w.test[t.Name()] = append(w.test[t.Name()], took)
}

func (e *env) demandPrompt(t testing.TB) {
	e.wakes.mu.Lock()
	defer e.wakes.mu.Unlock()
	all := slices.Sorted(slices.Values(e.wakes.test[t.Name()]))
	if all[(len(all)-1)/4] > time.Duration(float64(prompt)*crowding()) {
		t.Errorf("woken after %v: not by messages", all)
	}
}

// crowding is how many want each processor, at most ten and one at least.
func crowding() float64 {
	load := 1.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load)
	}
	return min(max(load/float64(runtime.NumCPU()), 1), 10)
}

// spread is what is said of many durations.
type spread struct {
	n                 int
	median, p99, most time.Duration
}

func summary(all []time.Duration) spread {
	all = slices.Sorted(slices.Values(all))
	n := len(all)
	return spread{n, all[(n-1)/2], all[(n*99+99)/100-1], all[n-1]}
}

func (s spread) String() string {
	return fmt.Sprintf("%s, %s (%d)", milliseconds(s.median), milliseconds(s.most), s.n)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// measured tells a figure.
func (e *env) measured(t testing.TB, what, figure string) {
	t.Helper()
	t.Logf("Redisson %s: %s: %s", e.version, what, figure)
}
