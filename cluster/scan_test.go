package cluster

import (
	"fmt"
	"strconv"
	"testing"

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
	if keys, steps := cl.scanAll(t); len(keys) != 0 || steps != 3 {
		t.Errorf("%d keys in %d steps", len(keys), steps)
	}
	cl.expect("SCAN", "-ERR wrong number of arguments for 'scan' command\r\n")
	cl.expect("SCAN x", "-ERR invalid cursor\r\n")
	cl.expect("SCAN 0 COUNT", "-ERR syntax error\r\n")
	cl.expect("SCAN 0 COUNT 0", "-ERR syntax error\r\n")
	const n = 3000
	fill(t, cl, n, func(i int) string { return fmt.Sprint("key", i) })
	cl.expect("SADD aset 1", ":1\r\n")
	keys, steps := cl.scanAll(t, "COUNT", "100", "MATCH", "key*")
	if len(keys) != n || steps < n/100 || steps > 2*n/100 {
		t.Errorf("%d keys in %d steps", len(keys), steps)
	}
	for key, times := range keys {
		if times != 1 {
			t.Errorf("%s came %d times", key, times)
		}
	}
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

// A scan goes over the masters in the order of their ids, and begins anew when they are not those that there were.
func TestScanGoesFromMasterToMaster(t *testing.T) {
	t.Parallel()
	s := thirds()
	ids := func(masters []*Node) (all string) {
		for _, n := range masters {
			all += n.ID
		}
		return all
	}
	masters, mark := s.scanned()
	if ids(masters) != "abc" {
		t.Fatal(ids(masters))
	}
	moved := thirds() // a slot has moved, and who is first: the masters are the same
	moved.give(0, moved.Owner(Slots-1))
	if again, same := moved.scanned(); ids(again) != "abc" || same != mark {
		t.Errorf("%s, %d and %d", ids(again), same, mark)
	}
	failed := thirdsOf("a", "d", "c")
	for name, c := range map[string]struct {
		cursor uint64
		by     *Snapshot
		node   string
		own    string
	}{
		"the beginning":             {0, s, "a", "0"},
		"within the first":          {cursorOf(t, scanPosition{0, mark, 17}), s, "a", "17"},
		"the beginning of a second": {cursorOf(t, scanPosition{1, mark, 0}), s, "b", "0"},
		"the same, a slot moved":    {cursorOf(t, scanPosition{1, mark, 5}), moved, "b", "5"},
		"another master":            {cursorOf(t, scanPosition{1, mark, 5}), failed, "a", "0"},
		"no such master":            {cursorOf(t, scanPosition{3, mark, 5}), s, "a", "0"},
		"none of ours":              {1<<63 - 1, s, "a", "0"},
	} {
		p := NewPlan(Command{Args: [][]byte{[]byte("SCAN"), strconv.AppendUint(nil, c.cursor, 10), []byte("COUNT"), []byte("5")}, Facts: &Facts{Name: "scan"}})
		p.scanStep(c.by)
		want := string(resp.AppendCommand(nil, "SCAN", c.own, "COUNT", "5"))
		if u := p.only(); u != nil || len(p.units) != 1 || p.units[0].fixed.ID != c.node || string(p.units[0].raw) != want {
			t.Errorf("%s: %+v", name, p.units)
		}
	}
}

// cursorOf is the cursor of a position.
func cursorOf(t *testing.T, at scanPosition) uint64 {
	t.Helper()
	cursor, fits := at.cursor()
	if !fits || scanPositionOf(cursor) != at {
		t.Fatalf("%+v is %d", at, cursor)
	}
	return cursor
}

// thirds is a cluster of three masters with a third of the slots each.
func thirds() *Snapshot { return thirdsOf("a", "b", "c") }

func thirdsOf(ids ...string) *Snapshot {
	s := &Snapshot{whole: true}
	for i, id := range ids {
		n := &Node{ID: id}
		s.Masters = append(s.Masters, n)
		for slot := Slots * i / 3; slot < Slots*(i+1)/3; slot++ {
			s.give(slot, n)
		}
	}
	return s
}

// What a cursor holds, and that clients can hold it: it is below 2^63, and below 2^53 where that is promised.
func TestCursor(t *testing.T) {
	t.Parallel()
	const mark = 1<<scanMarkBits - 1
	bySlot := func(place uint64) uint64 { return place<<14 | Slots - 1 }
	for name, c := range map[string]struct {
		master  int
		own     uint64
		masters int
		next    scanPosition
		fits    bool
		doubles bool
	}{
		"one table":                   {1, 1<<32 - 1, 3, scanPosition{1, mark, 1<<32 - 1}, true, true},
		"by slot":                     {1, bySlot(1<<19 - 1), 3, scanPosition{1, mark, bySlot(1<<19 - 1)}, true, true},
		"by slot, larger":             {1, bySlot(1<<29 - 1), 3, scanPosition{1, mark, bySlot(1<<29 - 1)}, true, false},
		"by slot, too large":          {1, bySlot(1 << 29), 3, scanPosition{}, false, false},
		"the end of one":              {1, 0, 3, scanPosition{2, mark, 0}, true, true},
		"the end of all":              {2, 0, 3, scanPosition{}, true, true},
		"more masters than have room": {1023, 0, 2000, scanPosition{}, false, false},
	} {
		cursor, fits := scanPosition{master: c.master, mark: mark, own: 9}.after(c.own, c.masters)
		if fits != c.fits {
			t.Errorf("%s: fits %v", name, fits)
		}
		if got := scanPositionOf(cursor); fits && (got != c.next || cursor >= 1<<63 || (cursor < 1<<53) != c.doubles) {
			t.Errorf("%s: %d, %+v", name, cursor, got)
		}
	}
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
