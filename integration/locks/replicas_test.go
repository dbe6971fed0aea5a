package locks

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// replicated is a Redis with one replica that is in step.
func replicated(t *testing.T) (master, replica *testredis.Server) {
	t.Helper()
	master = testredis.Start(t, "--repl-diskless-sync-delay", "0")
	replica = testredis.Start(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.Port()))
	harness.Eventually(t, "the replica is in step", func() bool {
		info, err := redis.String(master.Do(t, "INFO", "replication"), nil)
		return err == nil && strings.Contains(info, "state=online")
	})
	return master, replica
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	master, replica := replicated(t)
	p := harness.StartProxy(t, master.URL(), "--lock-watchdog-timeout", "9s")
	w, other := harness.Dial3(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Eventually(t, "the replica has it in time", func() bool { return w.Do("LOCK", "k", "REPLICAS", "1", "BLOCK", "10000") == ok })
	if !exists(t, replica, "k") {
		t.Error("the replica that was waited for does not have the lock")
	}
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "k")

	heard := listen(t, master, "redisson_lock__channel:{k}")
	for _, tail := range []string{"", "OWNER me EX 30", "OWNER me PX 60000", "BLOCK 100", "BLOCK 5000", "EX 10", "FENCE", "PX 300"} {
		began := time.Now()
		args := strings.Split(strings.TrimSpace("LOCK k REPLICAS 2 "+tail), " ")
		if got := w.Do(args...); !strings.HasPrefix(got, "-NOREPLICAS ") {
			t.Errorf("%q with one replica: %q", args, got)
		}
		took := time.Since(began)
		if took > harness.Bound(5*time.Second) {
			t.Errorf("%q took %v", args, took)
		}
		for _, key := range harness.Keys(t, master) {
			// A token that was given out is never given again.
			if !strings.HasPrefix(key, "redisson_lock_token:") {
				t.Errorf("%q left %q", args, key)
			}
		}
		if !strings.HasPrefix(tail, "PX") { // that one may have run out by then
			expectHeard(t, heard, "redisson_lock__channel:{k} 0")
		}
		if got := other.Do("LOCKLIST"); got != "*0\r\n" {
			t.Errorf("%q left on the proxy %q", args, got)
		}
		t.Logf("%q: refused after %v", strings.Join(args, " "), took.Round(time.Millisecond))
	}
	if !w.Silent(500 * time.Millisecond) {
		t.Errorf("a lock that was never given was reported lost: %q", w.Read())
	}
	// A hold that was there before stays as it was.
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k", "EX", "100")
	if got := w.Do("LOCK", "k", "REPLICAS", "2"); !strings.HasPrefix(got, "-NOREPLICAS ") {
		t.Errorf("re-entry: %q", got)
	}
	if h := hash(t, master, "k"); h[onlyOwner(t, master, "k")] != "1" {
		t.Errorf("after a refused re-entry: %v", h)
	}
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "k")
}

// What an owner holds already is not taken from it because a second, idempotent request wanted more replicas than there are.
func TestReplicasOnceKeepsTheOlderHold(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	master, _ := replicated(t)
	first := harness.StartProxy(t, master.URL(), "--lock-watchdog-timeout", lease.String())
	second := harness.StartProxy(t, master.URL(), "--lock-watchdog-timeout", lease.String())
	here, there := harness.Dial(t, first.Addr()), harness.Dial(t, second.Addr())
	harness.Expect(t, here, "+OK\r\n", "LOCK", "k", "OWNER", "me", "EX", "30")
	for _, w := range []*harness.Wire{here, there} {
		if got := w.Do("LOCK", "k", "OWNER", "me", "EX", "30", "REPLICAS", "2"); !strings.HasPrefix(got, "-NOREPLICAS ") {
			t.Errorf("%q", got)
		}
		if h := hash(t, master, "k"); h["me"] != "1" {
			t.Fatalf("the hold that was there before: %v", h)
		}
	}
	time.Sleep(2 * lease)
	if h := hash(t, master, "k"); h["me"] != "1" {
		t.Errorf("the hold that was there before is not renewed any more: %v", h)
	}
	harness.Expect(t, here, ":1\r\n", "UNLOCK", "k", "OWNER", "me")
}

func TestReplicaStopped(t *testing.T) {
	t.Parallel()
	master, replica := replicated(t)
	p := harness.StartProxy(t, master.URL(), "--lock-watchdog-timeout", "3s")
	w, waiter := harness.DialHearing(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Eventually(t, "the replica has it in time", func() bool { return w.Do("LOCK", "held", "REPLICAS", "1") == ok })
	replica.Stop()
	defer replica.Cont()
	began := time.Now()
	if got := waiter.Do("LOCK", "k", "REPLICAS", "1"); !strings.HasPrefix(got, "-NOREPLICAS ") {
		t.Fatalf("the replica is stopped: %q", got)
	}
	took := time.Since(began)
	t.Logf("refused after %v", took.Round(time.Millisecond))
	if took > harness.Bound(5*time.Second) {
		t.Errorf("refused after %v", took)
	}
	if exists(t, master, "k") {
		t.Error("the refused lock is still there")
	}
	// A renewal waits for no replica.
	if !w.Silent(4 * time.Second) {
		t.Errorf("the holder was told %q", w.Read())
	}
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "held")
}

// MULTILOCK waits for the replicas of every lock, and once more when the leases begin.
func TestMultilockReplicas(t *testing.T) {
	t.Parallel()
	master, replica := replicated(t)
	p := harness.StartProxy(t, master.URL())
	holder, w := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "z")
	harness.Eventually(t, "the replica has them in time", func() bool {
		w.Send("MULTILOCK", "3", "z", "b", "a", "REPLICAS", "1", "PX", "90000", "BLOCK", "0")
		harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, holder, "z") == 1 })
		harness.Expect(t, holder, ":1\r\n", "UNLOCK", "z")
		got := w.Read()
		if got == "+OK\r\n" {
			return true
		}
		if !strings.HasPrefix(got, "-NOREPLICAS ") {
			t.Fatal(got)
		}
		harness.Expect(t, holder, "+OK\r\n", "LOCK", "z", "BLOCK", "0")
		return false
	})
	for _, key := range []string{"a", "b", "z"} {
		if left := replica.Do(t, "PTTL", key).(int64); left < 60000 || left > 90000 {
			t.Errorf("the replica has %s for %d ms", key, left)
		}
	}
	harness.Expect(t, w, ":3\r\n", "MULTIUNLOCK", "3", "a", "b", "z")

	harness.Expect(t, holder, "+OK\r\n", "LOCK", "z")
	w.Send("MULTILOCK", "3", "z", "b", "a", "REPLICAS", "1", "BLOCK", "0")
	harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, holder, "z") == 1 })
	replica.Stop()
	harness.Expect(t, holder, ":1\r\n", "UNLOCK", "z")
	if got := w.Read(); !strings.HasPrefix(got, "-NOREPLICAS ") {
		t.Error(got)
	}
	harness.Expect(t, holder, ":0\r\n", "EXISTS", "a", "b", "z")
	replica.Cont()
}
