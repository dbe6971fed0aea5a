package locks

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What Redisson's own tests leave out, as far as it has no test of its own elsewhere: redisson_cases_test.go has the list.

// A lock without TTL, from before a PERSIST or of a program of its own: it is held until somebody frees it. Redisson's
// fenced lock takes it for its own, its fair waiters ask without pause.
func TestLockWithoutTTL(t *testing.T) {
	t.Parallel()
	const theirs = "0f8fad5b-d9cb-469f-a165-70867728950e:52"
	for name, c := range map[string]struct {
		made     []string
		verbs    []string
		channel  string
		theirEnd string
	}{
		"plain": {[]string{theirs, "1"}, []string{"LOCK k", "LOCK k FENCE", "LOCK k OWNER o EX 30 FENCE"}, "redisson_lock__channel:{k}", "0"},
		"write": {[]string{"mode", "write", theirs + ":write", "1"}, []string{"RLOCK k", "WLOCK k"}, "redisson_rwlock:{k}", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testredis.Start(t)
			p := harness.StartProxy(t, s.URL(), "--wait-poll", "500ms")
			w, asker := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
			take := func() { w.Do(append([]string{"HSET", "k"}, c.made...)...) }
			for _, verb := range c.verbs {
				take()
				words := strings.Fields(verb)
				harness.Expect(t, w, null, words...)
				before, began := scriptCalls(t, s), time.Now()
				harness.Expect(t, w, null, append(words, "BLOCK", "1500")...)
				if calls := scriptCalls(t, s) - before; calls > 8+int(4*time.Since(began)/time.Second) {
					t.Errorf("%s: %d scripts in %v", verb, calls, time.Since(began))
				}
				if got := pttl(t, s, "k"); got != -1 {
					t.Errorf("%s: PTTL %d of what another holds", verb, got)
				}
				for _, told := range []bool{true, false} { // its end, with a message and without
					take()
					w.Send(append(words, "BLOCK", "0")...)
					harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, asker, "k") == 1 })
					if !w.Silent(moment) {
						t.Fatalf("%s: %q", verb, w.Read())
					}
					s.Do(t, "DEL", "k")
					if told {
						s.Do(t, "PUBLISH", c.channel, c.theirEnd)
					}
					if got := w.Read(); got != ok && harness.Number(t, got) == 0 {
						t.Fatal(got)
					}
					owner := []string{}
					if i := strings.Index(verb, "OWNER"); i > 0 {
						owner = []string{"OWNER", "o"}
					}
					harness.Expect(t, w, yes, append([]string{"UNLOCK", "k"}, owner...)...)
				}
			}
			take()
			harness.Expect(t, asker, yes, "UNLOCK", "k", "FORCE")
			harness.Expect(t, w, ok, strings.Fields(c.verbs[0])...)
			// One's own that was made so is renewed with a TTL.
			s.Do(t, "PERSIST", "k")
			harness.Expect(t, w, yes, "RENEW", "k", "EX", "10")
			if got := pttl(t, s, "k"); got <= 0 || got > 10000 {
				t.Errorf("PTTL %d after RENEW EX 10", got)
			}
		})
	}
}

// A key of a wrong type among those renewed together: its holder is told, all others stay renewed. Redisson's renewal ends there.
func TestPoisonedKeyAmongThoseRenewed(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "6s")
	holder, rival := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	verbs := []string{"LOCK", "RLOCK", "WLOCK"}
	names := []string{"a", "b", "c", "d", "e"}
	for _, verb := range verbs {
		for _, name := range names {
			harness.Expect(t, holder, ok, verb, verb+name)
		}
	}
	for _, verb := range verbs {
		s.Do(t, "SET", verb+"c", "poison")
	}
	for end := time.Now().Add(7 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, verb := range verbs {
			for _, name := range names {
				if left := pttl(t, s, verb+name); name != "c" && left <= 0 {
					t.Fatalf("PTTL %d of %s", left, verb+name)
				}
			}
		}
	}
	for _, verb := range verbs {
		for _, name := range names {
			key := verb + name
			if name == "c" {
				if got := holder.Do("UNLOCK", key); got[0] != '-' {
					t.Errorf("UNLOCK of %s: %q", key, got)
				}
				if got := s.Do(t, "GET", key); string(got.([]byte)) != "poison" {
					t.Errorf("%s is %q", key, got)
				}
				continue
			}
			if verb != "RLOCK" {
				harness.Expect(t, rival, null, verb, key)
			}
			harness.Expect(t, holder, yes, "UNLOCK", key)
		}
	}
}

// The master dies after it has granted and before its replica knows: with REPLICAS nobody was told that they hold it, and
// the replica, which takes over, gives it to another.
func TestMasterDiesBeforeItsReplicaHasTheLock(t *testing.T) {
	t.Parallel()
	master := testredis.Start(t, "--repl-diskless-sync-delay", "0")
	link := testredis.NewProxy(t, master.Addr())
	_, port, _ := net.SplitHostPort(link.Addr())
	replica := testredis.Start(t, "--replicaof", "127.0.0.1", port)
	p := harness.StartProxy(t, master.URL())
	first := harness.Dial(t, p.Addr())
	harness.Eventually(t, "the replica is in step", func() bool { return first.Do("LOCK", "first", "REPLICAS", "1", "SELF") == ok })
	link.Latency(time.Minute)
	waiting := map[string]*harness.Wire{}
	for i, tail := range []string{"", "OWNER me", "OWNER me FENCE"} {
		key := fmt.Sprint("k", i)
		waiting[key] = harness.Dial(t, p.Addr())
		harness.Expect(t, waiting[key], pong, "PING")
		waiting[key].Send(strings.Fields("LOCK " + key + " REPLICAS 1 BLOCK 10000 " + tail)...)
	}
	for key, w := range waiting { // or it has been given back already: WAIT waits for a second
		harness.Eventually(t, "the master has granted", func() bool { return exists(t, master, key) || !w.Silent(time.Microsecond) })
	}
	master.Kill()
	link.Disable() // what was under way to the replica is lost
	link.Clear()
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	next := harness.Dial(t, harness.StartProxy(t, replica.URL()).Addr())
	for key, w := range waiting {
		if got := w.Read(); got[0] != '-' {
			t.Errorf("%s: answered %q", key, got)
		}
		harness.Expect(t, next, ok, "LOCK", key)
	}
	harness.Expect(t, next, null, "LOCK", "first")
}
