package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// keptLease is for locks that must be kept: a machine that stalls for a few seconds loses none.
const keptLease = 8 * time.Second

// startFarProxy starts a lockproxy that reaches each server over a link of its own.
func startFarProxy(t *testing.T, tc *testredis.Cluster, args ...string) (*harness.Proxy, harness.Links) {
	t.Helper()
	var all harness.Links
	var table []string
	for _, s := range tc.Servers {
		l := testredis.NewProxy(t, s.Addr())
		all, table = append(all, l), append(table, s.Addr()+"="+l.Addr())
	}
	return harness.StartProxy(t, "redis-cluster://"+all[0].Addr(), append([]string{"--cluster-address-map", strings.Join(table, ",")}, args...)...), all
}

// TestClusterPartitionOfOneProxy: a lockproxy that is cut off from all nodes tells each of its holders of the loss before
// anybody else is granted the lock; who waits there waits on, and is woken after the healing.
func TestClusterPartitionOfOneProxy(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct{ cut, heal func(harness.Links) }{
		"frozen":  {harness.Links.Freeze, harness.Links.Thaw},
		"refused": {func(all harness.Links) { all.Each((*testredis.Proxy).Disable) }, func(all harness.Links) { all.Each((*testredis.Proxy).Enable) }},
		"reset": {harness.Links.Freeze, func(all harness.Links) {
			all.Each((*testredis.Proxy).ResetAll)
			all.Thaw()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPartition(t, how.cut, how.heal)
		})
	}
}

func testPartition(t *testing.T, cut, heal func(harness.Links)) {
	const lease = keptLease
	tc := testredis.StartCluster(t, 3, 0)
	far, ways := startFarProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	near := harness.StartClusterProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	var keys []string
	for i := range 3 {
		keys = append(keys, keysOn(i, "far", 4)...)
	}
	verbs := []string{"LOCK", "FAIRLOCK", "WLOCK", "RLOCK"}
	granted, woken := make(chan harness.HeardAt, len(keys)), make(chan harness.HeardAt, len(keys))
	holders, waiters, sleepers, releasers := map[string]*harness.Speaker{}, map[string]*harness.Speaker{}, map[string]*harness.Speaker{}, map[string]*harness.Speaker{}
	for i, key := range keys {
		verb := verbs[i%len(verbs)]
		holders[key], waiters[key] = harness.MustSpeak(t, far.Addr()), harness.MustSpeak(t, near.Addr())
		sleepers[key], releasers[key] = harness.MustSpeak(t, far.Addr()), harness.MustSpeak(t, near.Addr())
		harness.ExpectSpoken(t, holders[key], ok, verb, key)
		harness.ExpectSpoken(t, releasers[key], ok, verb, "near"+key)
		if verb == "RLOCK" {
			verb = "WLOCK" // a reader would not wait
		}
		go harness.AskLater(waiters[key], key, granted, verb, key, "BLOCK", "60000")
		go harness.AskLater(sleepers[key], key, woken, verb, "near"+key, "BLOCK", "60000")
	}
	time.Sleep(lease / 2) // renewed, all wait
	stalled := harness.WatchStalls()
	cut(ways)
	began := time.Now()
	var told, apart []time.Duration
	for range keys {
		g := <-granted
		if g.Frame != ok {
			t.Errorf("%s: a waiter at the other proxy heard %q %v", g.Key, g.Frame, g.Err)
			continue
		}
		holder := holders[g.Key]
		for end := time.Now().Add(lease); holder.Told(g.Key).IsZero() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		lost := holder.Told(g.Key)
		if lost.IsZero() {
			t.Errorf("%s: granted to another %v after the cut, its holder was told nothing", g.Key, g.At.Sub(began))
			continue
		}
		told, apart = append(told, lost.Sub(began)), append(apart, g.At.Sub(lost))
	}
	stall := stalled()
	slices.Sort(told)
	slices.Sort(apart)
	t.Logf("told after: %s; granted to another after that: %s", harness.Quantiles(told), harness.Quantiles(apart))
	if len(apart) > 0 && -apart[0] > harness.Busy()+stall {
		t.Errorf("a lock had two holders for %v", -apart[0])
	}
	for _, key := range keys[:1] {
		sent := time.Now()
		got := holders[key].Ask("UNLOCK", key)
		if !strings.HasPrefix(got.Frame, "-LOCKLOST") || got.At.Sub(sent) > harness.Patience {
			t.Errorf("UNLOCK %s while cut off: %q %v", key, got.Frame, got.Err)
		}
		t.Logf("UNLOCK while cut off: %q after %v", got.Frame, got.At.Sub(sent).Round(time.Millisecond))
	}
	heal(ways)
	began = time.Now()
	w := harness.MustSpeak(t, far.Addr())
	for _, key := range keys {
		harness.Eventually(t, "locks are to be had again", func() bool { return w.Ask("LOCK", "new"+key).Frame == ok })
	}
	t.Logf("all nodes serve locks again after %v", time.Since(began).Round(time.Millisecond))
	var wakes []time.Duration
	freed := map[string]time.Time{}
	for i, key := range keys {
		unlock := []string{"UNLOCK", "near" + key}
		if verbs[i%len(verbs)] == "RLOCK" {
			unlock = append(unlock, "READ")
		}
		harness.ExpectSpoken(t, releasers[key], yes, unlock...)
		freed[key] = time.Now()
	}
	for range keys {
		g := <-woken
		if g.Frame != ok {
			t.Errorf("%s: who waited through it heard %q %v", g.Key, g.Frame, g.Err)
		}
		wakes = append(wakes, max(0, g.At.Sub(freed[g.Key])))
	}
	slices.Sort(wakes)
	t.Logf("who waited through it was granted after: %s", harness.Quantiles(wakes))
}

// TestClusterBlackHole: a node that a lockproxy hears nothing of any more holds up nobody's locks at other nodes; what is asked
// of it is answered with an error in time, its locks' holders are told, and after the healing all is as before.
func TestClusterBlackHole(t *testing.T) {
	t.Parallel()
	const lease = keptLease
	tc := testredis.StartCluster(t, 3, 0)
	far, ways := startFarProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	dark, light := keysOn(1, "dark", 6), append(keysOn(0, "light", 3), keysOn(2, "light", 3)...)
	s := harness.MustSpeak(t, far.Addr())
	for _, key := range slices.Concat(keysOn(1, "helddark", 3), keysOn(0, "heldlight", 3), keysOn(2, "heldlight", 3)) {
		harness.ExpectSpoken(t, s, ok, "LOCK", "{"+key+"}")
	}
	c := harness.NewContention(t, light, []*harness.Proxy{far})
	c.Start(8, harness.UntilHalt)
	time.Sleep(lease / 2)
	var askers []*harness.Speaker // connected before, since a new client's HELLO may be for that very node
	for range 6 {
		askers = append(askers, harness.MustSpeak(t, far.Addr()))
	}
	ways[1].Latency(time.Hour)
	began := time.Now()
	answers := make(chan harness.HeardAt, 10)
	for i, args := range [][]string{{"LOCK", dark[0]}, {"LOCK", dark[1], "BLOCK", "1000"}, {"LOCK", dark[2], "PX", "5000"}, {"RLOCK", dark[3]}, {"FAIRLOCK", dark[4], "BLOCK", "1000"}} {
		go harness.AskLater(askers[i], fmt.Sprint(i, args), answers, args...)
	}
	for range 5 {
		a := <-answers
		took := a.At.Sub(began).Round(time.Millisecond)
		if t.Logf("%s: %q %v after %v", a.Key, a.Frame, a.Err, took); !harness.IsErrorFrame(a.Frame) || took > harness.Patience {
			t.Errorf("%s: %q %v after %v", a.Key, a.Frame, a.Err, took)
		}
	}
	var told []time.Duration
	for _, key := range keysOn(1, "helddark", 3) {
		harness.Eventually(t, "the holder of "+key+" is told", func() bool { return !s.Told("{" + key + "}").IsZero() })
		told = append(told, s.Told("{"+key+"}").Sub(began))
	}
	t.Logf("told after %v", told)
	ways[1].Clear()
	healed := time.Now()
	w := askers[5]
	for _, key := range dark {
		harness.Eventually(t, "locks are to be had again", func() bool { return w.Ask("LOCK", "new{"+key+"}").Frame == ok })
	}
	t.Logf("served again after %v", time.Since(healed).Round(time.Millisecond))
	c.Halt()
	j := c.Judge(0)
	t.Logf("locks of the other nodes: %v; others %v", j, c.Others)
	if j.Told+j.Lost+len(c.Others) > 0 {
		t.Error("locks of the other nodes were disturbed")
	}
	for _, key := range slices.Concat(keysOn(0, "heldlight", 3), keysOn(2, "heldlight", 3)) {
		harness.ExpectSpoken(t, s, yes, "UNLOCK", "{"+key+"}")
	}
}

// TestClusterResetsAndLatency: connections are reset in the middle of scripts, and one node answers late: every count is there,
// nobody is a second holder, and nothing is left locked.
func TestClusterResetsAndLatency(t *testing.T) {
	t.Parallel()
	many, clients, lease := 60, 4, 30*time.Second // longer than all the resets last: on a busy machine they come faster than connections
	if harness.Long() {
		many, clients, lease = 1200, 12, keptLease
	}
	tc := testredis.StartCluster(t, 3, 0)
	a, waysA := startFarProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	b, waysB := startFarProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	keys := numbered("counted", 12)
	c := harness.NewContention(t, keys, []*harness.Proxy{a, b})
	c.Start(clients, harness.UntilHalt)
	for resets := range many {
		time.Sleep(rand.N(100 * time.Millisecond))
		ways := [][]*testredis.Proxy{waysA, waysB}[rand.IntN(2)]
		if l := ways[rand.IntN(3)]; rand.IntN(4) > 0 {
			l.ResetAll()
		} else {
			l.CutAll()
		}
		if resets%20 == 0 {
			ways[rand.IntN(3)].Latency(rand.N(40 * time.Millisecond).Truncate(time.Millisecond))
		}
		if resets%20 == 10 {
			harness.Links(waysA).Thaw()
			harness.Links(waysB).Thaw()
		}
	}
	before := c.Added.Load()
	harness.Links(waysA).Thaw()
	harness.Links(waysB).Thaw()
	harness.Eventually(t, "all goes on", func() bool { return c.Added.Load() > before+100 })
	c.Halt()
	j := c.Judge(0)
	t.Logf("%d resets, %d added; %v; others %v", many, c.Added.Load(), j, c.Others)
	if j.Told+j.Lost > 0 {
		t.Error("a lock was lost")
	}
	w := harness.Dial(t, a.Addr())
	for _, key := range keys {
		harness.Eventually(t, key+" is free", func() bool { return strings.Contains(w.Do("LOCKINFO", key), "none") })
	}
}
