package nodes

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

// busy is by how much a lockproxy, or a test, may be late because the machine has other things to do; the long forms have it for
// themselves.
func busy() time.Duration {
	if longForm() {
		return 0
	}
	return time.Second
}

// links are one lockproxy's ways to the servers of a cluster, in their order.
type links []*testredis.Proxy

// startFarProxy starts a lockproxy that reaches each server over a link of its own.
func startFarProxy(t *testing.T, tc *testredis.Cluster, args ...string) (*harness.Proxy, links) {
	t.Helper()
	var all links
	var table []string
	for _, s := range tc.Servers {
		l := testredis.NewProxy(t, s.Addr())
		all, table = append(all, l), append(table, s.Addr()+"="+l.Addr())
	}
	return harness.StartProxy(t, "redis-cluster://"+all[0].Addr(), append([]string{"--cluster-address-map", strings.Join(table, ",")}, args...)...), all
}

// freeze has nothing arrive any more, without an error; new connections are as deaf.
func (all links) freeze() {
	for _, l := range all {
		l.Latency(time.Hour)
	}
}

// thaw has everything arrive that was on its way, as after a partition that TCP outlives.
func (all links) thaw() {
	for _, l := range all {
		l.Clear()
	}
}

// heardAt is what a goroutine heard, and when.
type heardAt struct {
	key string
	spoken
}

// askLater sends a command and gives the reply over the channel.
func askLater(s *speaker, key string, out chan<- heardAt, args ...string) {
	out <- heardAt{key, s.ask(args...)}
}

// expectSpoken is expect.
func expectSpoken(t *testing.T, s *speaker, want string, args ...string) {
	t.Helper()
	if got := s.ask(args...); got.frame != want {
		t.Errorf("%q: %q %v, want %q", args, got.frame, got.err, want)
	}
}

func mustSpeak(t *testing.T, addr string, login ...string) *speaker {
	t.Helper()
	s, err := newSpeaker(t, addr, login...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.w.Close)
	return s
}

// TestClusterPartitionOfOneProxy: a lockproxy that is cut off from all nodes tells each of its holders of the loss before
// anybody else is granted the lock; who waits there waits on, and is woken after the healing.
func TestClusterPartitionOfOneProxy(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct{ cut, heal func(links) }{
		"frozen":  {links.freeze, links.thaw},
		"refused": {func(all links) { all.each((*testredis.Proxy).Disable) }, func(all links) { all.each((*testredis.Proxy).Enable) }},
		"reset": {links.freeze, func(all links) {
			all.each((*testredis.Proxy).ResetAll)
			all.thaw()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPartition(t, how.cut, how.heal)
		})
	}
}

func (all links) each(f func(*testredis.Proxy)) {
	for _, l := range all {
		f(l)
	}
}

func testPartition(t *testing.T, cut, heal func(links)) {
	const lease = 3 * time.Second
	tc := testredis.StartCluster(t, 3, 0)
	far, ways := startFarProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	near := harness.StartClusterProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	var keys []string
	for i := range 3 {
		keys = append(keys, keysOn(i, "far", 4)...)
	}
	verbs := []string{"LOCK", "FAIRLOCK", "WLOCK", "RLOCK"}
	granted, woken := make(chan heardAt, len(keys)), make(chan heardAt, len(keys))
	holders, waiters, sleepers, releasers := map[string]*speaker{}, map[string]*speaker{}, map[string]*speaker{}, map[string]*speaker{}
	for i, key := range keys {
		verb := verbs[i%len(verbs)]
		holders[key], waiters[key] = mustSpeak(t, far.Addr()), mustSpeak(t, near.Addr())
		sleepers[key], releasers[key] = mustSpeak(t, far.Addr()), mustSpeak(t, near.Addr())
		expectSpoken(t, holders[key], ok, verb, key)
		expectSpoken(t, releasers[key], ok, verb, "near"+key)
		if verb == "RLOCK" {
			verb = "WLOCK" // a reader would not wait
		}
		go askLater(waiters[key], key, granted, verb, key, "BLOCK", "60000")
		go askLater(sleepers[key], key, woken, verb, "near"+key, "BLOCK", "60000")
	}
	time.Sleep(lease) // renewed, all wait
	cut(ways)
	began := time.Now()
	var told, apart []time.Duration
	for range keys {
		g := <-granted
		if g.frame != ok {
			t.Errorf("%s: a waiter at the other proxy heard %q %v", g.key, g.frame, g.err)
			continue
		}
		holder := holders[g.key]
		for end := time.Now().Add(lease); holder.told(g.key).IsZero() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		lost := holder.told(g.key)
		if lost.IsZero() {
			t.Errorf("%s: granted to another %v after the cut, its holder was told nothing", g.key, g.at.Sub(began))
			continue
		}
		told, apart = append(told, lost.Sub(began)), append(apart, g.at.Sub(lost))
	}
	slices.Sort(told)
	slices.Sort(apart)
	t.Logf("told after: %s; granted to another after that: first %v; %s", quantiles(told), apart[0], quantiles(apart))
	if len(apart) > 0 && apart[0] < -busy() {
		t.Errorf("a lock had two holders for %v", -apart[0])
	}
	for _, key := range keys[:1] {
		sent := time.Now()
		got := holders[key].ask("UNLOCK", key)
		if !strings.HasPrefix(got.frame, "-LOCKLOST") || got.at.Sub(sent) > harness.Patience {
			t.Errorf("UNLOCK %s while cut off: %q %v", key, got.frame, got.err)
		}
		t.Logf("UNLOCK while cut off: %q after %v", got.frame, got.at.Sub(sent).Round(time.Millisecond))
	}
	heal(ways)
	began = time.Now()
	w := mustSpeak(t, far.Addr())
	for _, key := range keys {
		harness.Eventually(t, "locks are to be had again", func() bool { return w.ask("LOCK", "new"+key).frame == ok })
	}
	t.Logf("all nodes serve locks again after %v", time.Since(began).Round(time.Millisecond))
	var wakes []time.Duration
	freed := map[string]time.Time{}
	for i, key := range keys {
		unlock := []string{"UNLOCK", "near" + key}
		if verbs[i%len(verbs)] == "RLOCK" {
			unlock = append(unlock, "READ")
		}
		expectSpoken(t, releasers[key], yes, unlock...)
		freed[key] = time.Now()
	}
	for range keys {
		g := <-woken
		if g.frame != ok {
			t.Errorf("%s: who waited through it heard %q %v", g.key, g.frame, g.err)
		}
		wakes = append(wakes, max(0, g.at.Sub(freed[g.key])))
	}
	slices.Sort(wakes)
	t.Logf("who waited through it was granted after: %s", quantiles(wakes))
}

// TestClusterBlackHole: a node that a lockproxy hears nothing of any more holds up nobody's locks at other nodes; what is asked
// of it is answered with an error in time, its locks' holders are told, and after the healing all is as before.
func TestClusterBlackHole(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	tc := testredis.StartCluster(t, 3, 0)
	far, ways := startFarProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	dark, light := keysOn(1, "dark", 6), append(keysOn(0, "light", 3), keysOn(2, "light", 3)...)
	s := mustSpeak(t, far.Addr())
	for _, key := range slices.Concat(keysOn(1, "helddark", 3), keysOn(0, "heldlight", 3), keysOn(2, "heldlight", 3)) {
		expectSpoken(t, s, ok, "LOCK", "{"+key+"}")
	}
	c := newThrong(t, light, []*harness.Proxy{far})
	c.start(8, 1<<40)
	time.Sleep(lease)
	var askers []*speaker // connected before, since a new client's HELLO may be for that very node
	for range 6 {
		askers = append(askers, mustSpeak(t, far.Addr()))
	}
	ways[1].Latency(time.Hour)
	began := time.Now()
	answers := make(chan heardAt, 10)
	for i, args := range [][]string{{"LOCK", dark[0]}, {"LOCK", dark[1], "BLOCK", "1000"}, {"LOCK", dark[2], "PX", "5000"}, {"RLOCK", dark[3]}, {"FAIRLOCK", dark[4], "BLOCK", "1000"}} {
		go askLater(askers[i], fmt.Sprint(i, args), answers, args...)
	}
	for range 5 {
		a := <-answers
		took := a.at.Sub(began).Round(time.Millisecond)
		if t.Logf("%s: %q %v after %v", a.key, a.frame, a.err, took); !harness.IsErrorFrame(a.frame) || took > harness.Patience {
			t.Errorf("%s: %q %v after %v", a.key, a.frame, a.err, took)
		}
	}
	time.Sleep(time.Until(began.Add(2 * lease)))
	var told []time.Duration
	for _, key := range keysOn(1, "helddark", 3) {
		if at := s.told("{" + key + "}"); at.IsZero() {
			t.Errorf("%s: its holder was told nothing", key)
		} else {
			told = append(told, at.Sub(began))
		}
	}
	t.Logf("told after %v", told)
	ways[1].Clear()
	healed := time.Now()
	w := askers[5]
	for _, key := range dark {
		harness.Eventually(t, "locks are to be had again", func() bool { return w.ask("LOCK", "new{"+key+"}").frame == ok })
	}
	t.Logf("served again after %v", time.Since(healed).Round(time.Millisecond))
	c.halt()
	j := c.judge(0)
	t.Logf("locks of the other nodes: %v; others %v", j, c.others)
	if j.told+j.lost+len(c.others) > 0 {
		t.Error("locks of the other nodes were disturbed")
	}
	for _, key := range slices.Concat(keysOn(0, "heldlight", 3), keysOn(2, "heldlight", 3)) {
		expectSpoken(t, s, yes, "UNLOCK", "{"+key+"}")
	}
}

// TestClusterResetsAndLatency: connections are reset in the middle of scripts, and one node answers late: every count is there,
// nobody is a second holder, and nothing is left locked.
func TestClusterResetsAndLatency(t *testing.T) {
	t.Parallel()
	took, lease := 6*time.Second, 3*time.Second
	if longForm() {
		took = time.Minute
	}
	tc := testredis.StartCluster(t, 3, 0)
	a, waysA := startFarProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	b, waysB := startFarProxy(t, tc, "--lock-watchdog-timeout", lease.String())
	keys := numbered("counted", 12)
	c := newThrong(t, keys, []*harness.Proxy{a, b})
	c.start(12, 1<<40)
	resets := 0
	for began := time.Now(); time.Since(began) < took; resets++ {
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
			links(waysA).thaw()
			links(waysB).thaw()
		}
	}
	before := c.added.Load()
	links(waysA).thaw()
	links(waysB).thaw()
	harness.Eventually(t, "all goes on", func() bool { return c.added.Load() > before+100 })
	c.halt()
	j := c.judge(0)
	t.Logf("%d resets, %d added; %v; others %v", resets, c.added.Load(), j, c.others)
	if j.told+j.lost > 0 {
		t.Error("a lock was lost")
	}
	w := harness.Dial(t, a.Addr())
	for _, key := range keys {
		harness.Eventually(t, key+" is free", func() bool { return strings.Contains(w.Do("LOCKINFO", key), "none") })
	}
}
