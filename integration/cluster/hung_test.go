package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// hungFor is for how long a node does not answer.
func hungFor() time.Duration {
	if harness.Long() {
		return 30 * time.Second
	}
	return 2 * time.Second
}

// tagBelow is a hash tag whose slot is below that number.
func tagBelow(slot int) string {
	for i := 0; ; i++ {
		if tag := fmt.Sprintf("{%d}", i); slots.Slot([]byte(tag)) < slot {
			return tag
		}
	}
}

// needless are what clients do that needs no certain node, or not the last one. Each gets a connection of its own, and says what is wrong.
func needless(addr string) map[string]func(w *harness.Wire) error {
	tag := tagBelow(5000)
	want := func(w *harness.Wire, begins string, args ...string) error {
		got, err := w.Try(args...)
		if err == nil && !strings.HasPrefix(got, begins) {
			err = fmt.Errorf("%q: %q", args, got)
		}
		return err
	}
	always := func(begins string, args ...string) func(*harness.Wire) error {
		return func(w *harness.Wire) error { return want(w, begins, args...) }
	}
	fresh := func(do func(w *harness.Wire) error) func(*harness.Wire) error {
		return func(w *harness.Wire) error {
			c, err := harness.Connect(addr)
			if err != nil {
				return err
			}
			defer c.Close()
			return do(harness.NewWire(w.T, c))
		}
	}
	transaction := func(w *harness.Wire) error {
		for _, call := range [][]string{{"+OK", "MULTI"}, {"+QUEUED", "SET", tag + "t", "1"}, {"*1\r\n+OK", "EXEC"}} {
			if err := want(w, call[0], call[1:]...); err != nil {
				return err
			}
		}
		return nil
	}
	return map[string]func(*harness.Wire) error{
		"GET":             always("$", "GET", tag+"g"),
		"SET":             always("+OK", "SET", tag+"g", "v"),
		"PING":            always("+PONG", "PING"),
		"INFO":            always("$", "INFO"),
		"PUBLISH":         always(":", "PUBLISH", "news", "v"),
		"FUNCTION STATS":  always("*", "FUNCTION", "STATS"),
		"LOCKINFO":        always("*", "LOCKINFO", tag+"lock"),
		"LOCKPROXY NODES": always("*", "LOCKPROXY", "NODES"),
		"MULTI":           transaction,
		"LOCK": func(w *harness.Wire) error {
			key := fmt.Sprint(tag, w.C.LocalAddr())
			if err := want(w, "+OK", "LOCK", key); err != nil {
				return err
			}
			return want(w, ":1", "UNLOCK", key)
		},
		"a new client's HELLO":     fresh(always("%", "HELLO", "3")),
		"a new client's AUTH":      fresh(always("%", "HELLO", "3", "AUTH", "default", "any")),
		"a new client's MULTI":     fresh(transaction),
		"a new client's SUBSCRIBE": fresh(always("*3\r\n$9\r\nsubscribe", "SUBSCRIBE", "news")),
		"a new client's INFO":      fresh(always("$", "INFO", "server")),
	}
}

// What does not need a node that hangs does not wait for it, long before the others say that it has failed: within the time it hangs each of
// these is answered, by those that had called before and by new clients. The long form prints how long they took before and meanwhile.
func TestClusterHungNodeUnderLoad(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	for _, s := range tc.Servers {
		s.Do(t, "CONFIG", "SET", "cluster-node-timeout", 120_000)
	}
	p := harness.StartClusterProxy(t, tc, "--operators", "default")
	const each = 3 // clients of each kind
	calls := needless(p.Addr())
	before := measureCalls(t, p.Addr(), calls, each, hungFor(), func() {})
	hung := measureCalls(t, p.Addr(), calls, each, hungFor(), func() {
		tc.Servers[2].Stop()
		t.Cleanup(tc.Servers[2].Cont)
	})
	for range 6 { // at what were all nodes
		if err := calls["PUBLISH"](harness.Dial(t, p.Addr())); err != nil {
			t.Error(err)
		}
	}
	tc.Servers[2].Cont()
	all := [2][]time.Duration{}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		a, b := before[name], hung[name]
		if len(b) <= each && name != "PUBLISH" { // the node may have the first of each client
			t.Errorf("%s: only %d answers while a node hangs", name, len(b))
			continue
		}
		all[0], all[1] = append(all[0], a...), append(all[1], b...)
		t.Logf("%-25s %s; hung %s", name, spread(a), spread(b))
	}
	t.Logf("%-25s %s; hung %s", "all", spread(all[0]), spread(all[1]))
	if harness.Long() && quantile(all[1], 99) > 2*quantile(all[0], 99) {
		t.Error("p99 is more than twice what it was")
	}
}

// measureCalls has so many clients make each call again and again for that time, after start, and returns how long those took that were
// answered. A call that is still waited for at the end, as a PUBLISH is whose node had got it when it began to hang, is not counted.
func measureCalls(t *testing.T, addr string, calls map[string]func(*harness.Wire) error, each int, d time.Duration, start func()) map[string][]time.Duration {
	t.Helper()
	m := &measured{took: map[string][]time.Duration{}}
	var wires []*harness.Wire
	var running sync.WaitGroup
	begin := make(chan struct{})
	for name, call := range calls {
		for range each {
			w := harness.Dial(t, addr)
			if err := call(w); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			wires = append(wires, w)
			running.Go(func() {
				<-begin
				m.repeat(name, func() error { return call(w) })
			})
		}
	}
	start()
	close(begin)
	time.Sleep(d)
	m.over.Store(true)
	time.Sleep(200 * time.Millisecond)
	for _, w := range wires {
		w.Close()
	}
	running.Wait()
	for _, err := range m.wrong {
		t.Error(err)
	}
	return m.took
}

// measured are the calls of measureCalls.
type measured struct {
	over atomic.Bool

	mu    sync.Mutex // guards all below
	took  map[string][]time.Duration
	wrong []error
}

// repeat makes a call until it is over.
func (m *measured) repeat(name string, call func() error) {
	for !m.over.Load() {
		began := time.Now()
		err := call()
		took := time.Since(began)
		if m.over.Load() {
			return
		}
		m.mu.Lock()
		m.took[name] = append(m.took[name], took)
		if err != nil {
			m.wrong = append(m.wrong, fmt.Errorf("%s: %w", name, err))
		}
		m.mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// quantile sorts all, and returns what so many hundredths of it do not exceed.
func quantile(all []time.Duration, hundredths int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*hundredths/100]
}

// spread says how all are spread.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	p50, p99 := quantile(all, 50), quantile(all, 99)
	return fmt.Sprintf("%6d calls, p50 %8v, p99 %8v, max %8v", len(all), p50.Round(time.Microsecond), p99.Round(time.Microsecond), all[len(all)-1].Round(time.Microsecond))
}
