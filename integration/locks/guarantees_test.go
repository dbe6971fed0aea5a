package locks

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// linked is a replica whose stream from its master can be held up.
func linked(t *testing.T, master *testredis.Server) (replica *testredis.Server, link *testredis.Proxy) {
	t.Helper()
	link = testredis.NewProxy(t, master.Addr())
	_, port, _ := net.SplitHostPort(link.Addr())
	return testredis.Start(t, "--replicaof", "127.0.0.1", port), link
}

// REPLICAS counts replicas, it does not choose them: another than the one that has the lock may be promoted.
func TestReplicasOneOfTwo(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t, "--repl-diskless-sync-delay", "0")
	linked(t, master)
	behind, link := linked(t, master)
	p := harness.StartProxy(t, master.URL())
	holder := harness.Dial(t, p.Addr())
	harness.Eventually(t, "both are in step", func() bool { return holder.Do("LOCK", "both", "REPLICAS", "2", "SELF") == ok })
	link.BlackHole()
	harness.Eventually(t, "one has it in time", func() bool { return holder.Do("LOCK", "one", "REPLICAS", "1", "SELF") == ok })
	if got := holder.Do("LOCK", "two", "REPLICAS", "2"); !strings.HasPrefix(got, "-NOREPLICAS ") {
		t.Errorf("%q", got)
	}
	master.Kill()
	link.Disable()
	behind.Do(t, "REPLICAOF", "NO", "ONE")
	next := harness.Dial(t, harness.StartProxy(t, behind.URL()).Addr())
	harness.Expect(t, next, null, "LOCK", "both")
	harness.Expect(t, next, ok, "LOCK", "one") // its holder has it, too
}

// An UNLOCK that no replica has heard of is undone by a failover: the lock is nobody's until its lease is over.
func TestUnlockIsLostInAFailover(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t, "--repl-diskless-sync-delay", "0")
	replica, link := linked(t, master)
	w := harness.Dial(t, harness.StartProxy(t, master.URL()).Addr())
	harness.Eventually(t, "the replica is in step", func() bool { return w.Do("LOCK", "k", "REPLICAS", "1", "SELF") == ok })
	link.BlackHole()
	harness.Expect(t, w, yes, "UNLOCK", "k", "ALL")
	master.Kill()
	link.Disable()
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	next := harness.Dial(t, harness.StartProxy(t, replica.URL()).Addr())
	harness.Expect(t, next, null, "LOCK", "k")
	if left := pttl(t, replica, "k"); left <= 0 || left > 30000 {
		t.Errorf("PTTL %d: its lease is 30 s", left)
	}
	replica.Do(t, "PEXPIRE", "k", 1000) // which nobody wants to wait for
	harness.Expect(t, next, ok, "LOCK", "k", "BLOCK", "60000")
}

// A master that has lost its replicas goes on giving locks, and so may two. With min-replicas-to-write it stops, and who holds a
// lock there is told when the lease is over.
func TestMinReplicas(t *testing.T) {
	t.Parallel()
	for _, least := range []string{"0", "1"} {
		t.Run(least, func(t *testing.T) {
			t.Parallel()
			master := testredis.Start(t, "--repl-diskless-sync-delay", "0", "--min-replicas-to-write", least, "--min-replicas-max-lag", "2")
			replica, link := linked(t, master)
			p := harness.StartProxy(t, master.URL(), "--lock-watchdog-timeout", "10s")
			holder, other := harness.DialHearing(t, p.Addr()), harness.Dial(t, p.Addr())
			harness.Eventually(t, "the replica is in step", func() bool { return other.Do("LOCK", "first", "REPLICAS", "1", "SELF") == ok })
			link.Disable()
			replica.Do(t, "REPLICAOF", "NO", "ONE")
			if least == "0" {
				there := harness.Dial(t, harness.StartProxy(t, replica.URL()).Addr())
				harness.Expect(t, holder, ok, "LOCK", "k")
				harness.Expect(t, there, ok, "LOCK", "k")
				return
			}
			if got := holder.Do("LOCK", "k"); got != ok { // it may have noticed already
				t.Logf("%q", got)
			}
			n := 0
			harness.Eventually(t, "no lock is given any more", func() bool {
				n++
				got := other.Do("LOCK", fmt.Sprint("new", n))
				return strings.HasPrefix(got, "-NOREPLICAS ")
			})
			if got := other.Do("UNLOCK", "first", "ALL"); !strings.HasPrefix(got, "-NOREPLICAS ") {
				t.Errorf("UNLOCK: %q", got)
			}
			// Nobody wants it any more, so it is not renewed, and its end is no loss.
			harness.Eventually(t, "it has run out", func() bool { return strings.HasPrefix(other.Do("UNLOCK", "first", "ALL"), "-NOTHELD ") })
		})
	}
}

// Tokens are Redis' clock at least: they go on rising after all has been forgotten, unless they were ahead of that clock.
func TestTokensAfterAFlush(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	w := harness.Dial(t, harness.StartProxy(t, s.URL()).Addr())
	last := int64(0)
	for range 5 {
		token := harness.Number(t, w.Do("LOCK", "k", "FENCE"))
		if token <= last {
			t.Errorf("%d after %d", token, last)
		}
		last = token
		s.Do(t, "FLUSHALL")
		w.Do("UNLOCK", "k")
	}
	ahead := time.Now().Add(time.Hour).UnixMicro()
	s.Do(t, "SET", "redisson_lock_token:{k}", strconv.FormatInt(ahead, 10))
	if token := harness.Number(t, w.Do("LOCK", "k", "FENCE")); token != ahead+1 {
		t.Errorf("%d after %d", token, ahead)
	}
	s.Do(t, "FLUSHALL")
	w.Do("UNLOCK", "k")
	if token := harness.Number(t, w.Do("LOCK", "k", "FENCE")); token > ahead {
		t.Errorf("%d: the clock is not ahead", token)
	}
}

// A Redis that evicts takes locks for cache: one is given twice, and the first holder hears of it when its lock is renewed.
func TestEviction(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random")
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "9s")
	holder, other := harness.DialHearing(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, holder, ok, "LOCK", "k")
	filler := strings.Repeat("x", 10<<10)
	harness.Eventually(t, "it is evicted", func() bool {
		for i := range 100 {
			s.Do(t, "SET", fmt.Sprint("cache", i, time.Now().UnixNano()), filler)
		}
		return !exists(t, s, "k")
	})
	harness.Expect(t, other, ok, "LOCK", "k")
	if got, want := holder.Read(), lostPush("k", "gone"); got != want {
		t.Errorf("told %q", got)
	}
}

// A lock that ends without a message is found free by those who wait, at the latest when they look by themselves.
func TestMissedMessage(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--wait-poll", "1s")
	for verb, held := range map[string]string{
		"LOCK": "redisson:1 1", "FAIRLOCK": "redisson:1 1", "WLOCK": "mode write redisson:1:write 1", "RLOCK": "mode write redisson:1:write 1",
	} {
		w := harness.Dial(t, p.Addr())
		set := []any{"HSET", verb}
		for _, word := range strings.Fields(held) {
			set = append(set, word)
		}
		s.Do(t, set...)
		s.Do(t, "PEXPIRE", verb, 3600000)
		w.Send(verb, verb, "BLOCK", "0")
		if !w.Silent(300 * time.Millisecond) {
			t.Errorf("%s of a held lock: %q", verb, w.Read())
			continue
		}
		s.Do(t, "DEL", verb)
		if got := w.Read(); got != ok {
			t.Errorf("%s: %q", verb, got)
		}
	}
}

// Redis' clock set forward by more than a lease ends all leases: a lock is given again, and its holder told within seconds. Set
// back, it lengthens them. Tokens rise all the same.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	c, err := testredis.NewClock(t, 0)
	if err != nil {
		t.Skip("*** CLOCKS NOT TESTED:", err)
	}
	s := testredis.StartWithClock(t, c)
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "10m")
	holder, other, fence := harness.DialHearing(t, p.Addr()), harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	last := int64(0)
	rises := func() {
		token := harness.Number(t, fence.Do("LOCK", "f", "FENCE"))
		if token <= last {
			t.Errorf("%d after %d", token, last)
		}
		last = token
		fence.Do("UNLOCK", "f")
	}
	rises()
	harness.Expect(t, holder, ok, "LOCK", "k")
	harness.Expect(t, other, null, "LOCK", "k")
	c.Step(time.Hour)
	harness.Expect(t, other, ok, "LOCK", "k")
	if got, want := holder.Read(), lostPush("k", "clock"); got != want {
		t.Errorf("told %q", got)
	}
	rises()
	c.Step(-2 * time.Hour)
	rises()
	time.Sleep(2 * time.Second) // all are looked at
	if got := holder.Do("LOCK", "k"); !strings.HasPrefix(got, "-LOCKLOST ") {
		t.Errorf("the first LOCK after a loss: %q", got)
	}
	harness.Expect(t, holder, "_\r\n", "LOCK", "k")
	harness.Expect(t, other, yes, "UNLOCK", "k")
}

// A named owner's lock lasts for its lease, whatever becomes of the connection that took it.
func TestOwnersLockRunsOut(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "2s")
	other := harness.Dial(t, p.Addr())
	rivals := map[string]string{"LOCK": "LOCK", "FAIRLOCK": "FAIRLOCK", "WLOCK": "RLOCK", "RLOCK": "WLOCK"}
	for verb := range rivals {
		w := harness.Dial(t, p.Addr())
		harness.Expect(t, w, ok, verb, verb, "OWNER", "me", "PX", "8000")
		w.Close()
	}
	for verb, rival := range rivals {
		harness.Expect(t, other, null, rival, verb)
	}
	for verb, rival := range rivals {
		harness.Expect(t, other, ok, rival, verb, "BLOCK", "0")
	}
}
