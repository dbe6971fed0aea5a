package cluster

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// prober takes a lock of its own and gives it back, again and again, and notes when that worked.
type prober struct {
	key     string
	done    []time.Time
	unknown int            // so often it heard that nothing is known of its UNLOCK
	odd     map[string]int // other replies
}

func (p *prober) run(s *harness.Speaker, stop *atomic.Bool) {
	p.odd = map[string]int{}
	for !stop.Load() {
		lock := s.Ask("LOCK", p.key, "BLOCK", "20000")
		if lock.Frame != ok {
			p.odd[lock.Frame+fmt.Sprint(lock.Err)]++
			continue
		}
		if got := s.Ask("UNLOCK", p.key); strings.HasPrefix(got.Frame, "-ERR the reply to this UNLOCK") {
			p.unknown++
		} else if got.Frame != yes {
			p.odd[got.Frame+fmt.Sprint(got.Err)]++
			continue
		}
		p.done = append(p.done, lock.At)
		time.Sleep(max(time.Millisecond, harness.Breath(10*time.Millisecond)))
	}
}

// gap is the longest time without a lock that ends after since.
func (p *prober) gap(since time.Time) (longest time.Duration) {
	last := since
	for _, at := range p.done {
		if at.After(since) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	return longest
}

// TestClusterLocksAfterAMaster: when a master is killed its locks are to be had again as soon as the cluster has another; those of the
// other masters are not disturbed.
func TestClusterLocksAfterAMaster(t *testing.T) {
	t.Parallel()
	rounds, most := 1, harness.Bound(time.Second)
	if harness.Long() {
		rounds = 6
	}
	tc := testredis.StartCluster(t, 3, 1, "--cluster-require-full-coverage no")
	proxies := clusterProxies(t, tc, 2, "--cluster-retry", "20s")
	for round := range rounds {
		pair := [2]*testredis.Server{tc.Servers[1], tc.Servers[4]}
		if round%2 == 1 {
			pair[0], pair[1] = pair[1], pair[0]
		}
		all := make([]prober, 12)
		var stop atomic.Bool
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			harness.Together(len(all), func(i int) {
				all[i].key = keysOn(i%3, fmt.Sprint("probed", i, "-"), 1)[0]
				s, err := harness.NewSpeaker(t, proxies[i/3%2].Addr())
				if err != nil {
					t.Error(err)
					return
				}
				defer s.W.Close()
				all[i].run(s, &stop)
			})
		}()
		time.Sleep(500 * time.Millisecond)
		killed := time.Now()
		killMaster(t, tc, pair[0], pair[1])
		elected := time.Since(killed)
		time.Sleep(2 * time.Second)
		stop.Store(true)
		<-finished
		var outage, others time.Duration
		for i := range all {
			if gap := all[i].gap(killed); i%3 == 1 {
				outage = max(outage, gap)
			} else {
				others = max(others, gap)
			}
			// An UNLOCK waits for a second, a failover may take longer.
			if len(all[i].odd) > 0 || all[i].unknown > 0 && i%3 != 1 {
				t.Errorf("%s: %v, %d unknown", all[i].key, all[i].odd, all[i].unknown)
			}
		}
		t.Logf("a new master after %v, its locks after %v; longest time without a lock of the others %v", elected.Round(time.Millisecond), outage.Round(time.Millisecond), others.Round(time.Millisecond))
		if outage > elected+most || outage == 0 || others > most+2*time.Second {
			t.Error("too long")
		}
		pair[0].Restart()
		if err := tc.WaitOK(); err != nil {
			t.Fatal(err)
		}
	}
}

// hurtCluster is three masters, locks held and waited for on each of them.
type hurtCluster struct {
	t       *testing.T
	tc      *testredis.Cluster
	p       *harness.Proxy
	holder  *harness.Speaker
	held    [3]string
	waiting chan harness.HeardAt
}

func startHurt(t *testing.T, replicas int) *hurtCluster {
	t.Helper()
	h := &hurtCluster{t: t, tc: testredis.StartCluster(t, 3, replicas, "--cluster-require-full-coverage no"), waiting: make(chan harness.HeardAt, 6)}
	h.p = harness.StartClusterProxy(t, h.tc, "--lock-watchdog-timeout", keptLease.String(), "--cluster-retry", "1s")
	h.holder = harness.MustSpeak(t, h.p.Addr())
	for i := range h.held {
		h.held[i] = keysOn(i, "held", 1)[0]
		harness.ExpectSpoken(t, h.holder, ok, "LOCK", h.held[i])
		w := harness.MustSpeak(t, h.p.Addr())
		go harness.AskLater(w, h.held[i], h.waiting, "LOCK", h.held[i], "BLOCK", "60000")
	}
	probe := harness.Dial(t, h.p.Addr())
	harness.Eventually(t, "all wait", func() bool {
		for _, key := range h.held {
			if harness.WaitingHere(t, probe, key) != 1 {
				return false
			}
		}
		return true
	})
	return h
}

// settle wants each of the locks to be lost and told, or to be held still, and then each waiter to be granted.
func (h *hurtCluster) settle(lost ...int) {
	h.t.Helper()
	for i, key := range h.held {
		gone := false
		for _, l := range lost {
			gone = gone || l == i
		}
		if gone {
			harness.Eventually(h.t, "the loss of "+key+" is told", func() bool { return !h.holder.Told(key).IsZero() })
			if got := h.holder.Ask("UNLOCK", key); !strings.HasPrefix(got.Frame, "-LOCKLOST") {
				h.t.Errorf("UNLOCK %s, which was lost: %q %v", key, got.Frame, got.Err)
			}
			continue
		}
		harness.ExpectSpoken(h.t, h.holder, yes, "UNLOCK", key)
	}
	for range h.held {
		if g := <-h.waiting; g.Frame != ok {
			h.t.Errorf("who waited for %s heard %q %v", g.Key, g.Frame, g.Err)
		}
	}
	fresh := harness.MustSpeak(h.t, h.p.Addr())
	for i := range 3 {
		for _, key := range keysOn(i, "after", 5) {
			harness.ExpectSpoken(h.t, fresh, ok, "LOCK", key, "BLOCK", "20000")
			harness.ExpectSpoken(h.t, fresh, yes, "UNLOCK", key)
		}
	}
}

// TestClusterHurt: whatever is done to its nodes, losses are told, errors are clear, nobody is stuck, and all recovers.
func TestClusterHurt(t *testing.T) {
	t.Parallel()
	first := func(tc *testredis.Cluster) *testredis.Server { return tc.Servers[0] }
	for name, hurt := range map[string]func(t *testing.T, h *hurtCluster) (lost []int){
		"flush": func(t *testing.T, h *hurtCluster) []int {
			first(h.tc).Do(t, "FLUSHALL")
			return []int{0}
		},
		"back empty": func(t *testing.T, h *hurtCluster) []int {
			first(h.tc).Restart()
			return []int{0}
		},
		"all down": func(t *testing.T, h *hurtCluster) []int {
			for _, s := range h.tc.Servers {
				s.Kill()
			}
			time.Sleep(keptLease)
			for _, s := range h.tc.Servers {
				s.Restart()
			}
			return []int{0, 1, 2}
		},
		"unassigned": func(t *testing.T, h *hurtCluster) []int {
			for _, s := range h.tc.Servers {
				s.Do(t, "CLUSTER", "DELSLOTSRANGE", 0, slots.Slots/3-1)
			}
			s := harness.MustSpeak(t, h.p.Addr())
			began := time.Now()
			got := s.Ask("LOCK", keysOn(0, "unserved", 1)[0])
			if t.Logf("LOCK in a slot that nobody serves: %q after %v", got.Frame, time.Since(began).Round(time.Millisecond)); !harness.IsErrorFrame(got.Frame) {
				t.Errorf("%q %v", got.Frame, got.Err)
			}
			time.Sleep(keptLease)
			first(h.tc).Do(t, "CLUSTER", "ADDSLOTSRANGE", 0, slots.Slots/3-1)
			if err := h.tc.WaitOK(); err != nil {
				t.Fatal(err)
			}
			return []int{0}
		},
		"reset": func(t *testing.T, h *hurtCluster) []int {
			s := first(h.tc)
			old := h.tc.ID(s)
			c := s.Dial(t) // at once: who waits would lock in between, and a master with keys is not reset
			_, _, _ = c.Send("MULTI"), c.Send("FLUSHALL"), c.Send("CLUSTER", "RESET", "HARD")
			if replies, err := redis.Strings(c.Do("EXEC")); err != nil {
				t.Fatal(replies, err)
			}
			for _, other := range h.tc.Servers[1:] {
				other.Do(t, "CLUSTER", "FORGET", old)
			}
			time.Sleep(keptLease)
			info := strings.Split(string(h.tc.Servers[1].Do(t, "CONFIG", "GET", "cluster-port").([]any)[1].([]byte)), "\n")[0]
			s.Do(t, "CLUSTER", "MEET", "127.0.0.1", h.tc.Servers[1].Port(), info)
			harness.Eventually(t, "the slots are given anew", func() bool {
				return strings.Contains(fmt.Sprintf("%s", h.tc.Servers[2].Do(t, "CLUSTER", "NODES")), fmt.Sprint(":", s.Port(), "@"))
			})
			s.Do(t, "CLUSTER", "ADDSLOTSRANGE", 0, slots.Slots/3-1)
			s.Do(t, "CLUSTER", "BUMPEPOCH")
			return []int{0}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHurt(t, 0)
			h.settle(hurt(t, h)...)
		})
	}
	t.Run("takeover", func(t *testing.T) {
		t.Parallel()
		h := startHurt(t, 1)
		replicated(t, h.tc)
		// Without a vote, and without its master's word.
		h.tc.Servers[3].Do(t, "CLUSTER", "FAILOVER", "TAKEOVER")
		if err := h.tc.WaitOK(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(keptLease)
		h.settle()
	})
}

// TestClusterProxyKilled: the waiters and holders of a lockproxy that is killed block others no longer than their lease, or, in the
// fair queue, for 10 s more.
func TestClusterProxyKilled(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	dies, lives := harness.StartClusterProxy(t, tc, "--lock-watchdog-timeout", "3s"), harness.StartClusterProxy(t, tc, "--lock-watchdog-timeout", "3s")
	granted := make(chan harness.HeardAt, 12)
	n := 0
	for i := range 3 {
		for k, verb := range []string{"LOCK", "FAIRLOCK", "WLOCK"} {
			key := keysOn(i, fmt.Sprint(verb, k), 1)[0]
			harness.ExpectSpoken(t, harness.MustSpeak(t, dies.Addr()), ok, verb, key)
			go harness.AskLater(harness.MustSpeak(t, dies.Addr()), key, make(chan harness.HeardAt, 1), verb, key, "BLOCK", "60000")
			time.Sleep(100 * time.Millisecond) // it is the first in the queue
			go harness.AskLater(harness.MustSpeak(t, lives.Addr()), verb+" "+key, granted, verb, key, "BLOCK", "60000")
			n++
		}
	}
	time.Sleep(time.Second)
	dies.Kill()
	began := time.Now()
	longest := map[string]time.Duration{}
	for range n {
		g := <-granted
		verb, _, _ := strings.Cut(g.Key, " ")
		if longest[verb] = max(longest[verb], g.At.Sub(began)); g.Frame != ok {
			t.Errorf("%s: %q %v", g.Key, g.Frame, g.Err)
		}
	}
	t.Logf("granted to others after the kill, at most: %v", longest)
	if max(longest["LOCK"], longest["WLOCK"]) > harness.Bound(8*time.Second) || longest["FAIRLOCK"] > harness.Bound(18*time.Second) {
		t.Error("too late")
	}
}

// replicated waits until the replicas of a cluster of three masters have all that those have.
func replicated(t *testing.T, tc *testredis.Cluster) {
	t.Helper()
	for _, s := range tc.Servers[:3] {
		harness.Eventually(t, "replicas have all", func() bool {
			info, _ := redis.String(s.Do(t, "INFO", "replication"), nil)
			_, at, _ := strings.Cut(info, "master_repl_offset:")
			at, _, _ = strings.Cut(at, "\r\n")
			return strings.Contains(info, "offset="+at+",lag")
		})
	}
}
