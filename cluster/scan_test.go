package cluster

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// scanAll runs a SCAN to its end, and returns how often each key came, and in how many steps.
func (c *client) scanAll(t testing.TB, args ...string) (keys map[string]int, steps int) {
	t.Helper()
	keys = map[string]int{}
	for cursor := "0"; ; {
		got := c.run([]*Plan{NewPlan(c.table.command(append([]string{"SCAN", cursor}, args...)...))})[0]
		v, ok := resp.ParseReply([]byte(got))
		if !ok || len(v.Elems) != 2 {
			t.Fatalf("got %q", got)
		}
		for _, k := range v.Elems[1].Elems {
			keys[string(k.Text)]++
		}
		steps++
		if c.step != nil {
			c.step(steps)
		}
		cursor = string(v.Elems[0].Text)
		if n, err := strconv.ParseUint(cursor, 10, 63); err != nil || n >= 1<<53 && !c.large {
			t.Fatalf("cursor %s", cursor)
		}
		if cursor == "0" {
			return keys, steps
		}
	}
}

func fill(t testing.TB, cl *client, n int, name func(int) string) {
	t.Helper()
	lines := make([]string, n)
	for i := range lines {
		lines[i] = "SET " + name(i) + " v"
	}
	for i, got := range cl.do(lines...) {
		if got != "+OK\r\n" {
			t.Fatalf("%s: got %q", lines[i], got)
		}
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{})
	cl := newClient(t, c, learn(t, c), 2)
	// A node that does not say in time what it knows of its slots is scanned once more.
	eventually(t, "nothing comes, in three steps", func() bool {
		keys, steps := cl.scanAll(t)
		if len(keys) != 0 {
			t.Errorf("%d keys in %d steps", len(keys), steps)
		}
		return steps == 3
	})
	cl.expect("SCAN", "-ERR wrong number of arguments for 'scan' command\r\n")
	cl.expect("SCAN x", "-ERR invalid cursor\r\n")
	cl.expect("SCAN 0 COUNT", "-ERR syntax error\r\n")
	cl.expect("SCAN 0 COUNT 0", "-ERR syntax error\r\n")
	const n = 3000
	fill(t, cl, n, func(i int) string { return fmt.Sprint("key", i) })
	cl.expect("SADD aset 1", ":1\r\n")
	eventually(t, "each key comes once", func() bool {
		keys, steps := cl.scanAll(t, "COUNT", "100", "MATCH", "key*")
		if len(keys) != n || steps < n/100 {
			t.Errorf("%d keys in %d steps", len(keys), steps)
		}
		for _, times := range keys {
			if times != 1 {
				return false
			}
		}
		return steps <= 2*n/100
	})
	if keys, _ := cl.scanAll(t, "TYPE", "set"); len(keys) != 1 || keys["aset"] != 1 {
		t.Errorf("got %v", keys)
	}
	// Any cursor is an answer, as in Redis, and leads to an end.
	for _, cursor := range []string{"1", "7", "123456789", "9007199254740991", "9223372036854775807"} {
		if got := cl.do("SCAN " + cursor)[0]; got[0] != '*' {
			t.Errorf("SCAN %s: got %q", cursor, got)
		}
	}
}

// A slot that is half moved is scanned on both sides.
func TestScanOfMigratingSlots(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{})
	cl := newClient(t, c, learn(t, c), 3)
	const n = 900
	fill(t, cl, n, func(i int) string { return fmt.Sprint("key", i) })
	slots := []int{0, 1, 700, 5461, 9000, Slots - 1}
	for _, slot := range slots {
		tag := keyIn(slot)
		fill(t, cl, 20, func(i int) string { return fmt.Sprintf("{%s}%d", tag, i) })
		from, err := tc.Owner(slot)
		if err != nil {
			t.Fatal(err)
		}
		to := tc.Servers[0]
		if from == to {
			to = tc.Servers[2]
		}
		if err := tc.BeginMove(slot, from, to); err != nil {
			t.Fatal(err)
		}
		if moved, err := tc.MoveKeys(slot, from, to, 10); moved != 10 || err != nil {
			t.Fatal(moved, err)
		}
	}
	want := n + 20*len(slots)
	keys, steps := cl.scanAll(t, "COUNT", "50")
	t.Logf("%d steps", steps)
	if len(keys) != want {
		t.Errorf("%d keys of %d", len(keys), want)
	}
}

func TestScanWhileResharding(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{})
	all := learn(t, c)
	cl := newClient(t, c, all, 2)
	const n, tagged = 2000, 60
	fill(t, cl, n, func(i int) string { return fmt.Sprint("key", i) })
	slots := []int{0, 1, 2, 3000, 5461, 5462, 8000, 10923, 12000, Slots - 1}
	for _, slot := range slots {
		tag := keyIn(slot)
		fill(t, cl, tagged, func(i int) string { return fmt.Sprintf("{%s}%d", tag, i) })
	}
	want := n + tagged*len(slots)
	m := startMover(t, tc, slots)
	scans, total, came, lost := 0, 0, 0, 0
	for over := time.Now().Add(4 * time.Minute); scans < 5 || m.moves.Load() < 15 && time.Now().Before(over); scans++ {
		keys, steps := cl.scanAll(t, "COUNT", "100")
		total += steps
		for _, times := range keys {
			came += times
		}
		if len(keys) != want {
			t.Fatalf("scan %d: %d keys of %d", scans, len(keys), want)
		}
		lost += want - naiveScan(t, tc)
	}
	m.end()
	t.Logf("%d slots moved; %d scans, %d steps each, each key %.1f times; node by node %d keys were missed",
		m.moves.Load(), scans, total/scans, float64(came)/float64(scans*want), lost)
	if m.err != nil || m.moves.Load() < 15 {
		t.Fatal(m.moves.Load(), m.err)
	}
}

// naiveScan counts the keys that SCAN finds node by node.
func naiveScan(t *testing.T, tc *testredis.Cluster) int {
	t.Helper()
	keys := map[string]bool{}
	for _, s := range tc.Servers {
		for cursor := "0"; ; {
			reply, err := redis.Values(s.Do(t, "SCAN", cursor, "COUNT", 100), nil)
			if err != nil {
				t.Fatal(err)
			}
			found, _ := redis.Strings(reply[1], nil)
			for _, k := range found {
				keys[k] = true
			}
			if cursor, _ = redis.String(reply[0], nil); cursor == "0" {
				break
			}
		}
	}
	return len(keys)
}

// A slot may lose its owner between the look for one and the step itself.
func TestScanGoesByOneTopology(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{Refresh: time.Hour})
	cl := newClient(t, c, learn(t, c), 2)
	scan := NewPlan(cl.table.command("SCAN", "0"))
	if _, pending := cl.e.gather([]*Plan{scan}); !pending || cl.e.round.scanning != scan {
		t.Fatal("nothing is to be scanned")
	}
	whole := c.Snapshot()
	broken := *whole
	broken.whole = false
	for slot := range Slots {
		if broken.Owner(slot) == whole.Owner(0) {
			broken.give(slot, nil)
		}
	}
	c.snapshot.Store(&broken)
	cl.e.scan(t.Context(), scan)
	if v, ok := resp.ParseReply(scan.Reply); scan.Err != nil || !ok || len(v.Elems) != 2 {
		t.Errorf("got %q, %v", scan.Reply, scan.Err)
	}
	c.snapshot.Store(whole)
}

// A handler that panics closes its client, and nobody else's.
func TestAcquireThatPanicsLeavesTheClusterUnlocked(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*Cluster, *Node){"Acquire": (*Cluster).Acquire, "Release": (*Cluster).Release} {
		c := &Cluster{}
		func() {
			defer func() { _ = recover() }()
			call(c, nil)
		}()
		if !c.mu.TryLock() {
			t.Errorf("%s has left the cluster locked", name)
		}
	}
}

// A cursor is read as Redis reads it: what it takes for 0 begins a scan of all nodes, and what cannot be one of ours is refused.
func TestOddCursors(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]struct {
		cursor uint64
		ok     bool
	}{
		"0": {0, true}, "": {0, true}, "+0": {0, true}, "-0": {0, true}, "000": {0, true}, "+17": {17, true},
		"-1": {1<<64 - 1, true}, "9223372036854775808": {1 << 63, true},
		"18446744073709551616": {}, "x": {}, "+": {}, "-": {}, "--1": {}, " 1": {}, "1 ": {},
	} {
		p := NewPlan(Command{Args: [][]byte{[]byte("SCAN"), []byte(word)}, Facts: &Facts{Name: "scan"}})
		if got, ok := p.cursor(); ok != want.ok || ok && got != want.cursor {
			t.Errorf("%q: %d, %v", word, got, ok)
		}
		refused := want.ok && want.cursor >= 1<<63
		if (p.kind == byCursor) != (want.ok && !refused) || refused != (string(p.Reply) == "-ERR invalid cursor\r\n") {
			t.Errorf("%q: scan %v, %q", word, p.kind == byCursor, p.Reply)
		}
	}
}
