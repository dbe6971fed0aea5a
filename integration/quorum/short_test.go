package quorum

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// With two nodes of five away nothing changes, with three every verb says NOQUORUM, soon, and leaves nothing on the others.
func TestQuorumShort(t *testing.T) {
	t.Parallel()
	// Each NOQUORUM takes a node time-out, and all of them are to be over well within f's lease.
	q := startQuorum(t, 5, "--quorum-max-lease", "10s", "--lock-watchdog-timeout", "10s", "--quorum-node-timeout", "150ms")
	w, other := harness.Dial(t, q.p.Addr()), harness.Dial(t, q.p.Addr())
	q.nodes[0].Kill()
	q.nodes[3].Stop()
	verbs := func(want map[string]string, order ...string) {
		t.Helper()
		for _, command := range order {
			wants(t, w, want[command], strings.Fields(command)...)
		}
	}
	renewed := time.Now() // before all of them are sent: none is renewed earlier
	order := []string{"LOCK a FENCE", "RLOCK r", "WLOCK w", "FAIRLOCK f PX 9000", "MULTILOCK 2 m1 m2", "LOCK o OWNER me PX 7900", "RENEW a", "RENEW f PX 9000", "LOCKINFO a"}
	verbs(map[string]string{
		"LOCK a FENCE": ":", "RLOCK r": "+OK", "WLOCK w": "+OK", "FAIRLOCK f PX 9000": "+OK", "MULTILOCK 2 m1 m2": "+OK",
		"LOCK o OWNER me PX 7900": "+OK", "RENEW a": ":1", "RENEW f PX 9000": ":1", "LOCKINFO a": "*12",
	}, order...)
	for _, key := range []string{"a", "r", "w", "f", "m1", "m2", "o"} {
		wants(t, other, "-NOTHELD ", "UNLOCK", key)
	}
	wants(t, other, "$-1", "LOCK", "a")
	wants(t, w, ":1", "UNLOCK", "r")
	wants(t, w, ":1", "UNLOCK", "o", "OWNER", "me")
	frees(t, w, ":2\r\n", "MULTIUNLOCK", "2", "m1", "m2")
	frees(t, w, ":1\r\n", "UNLOCK", "w", "FORCE")
	for _, key := range []string{"m1", "m2", "w"} {
		q.givenBack(key, 0, 3)
	}

	q.nodes[1].Kill()
	promptly(t, "the first NOQUORUM", func() { wants(t, other, "-NOQUORUM 2 of 5 nodes answered, 3 are needed: ", "LOCK", "new") })
	for _, command := range []string{"RENEW a", "UNLOCK a", "LOCK new", "LOCK new BLOCK 200", "LOCK new BLOCK 0", "FAIRLOCK new BLOCK 200", "RLOCK new", "WLOCK new FENCE",
		"MULTILOCK 2 new new2", "LOCK new OWNER me PX 7900", "LOCKINFO a", "UNLOCK new FORCE"} {
		promptly(t, command, func() { wants(t, w, "-NOQUORUM ", strings.Fields(command)...) })
	}
	q.givenBack("new", 0, 1, 3)
	q.givenBack("new2", 0, 1, 3)
	q.nodes[3].Cont()
	harness.Eventually(t, "three are enough", func() bool { return strings.HasPrefix(other.Do("LOCK", "new"), "+OK") })
	for _, key := range []string{"f", "a"} { // a's is said again; what it began went on
		got, err := w.TryQuorum("UNLOCK", key)
		late := time.Since(renewed) > 7*time.Second // a busy machine took a lease for all that
		if got != ":1\r\n" && !(late && strings.HasPrefix(got, "-LOCKLOST ")) {
			t.Errorf("UNLOCK %s: %q %v", key, got, err)
		}
	}
	wants(t, other, "+OK", "LOCK", "a", "BLOCK", "30000")
}

// frees sends what gives locks back, and says whether it did; goroutines may call it. Said again after NOQUORUM it says how many were left,
// of which none may stay.
func frees(t *testing.T, w *harness.Wire, want string, words ...string) bool {
	t.Helper()
	got, err := w.Try(words...)
	if strings.HasPrefix(got, "-NOQUORUM ") {
		if got, err = w.TryQuorum(words...); err == nil && strings.HasPrefix(got, ":") && got <= want {
			return true
		}
	}
	if err != nil || got != want {
		t.Errorf("%s: %q %v, not %q", strings.Join(words, " "), got, err, want)
		return false
	}
	return true
}

// givenBack waits until a key is on no node. What was not won is taken back from a node that is late a moment after the reply, and well
// before the lease of 8 s is over.
func (q *quorum) givenBack(key string, away ...int) {
	q.t.Helper()
	for end := time.Now().Add(harness.Bound(6 * time.Second)); q.holding(key, away...) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			q.t.Fatalf("%s is left behind on %v", key, q.holding(key, away...))
		}
	}
}

// Of four nodes one may be away, not two.
func TestQuorumOfFour(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 4)
	w := harness.Dial(t, q.p.Addr())
	q.links[2].Disable()
	wants(t, w, "+OK", "LOCK", "k")
	wants(t, w, ":1", "UNLOCK", "k")
	q.links[0].Disable()
	wants(t, w, "-NOQUORUM 2 of 4 nodes answered, 3 are needed: ", "LOCK", "k")
	q.givenBack("k")
}

// With two nodes away a lock is renewed for longer than its lease. When they are back they get it, though they were cut off for longer
// than a lease. Its majority gone its holder is told by the deadline.
func TestQuorumWatchdog(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 5)
	w, owner := harness.DialHearing(t, q.p.Addr()), harness.Dial(t, q.p.Addr())
	q.links[0].Disable()
	q.links[1].BlackHole()
	wants(t, w, "+OK", "LOCK", "k")
	wants(t, owner, "+OK", "LOCK", "o")
	for end := time.Now().Add(13 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, key := range []string{"k", "o"} {
			if on := q.holding(key); len(on) != 3 {
				t.Fatalf("%s is on %v", key, on)
			}
		}
	}
	q.links[0].Enable()
	q.links[1].Clear()
	for _, key := range []string{"k", "o"} {
		harness.Eventually(t, key+" is on all of them", func() bool { return len(q.holding(key)) == 5 })
	}
	for _, l := range q.links[:3] {
		l.Disable()
	}
	cut := time.Now()
	if push := w.Read(); push[0] != '>' || !strings.Contains(push, "lock-lost") || !strings.Contains(push, "unrenewed") {
		t.Fatalf("%q", push)
	}
	took := time.Since(cut)
	t.Logf("told %v after the majority had gone, with leases of 8 s", took)
	if took > harness.Bound(9*time.Second) { // by its deadline
		t.Error("told too late")
	}
	for _, l := range q.links[:3] {
		l.Enable()
	}
	for i := range 3 {
		harness.Eventually(t, "they are back", func() bool { return harness.NodeState(owner, i, "state") == "up" })
	}
	wants(t, w, "-LOCKLOST ", "UNLOCK", "k")
}

// A lock outlives the restarts of a majority, one after the other: nodes that have forgotten it get it again.
func TestQuorumRollingRestart(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	w, owner, other := harness.Dial(t, q.p.Addr()), harness.Dial(t, q.p.Addr()), harness.Dial(t, q.p.Addr())
	wants(t, w, "+OK", "LOCK", "k")
	wants(t, w, "+OK", "RLOCK", "r")
	wants(t, owner, "+OK", "LOCK", "o")
	onAll := func(what string) {
		t.Helper()
		for _, key := range []string{"k", "r", "o"} {
			harness.Eventually(t, key+" is "+what, func() bool { return len(q.holding(key)) == 3 })
		}
	}
	onAll("on each of them") // a LOCK is granted by a majority, and a slow node has it a moment later
	for i := range 2 {
		q.nodes[i].Restart()
		onAll("on it again")
	}
	wants(t, other, "$-1", "LOCK", "k")
	wants(t, other, "$-1", "WLOCK", "r")
	wants(t, other, "$-1", "LOCK", "o")
	wants(t, w, ":1", "UNLOCK", "k")
	wants(t, w, ":1", "UNLOCK", "r")
	wants(t, owner, ":1", "UNLOCK", "o")
	for _, key := range []string{"k", "r", "o"} {
		harness.Eventually(t, key+" is free everywhere", func() bool { return q.holding(key) == nil })
	}
}
