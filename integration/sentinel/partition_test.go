package sentinel

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// partGroup is a group whose first master can be cut off from its replicas and from the Sentinels, while clients reach it: those
// two log in as users of their own, who are then let in no more.
type partGroup struct {
	*testredis.Group
	t *testing.T
}

func startPartGroup(t *testing.T, node ...string) *partGroup {
	t.Helper()
	return &partGroup{t: t, Group: testredis.StartGroup(t, testredis.GroupOptions{
		Node: append([]string{"--requirepass p", "--user watching on >p allkeys allchannels +@all",
			"--user following on >p allkeys allchannels +@all", "--masteruser following"}, node...),
		Sentinel: []string{"sentinel auth-user " + testredis.MasterName + " watching"},
	})}
}

// cut cuts a node off, or lets it in again.
func (g *partGroup) cut(s *testredis.Server, off bool) {
	for _, user := range []string{"watching", "following"} {
		state := map[bool]string{true: "off", false: "on"}[off]
		s.Do(g.t, "ACL", "SETUSER", user, state)
		if off {
			s.Do(g.t, "CLIENT", "KILL", "USER", user)
		}
	}
}

// startPartProxy starts a lockproxy that reaches the Sentinels over links of its own.
func startPartProxy(t *testing.T, g *testredis.Group, args ...string) (*harness.Proxy, harness.Links) {
	t.Helper()
	var ways harness.Links
	var hosts []string
	for _, s := range g.Sentinels {
		l := testredis.NewProxy(t, s.Addr())
		ways, hosts = append(ways, l), append(hosts, l.Addr())
	}
	login := ""
	if strings.Contains(g.URL(), ":p@") {
		login = ":p@"
	}
	return harness.StartProxy(t, "redis+sentinel://"+login+strings.Join(hosts, ",")+"/"+testredis.MasterName, args...), ways
}

// TestSentinelPartition: a master is cut off together with one lockproxy, and another takes its place. Locks that the new master
// does not hear of have two holders until the healing, which is what asynchronous replication gives; the lost side gives none that asks for
// REPLICAS, whose renewals wait for nobody; min-replicas-to-write bounds it for all. After the healing whoever lost one was told, and all locks are on one master.
func TestSentinelPartition(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // longer than a machine stalls
	for name, c := range map[string]struct {
		node  []string
		bound time.Duration // of two holders
	}{
		"plain":        {nil, time.Hour},
		"min-replicas": {[]string{"--min-replicas-to-write 1", "--min-replicas-max-lag 1"}, lease + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startPartGroup(t, c.node...)
			a, ways := startPartProxy(t, g.Group, "--lock-watchdog-timeout", lease.String())
			b, _ := startPartProxy(t, g.Group, "--lock-watchdog-timeout", lease.String())
			holders, granted := map[string]*harness.Speaker{}, make(chan harness.HeardAt, 2)
			for _, key := range []string{"plain", "kept"} {
				holders[key] = harness.MustSpeak(t, a.Addr(), "default", "p")
				lock := []string{"LOCK", key}
				if key == "kept" {
					lock = append(lock, "REPLICAS", "1")
				}
				harness.Eventually(t, "the replica has the lock in time", func() bool { return holders[key].Ask(lock...).Frame == ok })
				go harness.AskLater(harness.MustSpeak(t, b.Addr(), "default", "p"), key, granted, "LOCK", key, "BLOCK", "60000")
			}
			time.Sleep(lease / 2)
			old := g.Master()
			g.Hasten()
			stalled := harness.WatchStalls()
			ways.Freeze()
			g.cut(old, true)
			began := time.Now()
			g.AwaitSwitch(old)
			t.Logf("another master after %v", time.Since(began).Round(time.Millisecond))
			g.Calm()
			at := map[string]time.Time{}
			for range holders {
				h := <-granted
				if at[h.Key] = h.At; h.Frame != ok {
					t.Errorf("%s: who waited at the other side heard %q %v", h.Key, h.Frame, h.Err)
				}
			}
			time.Sleep(lease)
			late := harness.MustSpeak(t, a.Addr(), "default", "p").Ask("LOCK", "late", "PX", "60000")
			t.Logf("a LOCK on the lost side: %q", late.Frame)
			if got := harness.MustSpeak(t, a.Addr(), "default", "p").Ask("LOCK", "safe", "REPLICAS", "1"); !strings.HasPrefix(got.Frame, "-NOREPLICAS") {
				t.Errorf("the lost side gave a lock with REPLICAS: %q %v", got.Frame, got.Err)
			}
			if name != "plain" && !strings.HasPrefix(late.Frame, "-NOREPLICAS") {
				t.Errorf("the lost side took a lock: %q %v", late.Frame, late.Err)
			}
			g.cut(old, false)
			ways.Thaw()
			g.Hasten() // a Sentinel logs in again only when it finds its connection dead, which one that is refused each second is not for a calm one
			g.AwaitWhole()
			g.Calm()
			w := harness.MustSpeak(t, a.Addr(), "default", "p")
			harness.Eventually(t, "the lost side follows the new master", func() bool {
				return strings.Contains(w.Ask("INFO", "lockproxy").Frame, "lockproxy_upstream_addr:"+g.Master().Addr())
			})
			stall := stalled()
			for key, s := range holders {
				harness.Eventually(t, "the loss of "+key+" is told", func() bool { return !s.Told(key).IsZero() })
				twice := s.Told(key).Sub(at[key])
				t.Logf("%s: told %v after the cut, granted to another %v after it", key, s.Told(key).Sub(began).Round(time.Millisecond), at[key].Sub(began).Round(time.Millisecond))
				if twice > c.bound+stall {
					t.Errorf("%s had two holders for %v", key, twice)
				}
				if got := s.Ask("UNLOCK", key); !strings.HasPrefix(got.Frame, "-LOCKLOST") {
					t.Errorf("UNLOCK %s on the lost side: %q %v", key, got.Frame, got.Err)
				}
			}
			for _, key := range []string{"late", "after0", "after1", "after2"} { // what the former master alone had is gone
				harness.Eventually(t, key+" is granted", func() bool {
					got := w.Ask("LOCK", key).Frame
					if got != ok && !strings.HasPrefix(got, "-NOREPLICAS") { // min-replicas-max-lag counts whole seconds
						t.Errorf("LOCK %s: %q", key, got)
					}
					return got == ok
				})
			}
		})
	}
}

// TestSentinelSwitchMissed: a lockproxy that heard nothing from the Sentinels while they changed the master finds the new one by
// asking, once it reaches one of them; held locks are held on, and who waits is woken.
func TestSentinelSwitchMissed(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	p, ways := startPartProxy(t, g, "--lock-watchdog-timeout", "2m")
	holder, waiter := harness.MustSpeak(t, p.Addr()), harness.MustSpeak(t, p.Addr())
	harness.Eventually(t, "the replica has the lock in time", func() bool { return holder.Ask("LOCK", "held", "REPLICAS", "1").Frame == ok })
	granted := make(chan harness.HeardAt, 1)
	go harness.AskLater(waiter, "held", granted, "LOCK", "held", "BLOCK", "0")
	time.Sleep(500 * time.Millisecond)
	old := g.Master()
	ways.Each((*testredis.Proxy).Disable)
	master := g.Failover()
	g.AwaitWhole()
	time.Sleep(2 * time.Second)
	blind := mustSpeakLater(t, p.Addr())
	t.Logf("a LOCK while no Sentinel is heard: %q", blind)
	if blind == ok {
		t.Errorf("a lock was taken from a former master, %s", old.Addr())
	}
	ways[2].Enable()
	began := time.Now()
	harness.Eventually(t, "locks again", func() bool { return mustSpeakLater(t, p.Addr()) == ok })
	t.Logf("locks again %v after one Sentinel was reached", time.Since(began).Round(time.Millisecond))
	harness.ExpectSpoken(t, holder, yes, "UNLOCK", "held")
	if got := <-granted; got.Frame != ok {
		t.Errorf("the waiter heard %q %v", got.Frame, got.Err)
	}
	if n := len(harness.Keys(t, master)); n == 0 {
		t.Error("the new master has no lock")
	}
}

// mustSpeakLater takes a lock on a connection of its own, and says what the answer was.
func mustSpeakLater(t *testing.T, addr string) string {
	w := harness.Dial(t, addr)
	defer w.Close()
	got, err := w.Try("LOCK", "probe", "PX", "1000")
	if err != nil {
		return err.Error()
	}
	return got
}
