package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// worker is one client under load: it alone writes the keys of its name, so that it knows what is there.
type worker struct {
	w      *harness.Wire
	name   string
	values map[string]int
	tags   []string
	lost   int // commands of which nobody knows what became
	failed int // commands that did not run
}

// newWorker has so many keys in as many slots.
func newWorker(t testing.TB, addr string, i, keys int) *worker {
	k := &worker{w: harness.Dial(t, addr), name: fmt.Sprint("w", i), values: map[string]int{}}
	for n := range keys {
		k.tags = append(k.tags, fmt.Sprintf("{%d-%d}", i, n))
	}
	return k
}

func (k *worker) key() string { return k.tags[rand.IntN(len(k.tags))] + k.name }

// step runs something at random and says what is wrong with the reply.
func (k *worker) step() error {
	a, b, c := k.key(), k.key(), k.key()
	n := rand.IntN(1000)
	switch rand.IntN(6) {
	case 0:
		return k.want([]string{"SET", a, fmt.Sprint(n)}, "+OK\r\n", func() { k.values[a] = n })
	case 1:
		return k.want([]string{"INCRBY", a, "3"}, fmt.Sprintf(":%d\r\n", k.values[a]+3), func() { k.values[a] += 3 })
	case 2:
		return k.want([]string{"MSET", a, "1", b, "2", c, "3"}, "+OK\r\n", func() { k.values[a] = 1; k.values[b] = 2; k.values[c] = 3 })
	case 3:
		return k.want([]string{"MGET", a, b, c}, "*3\r\n"+k.bulk(a)+k.bulk(b)+k.bulk(c), func() {})
	case 4:
		return k.want([]string{"EVAL", "return redis.call('INCRBY', KEYS[1], ARGV[1])", "1", a, "5"}, fmt.Sprintf(":%d\r\n", k.values[a]+5), func() { k.values[a] += 5 })
	}
	return k.transact(a)
}

func (k *worker) bulk(key string) string {
	n, there := k.values[key]
	if !there {
		return "$-1\r\n"
	}
	text := fmt.Sprint(n)
	return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
}

// transact increments twice in a transaction. One that is aborted because its slot has moved is sent again.
func (k *worker) transact(key string) error {
	replies, err := k.w.TryPipeline([][]string{{"MULTI"}, {"INCR", key}, {"INCRBY", key, "2"}, {"EXEC"}})
	if err != nil {
		return err
	}
	if strings.HasPrefix(replies[3], "-EXECABORT ") && strings.Contains(replies[1]+replies[2]+replies[3], "slot") {
		return k.transact(key)
	}
	return k.judge([]string{"EXEC", key}, replies[3], fmt.Sprintf("*2\r\n:%d\r\n:%d\r\n", k.values[key]+1, k.values[key]+3), func() { k.values[key] += 3 })
}

func (k *worker) want(args []string, want string, done func()) error {
	got, err := k.w.Try(args...)
	if err != nil {
		return err
	}
	return k.judge(args, got, want, done)
}

func (k *worker) judge(args []string, got, want string, done func()) error {
	switch {
	case got == want:
		done()
		return nil
	case strings.Contains(got, "outcome of this command is unknown"):
		k.lost++
		return nil
	case strings.HasPrefix(got, "-ERR upstream unavailable") || strings.HasPrefix(got, "-CLUSTERDOWN"):
		k.failed++
		return nil
	}
	return fmt.Errorf("%q: %q, want %q", args, got, want)
}

// Slots move under a mixed load, and nobody notices.
func TestClusterReshardUnderLoad(t *testing.T) {
	t.Parallel()
	moves, keys := 40, 30
	if harness.Long() {
		moves, keys = 1000, 600
	}
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	workers := make([]*worker, 6)
	for i := range workers {
		workers[i] = newWorker(t, p.Addr(), i, keys)
	}
	stop := make(chan struct{})
	reshard := make(chan error, 1)
	go moveAndBack(tc, slotsUnderLoad(workers, moves), stop, reshard)
	steps := work(t, workers, 0, stop)
	if err := <-reshard; err != nil {
		t.Fatal(err)
	}
	unharmed(t, workers)
	t.Logf("%d slots there and back, %d commands; %s", moves, steps, moved(harness.Dial(t, p.Addr())))
	if steps < 100 {
		t.Error("there was no load")
	}
}

// work has the workers at work, with a pause after each step, until stop is closed; it returns how many steps there were.
func work(t *testing.T, workers []*worker, pause time.Duration, stop <-chan struct{}) int64 {
	var steps atomic.Int64
	harness.Together(len(workers), func(i int) {
		for k := workers[i]; ; steps.Add(1) {
			select {
			case <-stop:
				return
			case <-time.After(pause):
			}
			if err := k.step(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return steps.Load()
}

// unharmed says what went wrong for the workers, and whether all that they have written is there.
func unharmed(t *testing.T, workers []*worker) {
	t.Helper()
	for _, k := range workers {
		if k.lost+k.failed > 0 {
			t.Errorf("%s: %d lost, %d failed", k.name, k.lost, k.failed)
		}
		for key := range k.values {
			if got := k.w.Do("GET", key); got != k.bulk(key) {
				t.Errorf("%s: %q, want %q", key, got, k.bulk(key))
			}
		}
	}
}

// moved is what INFO says of redirects.
func moved(w *harness.Wire) string {
	var lines []string
	for line := range strings.SplitSeq(w.Do("INFO", "lockproxy"), "\r\n") {
		if strings.HasPrefix(line, "lockproxy_cluster_") {
			lines = append(lines, strings.TrimPrefix(line, "lockproxy_cluster_"))
		}
	}
	return strings.Join(lines, " ")
}

// slotsUnderLoad are slots of the first of three servers: those the workers have keys in, and others up to so many.
func slotsUnderLoad(workers []*worker, most int) (all []int) {
	seen := map[int]bool{}
	add := func(slot int) {
		if slot < slots.Slots/3 && !seen[slot] && len(all) < most {
			seen[slot] = true
			all = append(all, slot)
		}
	}
	for _, k := range workers {
		for _, tag := range k.tags {
			add(slots.Slot([]byte(tag)))
		}
	}
	for slot := range slots.Slots {
		add(slot)
	}
	return all
}

// moveAndBack migrates slots of the first server to the second and back, and closes stop.
func moveAndBack(tc *testredis.Cluster, these []int, stop chan<- struct{}, done chan<- error) {
	defer close(stop)
	from, to := tc.Servers[0], tc.Servers[1]
	for range 2 {
		for _, slot := range these {
			if err := tc.MoveSlot(slot, from, to); err != nil {
				done <- err
				return
			}
		}
		from, to = to, from
	}
	done <- nil
}

// A master dies: its replica takes over, and clients go on by themselves.
func TestClusterMasterKilled(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1, testredis.QuickFailover)
	p := harness.StartClusterProxy(t, tc)
	workers := make([]*worker, 4)
	for i := range workers {
		workers[i] = newWorker(t, p.Addr(), i, 40)
	}
	harness.Expect(t, workers[0].w, "+OK\r\n", "SET", "counted", "1")
	harness.Expect(t, workers[0].w, ":1\r\n", "WAIT", "1", "10000")
	victim := tc.Servers[1]
	slotKey := keyAt(t, victim)
	stop := make(chan struct{})
	var longest atomic.Int64
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		harness.Together(len(workers), func(i int) {
			for k := workers[i]; ; {
				select {
				case <-stop:
					return
				case <-time.After(harness.Breath(2 * time.Millisecond)):
				}
				began := time.Now()
				lost := k.lost
				err := k.step()
				if took := int64(time.Since(began)); took > longest.Load() {
					longest.Store(took)
				}
				// What was acknowledged and not replicated is lost with the master: values are not judged from then on.
				switch {
				case err == nil && k.lost == lost:
					continue
				case err != nil && strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), `: "-`):
				case err != nil && !strings.Contains(err.Error(), "want"): // closed
					if err := k.reconnect(p.Addr()); err != nil {
						t.Error(err)
						return
					}
				case err != nil:
					t.Error(err)
					return
				}
				k.forget()
			}
		})
	}()
	time.Sleep(time.Second)
	elected := make(chan time.Duration, 1)
	replica := harness.Dial(t, tc.Servers[4].Addr())
	killed := time.Now()
	victim.Kill()
	go func() {
		for role := ""; !strings.Contains(role, "\r\nmaster\r\n") && time.Since(killed) < harness.Patience; role, _ = replica.Try("ROLE") {
			time.Sleep(5 * time.Millisecond)
		}
		elected <- time.Since(killed)
	}()
	w := harness.Dial(t, p.Addr())
	harness.Eventually(t, "a write to the dead master's slots", func() bool {
		got, err := w.Try("SET", slotKey, "v")
		if err != nil { // closed, as that master has closed its clients
			w.Close()
			w = harness.Dial(t, p.Addr())
		}
		return got == "+OK\r\n"
	})
	outage, election := time.Since(killed), <-elected
	if outage > election+harness.Bound(5*time.Second) {
		t.Errorf("a write took %v, the election %v", outage, election)
	}
	time.Sleep(time.Second)
	close(stop)
	<-finished
	lost, failed := 0, 0
	for _, k := range workers {
		lost, failed = lost+k.lost, failed+k.failed
	}
	t.Logf("writes again after %v, a new master after %v, the slowest command %v, %d lost, %d failed; %s", outage, election, time.Duration(longest.Load()), lost, failed, moved(w))
}

// reconnect is for a client whose connection was closed.
func (k *worker) reconnect(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		k.w.C.Close()
		k.w = harness.NewWire(k.w.T, c)
		k.lost++
	}
	return err
}

// forget begins with no keys.
func (k *worker) forget() {
	k.values = map[string]int{}
	for _, tag := range k.tags {
		_, _ = k.w.Try("DEL", tag+k.name)
	}
}

// keyAt is a key of a slot that server has.
func keyAt(t *testing.T, server *testredis.Server) string {
	t.Helper()
	w := harness.Dial(t, server.Addr())
	for i := range 1000 {
		if key := fmt.Sprint("probe", i); w.Do("SET", key, "x") == "+OK\r\n" {
			return key
		}
	}
	t.Fatal("no key of its")
	return ""
}
