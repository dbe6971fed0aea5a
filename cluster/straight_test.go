package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// keyedOf are the commands of lines that are words with spaces between, of which the second is the key.
func keyedOf(all table, lines []string) (keyed []Keyed, plans []*Plan) {
	for _, l := range lines {
		cmd := all.command(strings.Fields(l)...)
		keyed = append(keyed, Keyed{Raw: cmd.Raw, Slot: Slot(cmd.Args[1])})
		plans = append(plans, NewPlan(cmd))
	}
	return keyed, plans
}

// Without errors no plan is made, and the replies come in the order of the commands, whichever nodes give them.
func TestStraight(t *testing.T) {
	t.Parallel()
	c := openCluster(t, testredis.StartCluster(t, 3, 0), Options{Refresh: time.Hour, RetryFor: 10 * time.Second})
	cl := newClient(t, c, learn(t, c), 2)
	for _, n := range []int{1, 2, 128} {
		var lines, want []string
		for i := range n {
			lines = append(lines, fmt.Sprintf("SET {%d}%d value%d", i, n, i), fmt.Sprintf("GET {%d}%d", i, n))
			value := fmt.Sprintf("value%d", i)
			want = append(want, "+OK\r\n", fmt.Sprintf("$%d\r\n%s\r\n", len(value), value))
		}
		var got replyList
		keyed, _ := keyedOf(cl.table, lines)
		if !cl.e.Straight(t.Context(), keyed, &got, func() []*Plan { t.Fatal("plans were made"); return nil }) {
			t.Fatalf("%d keys: not answered", n)
		}
		if strings.Join(got, "") != strings.Join(want, "") {
			t.Errorf("%d keys: got %q, want %q", n, got, want)
		}
		if cl.e.Upstream <= 0 {
			t.Errorf("%d keys: it took Redis no time", n)
		}
	}
}

// An error, a long reply or a slot without a master has the plans made. Each has its reply then, nothing was run twice, and nothing was handed
// over twice.
func TestStraightNeedsPlans(t *testing.T) {
	t.Parallel()
	c := openCluster(t, testredis.StartCluster(t, 3, 0), Options{Refresh: time.Hour, RetryFor: 10 * time.Second})
	cl := newClient(t, c, learn(t, c), 2)
	cl.expect("SET text x", "+OK\r\n")
	for name, second := range map[string]struct{ line, want string }{
		"an error": {"INCR text", "-ERR value is not an integer or out of range\r\n"},
		"long":     {"SETRANGE long 1000000 x", ":1000001\r\n"},
	} {
		for i := range 3 {
			counter := fmt.Sprintf("counter:%s:%d", strings.ReplaceAll(name, " ", "-"), i)
			lines := []string{"INCR " + counter, second.line, "INCR " + counter}
			if name == "long" {
				lines = append(lines, "GET long")
			}
			var got replyList
			keyed, plans := keyedOf(cl.table, lines)
			if cl.e.Straight(t.Context(), keyed, &got, func() []*Plan { return plans }) || len(got) > 0 {
				t.Fatalf("%s: no plans were made, and %d replies were handed over", name, len(got))
			}
			for at, want := range []string{":1\r\n", second.want, ":2\r\n"} {
				if p := plans[at]; p.Err != nil || string(p.Reply) != want {
					t.Errorf("%s: %s: got %.100q and %v, want %q", name, lines[at], p.Reply, p.Err, want)
				}
			}
			if name == "long" && (plans[3].Err != nil || len(plans[3].Reply) != len("$1000001\r\n")+1000001+2) {
				t.Errorf("the long reply has %d bytes, and %v", len(plans[3].Reply), plans[3].Err)
			}
		}
	}
}

// While a slot has no master nothing is sent before the plans are made, and the client gets Redis' own words when that lasts.
func TestStraightWithoutMaster(t *testing.T) {
	t.Parallel()
	c := openCluster(t, testredis.StartCluster(t, 3, 0), Options{Refresh: time.Hour, RetryFor: 10 * time.Second})
	cl := newClient(t, c, learn(t, c), 2)
	broken := *c.Snapshot()
	broken.whole = false
	slot := Slot([]byte("nobody"))
	broken.give(slot, nil)
	c.snapshot.Store(&broken)
	keyed, plans := keyedOf(cl.table, []string{"INCR somebody", "INCR nobody"})
	var got replyList
	made := 0
	if cl.e.Straight(t.Context(), keyed, &got, func() []*Plan { made++; return plans }) || made != 1 {
		t.Fatalf("plans were made %d times", made)
	}
	for _, p := range plans { // the nodes know where the slot is, and say so
		if p.Err != nil || string(p.Reply) != ":1\r\n" {
			t.Errorf("got %q and %v", p.Reply, p.Err)
		}
	}
}

// After the end of the cluster's context each command has that for its error.
func TestStraightClosed(t *testing.T) {
	t.Parallel()
	c := openCluster(t, testredis.StartCluster(t, 3, 0), Options{Refresh: time.Hour, RetryFor: 10 * time.Second})
	cl := newClient(t, c, learn(t, c), 2)
	c.Close()
	keyed, plans := keyedOf(cl.table, []string{"INCR a", "INCR b"})
	cl.e.Straight(context.Background(), keyed, new(replyList), func() []*Plan { return plans })
	for _, p := range plans {
		if !upstream.IsNotSent(p.Err) {
			t.Errorf("got %q and %v", p.Reply, p.Err)
		}
	}
}
