package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// silenced is a proxy and all the servers it talks to, which fall silent together.
type silenced struct {
	p     *harness.Proxy
	all   []*testredis.Server
	nodes func(key string) []*testredis.Server // that have a lock
	need  int                                  // so many of them must have freed it before somebody else can have it
}

// leaseOf is how long locks last that are renewed, by how many there are.
func leaseOf(locks int) time.Duration {
	if locks > 1000 {
		return 12 * time.Second
	}
	return 4 * time.Second
}

// silencedModes are the kinds of upstream.
var silencedModes = map[string]func(t *testing.T, lease string) silenced{
	"single": func(t *testing.T, lease string) silenced {
		s := testredis.Start(t)
		return silenced{harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", lease), []*testredis.Server{s},
			func(string) []*testredis.Server { return []*testredis.Server{s} }, 1}
	},
	"sentinel": func(t *testing.T, lease string) silenced {
		g := testredis.StartGroup(t, testredis.GroupOptions{})
		return silenced{harness.StartProxy(t, g.URL(), "--lock-watchdog-timeout", lease), append(g.Nodes, g.Sentinels...),
			func(string) []*testredis.Server { return g.Nodes[:1] }, 1}
	},
	"cluster": func(t *testing.T, lease string) silenced {
		tc := testredis.StartCluster(t, 3, 0)
		return silenced{harness.StartClusterProxy(t, tc, "--lock-watchdog-timeout", lease), tc.Servers, func(key string) []*testredis.Server {
			return []*testredis.Server{tc.Servers[cluster.Slot([]byte(key))*len(tc.Servers)/cluster.Slots]}
		}, 1}
	},
	"quorum": func(t *testing.T, lease string) silenced {
		nodes := harness.StartNodes(t, 3)
		args := []string{"--lock-watchdog-timeout", lease, "--quorum-max-lease", lease, "--quorum-node-timeout", "400ms"}
		for _, n := range nodes {
			args = append(args, "--quorum", n.URL())
		}
		data := testredis.Start(t)
		p := harness.StartProxy(t, data.URL(), args...)
		w := harness.Dial(t, p.Addr())
		for i := range nodes {
			harness.Eventually(t, "node "+strconv.Itoa(i)+" counts", func() bool { return harness.NodeState(w, i, "state") == "up" })
		}
		return silenced{p, append(nodes, data), func(string) []*testredis.Server { return nodes }, 2}
	},
}

// TestLossesAreToldInTime: when Redis falls silent every holder is told before anybody else could have its lock, with few locks and
// with many, on every kind of upstream.
func TestLossesAreToldInTime(t *testing.T) {
	t.Parallel()
	counts := []int{10, 300}
	if harness.Long() {
		counts = append(counts, 20000)
	}
	for _, locks := range counts {
		for mode, start := range silencedModes {
			t.Run(fmt.Sprint(mode, "-", locks), func(t *testing.T) {
				if locks <= 1000 {
					t.Parallel()
				}
				harness.Undisturbed(t, func() (wrong string) { return lossesTold(t, start(t, leaseOf(locks).String()), locks) })
			})
		}
	}
}

// lossesTold silences Redis, and finds out the least time between a loss told and the lock free for others.
func lossesTold(t *testing.T, s silenced, locks int) (wrong string) {
	t.Helper()
	told := make(chan heardLoss, locks)
	const each = 5000 // locks of one client
	var keys []string
	for first := 0; first < locks; first += each {
		w := harness.DialHearing(t, s.p.Addr())
		var mine []string
		for i := first; i < min(first+each, locks); i++ {
			mine = append(mine, lockName(i))
		}
		if wrong := takeAll(t, w, mine); wrong != "" {
			return wrong
		}
		keys = append(keys, mine...)
		go hearLosses(w, len(mine), told)
	}
	time.Sleep(leaseOf(locks) / 2) // each is renewed, or about to be
	gone, wrong := s.silence(t, keys)
	if wrong != "" {
		return wrong
	}
	late := time.NewTimer(time.Until(slices.MaxFunc(values(gone), time.Time.Compare)) + 10*time.Second)
	defer late.Stop()
	least, worst := time.Hour, ""
	for range keys {
		select {
		case l := <-told:
			if margin := gone[l.key].Sub(l.at); margin < least {
				least, worst = margin, l.key
			}
		case <-late.C:
			t.Fatalf("not all of %d losses were told", locks)
		}
	}
	t.Logf("%d locks: the least time between a loss told and the lock free for others is %v, of %s", locks, least.Round(time.Millisecond), worst)
	if least <= 0 {
		return fmt.Sprintf("a loss was told %v after others could have the lock", -least)
	}
	return ""
}

// lockName is a name whose slot is not near where one of three masters' slots end.
func lockName(i int) string {
	for n := 0; ; n++ {
		name := fmt.Sprintf("held%d-%d", i, n)
		if part := cluster.Slots / 3; (cluster.Slot([]byte(name))+2)%part > 4 {
			return name
		}
	}
}

// takeAll takes locks of several kinds, in a pipeline, and those again that the nodes of a quorum were too busy for. It is wrong that one
// is lost before all are had.
func takeAll(t *testing.T, w *harness.Wire, keys []string) (wrong string) {
	t.Helper()
	take := func(i int) []string {
		key := keys[i]
		return []string{[]string{"LOCK", "RLOCK", "WLOCK"}[i%3], key}
	}
	go func() {
		for i := range keys {
			_ = w.TrySend(take(i)...)
		}
	}()
	var again []int
	for i := range keys {
		if got := w.Read(); strings.HasPrefix(got, "-NOQUORUM ") {
			again = append(again, i)
		} else if got[0] == '>' {
			return fmt.Sprintf("instead of a lock: %q", got)
		} else if got != ok {
			t.Fatalf("a lock: %q", got)
		}
	}
	for _, i := range again {
		harness.Eventually(t, "a lock", func() bool {
			got := w.Do(take(i)...)
			if got[0] == '>' {
				wrong = fmt.Sprintf("instead of a lock: %q", got)
			}
			return got == ok || wrong != ""
		})
	}
	return wrong
}

// hearLosses tells of each push when it came.
func hearLosses(w *harness.Wire, n int, told chan<- heardLoss) {
	for range n {
		frame, err := w.TryRead(time.Minute)
		at := time.Now()
		if err != nil {
			return
		}
		told <- heardLoss{strings.Split(frame, "\r\n")[4], at}
	}
}

// heardLoss is a lock whose loss was told, and when.
type heardLoss struct {
	key string
	at  time.Time
}

// silence has all servers say nothing any more, and says when each lock is free for others. The proxy stands still while it is
// found out, so that no renewal comes in between.
func (s silenced) silence(t *testing.T, keys []string) (gone map[string]time.Time, wrong string) {
	t.Helper()
	s.p.Stop()
	defer s.p.Cont()
	time.Sleep(50 * time.Millisecond) // what was on its way has been done
	ask := map[*testredis.Server][]string{}
	for _, key := range keys {
		for _, n := range s.nodes(key) {
			ask[n] = append(ask[n], key)
		}
	}
	ends := map[string][]time.Time{}
	for n, mine := range ask {
		c := n.Dial(t)
		for _, key := range mine {
			if err := c.Send("PTTL", key); err != nil {
				t.Fatal(err)
			}
		}
		at := time.Now()
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, key := range mine {
			left, err := c.Receive()
			if ms, isNumber := left.(int64); err != nil || !isNumber || ms < 0 {
				return nil, fmt.Sprintf("%s is not held: %v %v", key, left, err)
			} else {
				ends[key] = append(ends[key], at.Add(time.Duration(ms)*time.Millisecond))
			}
		}
	}
	for _, n := range s.all {
		n.Stop()
		t.Cleanup(n.Cont)
	}
	gone = map[string]time.Time{}
	for key, all := range ends {
		slices.SortFunc(all, time.Time.Compare)
		gone[key] = all[s.need-1]
	}
	return gone, ""
}

func values(m map[string]time.Time) (all []time.Time) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}
