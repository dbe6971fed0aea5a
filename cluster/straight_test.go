package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// straight carries plans out as Straight does, and makes them when made is called.
func (c *client) straight(ctx context.Context, plans []*Plan, to upstream.Sink, made func() []*Plan) bool {
	var cmds [][]byte
	var slots []int
	for _, p := range plans {
		cmds, slots = append(cmds, p.cmd.Raw), append(slots, p.units[0].slot)
	}
	return c.e.Straight(ctx, cmds, slots, to, made)
}

// plansOf are the plans of lines that are words with spaces between.
func (all table) plansOf(lines ...string) (plans []*Plan) {
	for _, l := range lines {
		plans = append(plans, NewPlan(all.command(strings.Fields(l)...)))
	}
	return plans
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
		if !cl.straight(t.Context(), cl.table.plansOf(lines...), &got, func() []*Plan { t.Fatal("plans were made"); return nil }) {
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

// An error or a long reply has the plans made. Each has its reply then, nothing was run twice, and nothing was handed over.
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
			plans := cl.table.plansOf(lines...)
			if cl.straight(t.Context(), plans, &got, func() []*Plan { return plans }) || len(got) > 0 {
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

// While a slot has no master, as far as is known, the plans are made once, and each command runs once.
func TestStraightWithoutMaster(t *testing.T) {
	t.Parallel()
	c := openCluster(t, testredis.StartCluster(t, 3, 0), Options{Refresh: time.Hour, RetryFor: 10 * time.Second})
	cl := newClient(t, c, learn(t, c), 2)
	broken := *c.Snapshot()
	broken.whole = false
	slot := Slot([]byte("nobody"))
	broken.give(slot, nil)
	c.snapshot.Store(&broken)
	plans := cl.table.plansOf("INCR somebody", "INCR nobody")
	var got replyList
	made := 0
	if cl.straight(t.Context(), plans, &got, func() []*Plan { made++; return plans }) || made != 1 {
		t.Fatalf("plans were made %d times", made)
	}
	for _, p := range plans { // the nodes know where the slot is, and say so
		if p.Err != nil || string(p.Reply) != ":1\r\n" {
			t.Errorf("got %q and %v", p.Reply, p.Err)
		}
	}
}

// After Close nothing is sent, and each command's error says so.
func TestStraightClosed(t *testing.T) {
	t.Parallel()
	c := openCluster(t, testredis.StartCluster(t, 3, 0), Options{Refresh: time.Hour, RetryFor: 10 * time.Second})
	cl := newClient(t, c, learn(t, c), 2)
	c.Close()
	plans := cl.table.plansOf("INCR a", "INCR b")
	cl.straight(context.Background(), plans, new(replyList), func() []*Plan { return plans })
	for _, p := range plans {
		if !upstream.IsNotSent(p.Err) {
			t.Errorf("got %q and %v", p.Reply, p.Err)
		}
	}
}

// wordsOf is a command whose second word is its key, or SCAN, where no server says what commands there are.
func wordsOf(words ...string) Command {
	cmd := Command{Raw: resp.AppendCommand(nil, words...), Facts: FactsOf(words[0], nil, nil)}
	for _, w := range words {
		cmd.Args = append(cmd.Args, []byte(w))
	}
	if words[0] != "scan" {
		cmd.Keys = []int{1}
	}
	return cmd
}

// Afterwards the executor holds neither the client's bytes nor replies: 10,000 idle clients would hold as many last pipelines.
func TestStraightLetsGo(t *testing.T) {
	t.Parallel()
	port, _ := fakeNode(t, func(string) string { return "$60000\r\n" + strings.Repeat("x", 60000) + "\r\n" })
	cl := newClient(t, openFake(t, port, Options{}), nil, 2)
	get := NewPlan(wordsOf("get", "k"))
	if !cl.straight(t.Context(), []*Plan{get, get, get}, new(replyList), func() []*Plan { return nil }) {
		t.Fatal("not answered")
	}
	held := 0
	for _, b := range cl.e.round.batches {
		for _, p := range append(b.req.Cmds[:cap(b.req.Cmds)], b.sink.pieces[:cap(b.sink.pieces)]...) {
			held += len(p)
		}
	}
	if held > 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// When the wait for a batch is ended, each of its commands says why.
func TestStraightEnded(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	port, _ := fakeNode(t, func(line string) string {
		if strings.HasPrefix(line, "set slow") {
			<-answer
		}
		return "+OK\r\n"
	})
	cl := newClient(t, openFake(t, port, Options{Timeout: 100 * time.Millisecond}), nil, 2)
	plans := []*Plan{NewPlan(wordsOf("set", "slow", "1")), NewPlan(wordsOf("set", "slow", "2"))}
	cl.straight(t.Context(), plans, new(replyList), func() []*Plan { return plans })
	close(answer)
	for _, p := range plans {
		if !errors.Is(p.Err, upstream.ErrTimeout) {
			t.Errorf("got %q and %v", p.Reply, p.Err)
		}
	}
}

// What is redirected goes on in order, and after its pause, also when a SCAN, which is no round of batches, came before.
func TestStraightIsInOrderAfterScan(t *testing.T) {
	t.Parallel()
	slot := Slot([]byte("k"))
	var ports [2]int
	var mu sync.Mutex // guards ran, and refused
	var ran []string
	refused := 0
	var listening sync.WaitGroup
	listening.Add(1)
	for i := range ports {
		ports[i], _ = fakeServer(t, func(_ int, line string) string {
			listening.Wait()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case line == "CLUSTER SLOTS":
				return fmt.Sprintf("*2\r\n*3\r\n:0\r\n:%d\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$2\r\nn0\r\n*3\r\n:%d\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$2\r\nn1\r\n",
					slot, ports[0], slot+1, ports[1])
			case line == "PING" || line == "RESET":
				return "+" + line + "\r\n"
			case strings.HasPrefix(line, "scan"):
				return "*2\r\n$1\r\n0\r\n*0\r\n"
			case !strings.HasPrefix(line, "set k"):
				return "-ERR unknown\r\n"
			case i == 1:
				ran = append(ran, line)
				return "+OK\r\n"
			}
			if refused++; refused == 1 {
				return "-CLUSTERDOWN The cluster is down\r\n"
			}
			return fmt.Sprintf("-MOVED %d 127.0.0.1:%d\r\n", slot, ports[1])
		})
	}
	listening.Done()
	cl := newClient(t, openFake(t, ports[0], Options{Refresh: time.Hour}), nil, 2)
	cl.run([]*Plan{NewPlan(wordsOf("scan", "0"))})
	plans := []*Plan{NewPlan(wordsOf("set", "k", "1")), NewPlan(wordsOf("set", "k", "2"))}
	cl.straight(t.Context(), plans, new(replyList), func() []*Plan { return plans })
	if got := results(plans); got[0] != "+OK\r\n" || got[1] != "+OK\r\n" || !slices.Equal(ran, []string{"set k 1", "set k 2"}) {
		t.Errorf("got %q; what ran: %q", got, ran)
	}
}
