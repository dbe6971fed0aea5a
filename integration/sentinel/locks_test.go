package sentinel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// heldLock is a lock taken before a failover.
type heldLock struct {
	db, take, give string
	w, waiter      *harness.Wire
}

func heldLocks(t *testing.T, p *harness.Proxy, when string) (all []*heldLock) {
	t.Helper()
	for _, db := range []string{"0", "3"} {
		for i, how := range []string{"LOCK KEY|UNLOCK KEY", "LOCK KEY EX 600|UNLOCK KEY",
			"LOCK KEY OWNER me EX 600|UNLOCK KEY OWNER me", "RLOCK KEY|UNLOCK KEY READ", "WLOCK KEY EX 600|UNLOCK KEY WRITE", "WLOCK KEY|UNLOCK KEY",
			"FAIRLOCK KEY|UNLOCK KEY", "FAIRLOCK KEY OWNER me EX 600|UNLOCK KEY OWNER me"} {
			key := fmt.Sprintf("%s-%s-%d", when, db, i)
			take, give, _ := strings.Cut(strings.ReplaceAll(how, "KEY", key), "|")
			h := &heldLock{db: db, take: take, give: give, w: harness.DialHearing(t, p.Addr()), waiter: harness.Dial(t, p.Addr())}
			harness.Expect(t, h.w, "+OK\r\n", "SELECT", db)
			harness.Expect(t, h.waiter, "+OK\r\n", "SELECT", db)
			harness.Expect(t, h.w, "+OK\r\n", strings.Fields(take)...)
			verb, _, _ := strings.Cut(take, " ")
			if verb == "RLOCK" {
				verb = "WLOCK" // a reader would not wait
			}
			h.waiter.Send(verb, key, "BLOCK", "0")
			all = append(all, h)
		}
	}
	return all
}

// TestSentinelFailoverLocks: of the locks taken before a failover those that the new master has stay, watched or not, and
// their waiters wait on; each of the others is reported lost, by a push and at UNLOCK, or is not held by its named owner any more, and its waiter is granted it.
// Fencing tokens go on rising.
func TestSentinelFailoverLocks(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testredis.Server){"kill": (*testredis.Server).Kill, "freeze": (*testredis.Server).Stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := testredis.StartGroup(t, testredis.GroupOptions{})
			p := harness.StartProxy(t, g.URL(), "--lock-watchdog-timeout", "2m") // longer than a failover takes on a busy machine
			kept := heldLocks(t, p, "kept")
			fence := harness.Dial(t, p.Addr())
			token := harness.Number(t, fence.Do("LOCK", "fence", "FENCE"))
			harness.Expect(t, fence, ":1\r\n", "UNLOCK", "fence")
			if got := harness.Number(t, fence.Do("WAIT", "2", "5000")); got != 2 {
				t.Fatalf("%d replicas in step", got)
			}
			harness.Eventually(t, "everything is on the replicas", func() bool {
				return len(harness.Keys(t, g.Nodes[1])) == len(harness.Keys(t, g.Nodes[0])) && len(harness.Keys(t, g.Nodes[2])) == len(harness.Keys(t, g.Nodes[0]))
			})
			former := g.Master()
			for _, n := range g.Nodes[1:] {
				n.Stop()
			}
			former.Do(t, "CLIENT", "KILL", "TYPE", "replica") // or they would read the rest of the stream first
			lost := heldLocks(t, p, "lost")
			last := harness.Number(t, fence.Do("LOCK", "fence", "FENCE"))
			if last <= token {
				t.Errorf("tokens %d, then %d", token, last)
			}
			g.Hasten()
			end(former)
			for _, n := range g.Nodes[1:] {
				n.Cont()
			}
			began := time.Now()
			g.AwaitSwitch(former)
			g.Calm()
			for _, h := range lost {
				if strings.Contains(h.take, "OWNER") { // its loss is pushed to nobody
					harness.Expect(t, h.waiter, "+OK\r\n")
					if got := h.w.Do(strings.Fields(h.give)...); !strings.HasPrefix(got, "-NOTHELD ") {
						t.Errorf("%s: %q", h.give, got)
					}
					continue
				}
				push := h.w.Read()
				if !strings.HasPrefix(push, ">4\r\n$9\r\nlock-lost\r\n") || !strings.Contains(push, "\r\nfailover\r\n") {
					t.Errorf("%s in db %s: the holder is told %q", h.take, h.db, push)
				}
				harness.Expect(t, h.waiter, "+OK\r\n")
				if got := h.w.Do(strings.Fields(h.give)...); !strings.HasPrefix(got, "-LOCKLOST ") {
					t.Errorf("%s: %q", h.give, got)
				}
			}
			t.Logf("%d lost locks reported and granted anew %v after the %s", len(lost), time.Since(began).Round(time.Millisecond), name)
			if got := fence.Do("UNLOCK", "fence"); !strings.HasPrefix(got, "-LOCKLOST ") {
				t.Errorf("the fenced lock: %q", got)
			}
			if now := harness.Number(t, fence.Do("LOCK", "fence", "FENCE")); now <= last {
				t.Errorf("the token fell from %d to %d", last, now)
			}
			for _, h := range kept {
				if !h.w.Silent(10 * time.Millisecond) {
					t.Errorf("%s, which the new master has: %q", h.take, h.w.Read())
				}
				if !h.waiter.Silent(10 * time.Millisecond) {
					t.Errorf("%s, which the new master has, was granted to another: %q", h.take, h.waiter.Read())
				}
				harness.Expect(t, h.w, ":1\r\n", strings.Fields(h.give)...)
				if got := h.waiter.Read(); got != "+OK\r\n" {
					t.Errorf("%s: the waiter got %q", h.take, got)
				}
			}
		})
	}
}
