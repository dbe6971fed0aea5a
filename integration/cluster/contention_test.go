package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func clusterProxies(t *testing.T, tc *testredis.Cluster, n int, args ...string) (all []*harness.Proxy) {
	t.Helper()
	for range n {
		all = append(all, harness.StartClusterProxy(t, tc, args...))
	}
	return all
}

func numbered(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

// TestClusterLockCounts: the clients of 4 proxies count under 50 locks of all kinds, all exactly.
func TestClusterLockCounts(t *testing.T) {
	t.Parallel()
	total := int64(1000)
	if harness.Long() {
		total = 20000
	}
	tc := testredis.StartCluster(t, 3, 0)
	c := harness.NewContention(t, numbered("counted", 50), clusterProxies(t, tc, 4))
	began := time.Now()
	c.Start(10, total)
	c.Work.Wait()
	took := time.Since(began)
	j := c.Judge(0)
	t.Logf("%d added in %v; %v; others %v", c.Added.Load(), took.Round(time.Millisecond), j, c.Others)
	if c.Added.Load() < total || j.Told+j.Lost+j.Broke+len(c.Others) > 0 {
		t.Error("something went wrong with nothing wrong")
	}
}

// TestClusterLockCountsThroughFailovers is that while masters are failed over by order and one is killed, with locks that a
// replica has before they count: none is lost, none has two holders.
func TestClusterLockCountsThroughFailovers(t *testing.T) {
	t.Parallel()
	total, rounds := int64(2000), 1
	if harness.Long() {
		total, rounds = 20000, 3
	}
	tc := testredis.StartCluster(t, 3, 1)
	c := harness.NewContention(t, numbered("counted", 50), clusterProxies(t, tc, 4, "--lock-watchdog-timeout", "20s"), "REPLICAS", "1") // a busy machine takes seconds to fail over
	c.Start(10, harness.UntilHalt)
	fail := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range rounds {
		fail("failover", tc.Failover(tc.Servers[3]))
		fail("after it", tc.WaitOK())
		t.Logf("%d added after a failover", c.Added.Load())
		fail("failback", tc.Failover(tc.Servers[0]))
		fail("after it", tc.WaitOK())
		for _, pair := range [][2]int{{1, 4}, {4, 1}} { // there and back
			master, replica := tc.Servers[pair[0]], tc.Servers[pair[1]]
			killMaster(t, tc, master, replica)
			time.Sleep(time.Second) // its locks have no replica
			master.Restart()
			fail("after the kill", tc.WaitOK())
			t.Logf("%d added after a kill", c.Added.Load())
		}
	}
	deadline := time.Now().Add(3 * time.Minute)
	for c.Added.Load() < total && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	c.Halt()
	j := c.Judge(0)
	t.Logf("%d added; %v; others %v", c.Added.Load(), j, c.Others)
	if c.Added.Load() < total || j.Told+j.Lost > 0 {
		t.Error("too few, or locks that a replica had were lost")
	}
}

// killMaster ends a master, and has its replica take its place. The nodes are not to find out by themselves: if they were quick to take
// another for dead, a machine that stalls would have them replace those that live, with what a replica has not got yet.
func killMaster(t *testing.T, tc *testredis.Cluster, master, replica *testredis.Server) {
	t.Helper()
	master.Kill()
	if err := tc.Replace(replica); err != nil {
		t.Fatal(err)
	}
}

// keysOn are names of locks in the slots of one of three masters, as StartCluster deals them out.
func keysOn(master int, prefix string, n int) (all []string) {
	for i := 0; len(all) < n; i++ {
		if key := fmt.Sprint(prefix, i); slots.Slot([]byte(key))*3/slots.Slots == master {
			all = append(all, key)
		}
	}
	return all
}

// TestClusterReshardLocksAndData: slots move there and back under a mixed load of data and locks. No reply is wrong, no lock
// is lost, watched ones are held for longer than their lease, and who waits is woken: nobody polls.
func TestClusterReshardLocksAndData(t *testing.T) {
	t.Parallel()
	const lease = keptLease
	moves, least := 60, lease*3/2
	if harness.Long() {
		moves, least = 1000, 4*lease
	}
	tc := testredis.StartCluster(t, 3, 1)
	proxies := clusterProxies(t, tc, 3, "--wait-poll", "1m", "--lock-watchdog-timeout", lease.String())
	keys := keysOn(0, "counted", 10)
	c := harness.NewContention(t, append(keys, keysOn(2, "stays", 5)...), proxies)
	var workers []*worker
	for i := range 3 {
		workers = append(workers, newWorker(t, proxies[i].Addr(), i, 20))
	}
	var these []int
	for _, key := range keys {
		these = append(these, slots.Slot([]byte(key)))
	}
	for _, slot := range slotsUnderLoad(workers, moves) {
		if len(these) < moves && !slices.Contains(these, slot) {
			these = append(these, slot)
		}
	}
	held := holdWatched(t, proxies, keys)
	began := time.Now()
	c.Start(4, harness.UntilHalt)
	stop, finished := make(chan struct{}), make(chan error, 1)
	go reshardForHeld(tc, these, least, stop, finished)
	steps := work(t, workers, harness.Breath(2*time.Millisecond), stop)
	if err := <-finished; err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	c.Halt()
	j := c.Judge(0)
	t.Logf("%d slots there and back, and more, in %v; %d commands, %d added; %v; others %v; %s", len(these), took.Round(time.Millisecond),
		steps, c.Added.Load(), j, c.Others, moved(harness.Dial(t, proxies[0].Addr())))
	if j.Told+j.Lost+j.Broke+len(c.Others) > 0 || steps < 100 || c.Added.Load() < 100 {
		t.Error("clients noticed")
	}
	unharmed(t, workers)
	for _, h := range held {
		h.giveBack(t)
	}
}

// watchedHold is a lock that is held by a proxy's watchdog alone.
type watchedHold struct {
	s            *harness.Speaker
	key          string
	lock, unlock []string
}

// holdWatched takes watched locks of all kinds beside each key.
func holdWatched(t *testing.T, proxies []*harness.Proxy, keys []string) (all []*watchedHold) {
	t.Helper()
	for i, key := range keys {
		s, err := harness.NewSpeaker(t, proxies[i%len(proxies)].Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.W.Close)
		for k, words := range []string{"LOCK KEY|UNLOCK KEY", "LOCK KEY OWNER o EX 30|UNLOCK KEY OWNER o", "WLOCK KEY|UNLOCK KEY WRITE",
			"RLOCK KEY|UNLOCK KEY READ", "FAIRLOCK KEY FENCE|UNLOCK KEY"} {
			name := fmt.Sprintf("{%s}held%d", key, k)
			lock, unlock, _ := strings.Cut(strings.ReplaceAll(words, "KEY", name), "|")
			h := &watchedHold{s: s, key: name, lock: strings.Fields(lock), unlock: strings.Fields(unlock)}
			if got := s.Ask(h.lock...); got.Err != nil || harness.IsErrorFrame(got.Frame) || got.Frame == "_\r\n" {
				t.Fatalf("%q: %q %v", h.lock, got.Frame, got.Err)
			}
			all = append(all, h)
		}
	}
	return all
}

// giveBack ends it; it must be held still, and nothing have been told.
func (h *watchedHold) giveBack(t *testing.T) {
	t.Helper()
	if got := h.s.Ask(h.unlock...); got.Frame != ":1\r\n" || !h.s.Told(h.key).IsZero() {
		t.Errorf("%q: %q %v, told %v", h.unlock, got.Frame, got.Err, h.s.Told(h.key))
	}
}

// reshardForHeld moves slots from the first server to the second and back, again until least has gone by, and closes stop.
func reshardForHeld(tc *testredis.Cluster, these []int, least time.Duration, stop chan<- struct{}, done chan<- error) {
	defer close(stop)
	from, to := tc.Servers[0], tc.Servers[1]
	for began, n := time.Now(), 0; n < 2 || n%2 == 1 || time.Since(began) < least; n++ {
		for _, slot := range these {
			if err := tc.MoveSlot(slot, from, to); err != nil {
				done <- err
				return
			}
			time.Sleep(harness.Breath(20 * time.Millisecond))
		}
		// A slot that comes back before all nodes have heard of its leaving can end with nobody.
		if err := tc.WaitOK(); err != nil {
			done <- err
			return
		}
		from, to = to, from
	}
	done <- nil
}
