package cluster

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// fakeNode is a node that has all slots, and answers all else with say. conns counts connections.
func fakeNode(t *testing.T, say func(line string) string) (port int, conns *atomic.Int64) {
	t.Helper()
	return fakeServer(t, func(port int, line string) string {
		switch line {
		case "CLUSTER SLOTS":
			return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$2\r\nid\r\n", port)
		case "CLUSTER SHARDS", "CLUSTER NODES", "CLUSTER MYID":
			return "-ERR unknown\r\n"
		case "PING", "RESET": // asked of connections without a password
			return "+" + line + "\r\n"
		}
		return say(line)
	})
}

// fakeServer answers what it is sent with say, which knows the server's port. conns counts connections.
func fakeServer(t *testing.T, say func(port int, line string) string) (port int, conns *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port, conns = ln.Addr().(*net.TCPAddr).Port, &atomic.Int64{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			wg.Go(func() { serveFake(conn, func(line string) string { return say(port, line) }) })
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { ln.Close() })
	return port, conns
}

func serveFake(conn net.Conn, say func(string) string) {
	defer conn.Close()
	in := bufio.NewScanner(conn)
	for in.Scan() {
		var n int
		if _, err := fmt.Sscanf(in.Text(), "*%d", &n); err != nil {
			return
		}
		var words []string
		for range n {
			in.Scan() // the length
			in.Scan()
			words = append(words, in.Text())
		}
		fmt.Fprint(conn, say(strings.Join(words, " ")))
	}
}

// What a redirect names is not dialled unless the topology names it too.
func TestStrangerIsNotDialled(t *testing.T) {
	t.Parallel()
	evil, conns := fakeNode(t, func(string) string { return "+evil\r\n" })
	for _, word := range []string{"MOVED", "ASK"} {
		redirect := fmt.Sprintf("-%s %d 127.0.0.1:%d\r\n", word, Slot([]byte("k")), evil)
		port, _ := fakeNode(t, func(string) string { return redirect })
		target := upstream.ClusterTarget{Seeds: []string{fmt.Sprintf("127.0.0.1:%d", port)}, Node: upstream.Target{Network: "tcp"}}
		c := openTarget(t, target, Options{RetryFor: 200 * time.Millisecond})
		cl := newClient(t, c, nil, 2)
		get := Command{Raw: []byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), Args: [][]byte{[]byte("GET"), []byte("k")}, Keys: []int{1}, Facts: FactsOf("get", nil, nil)}
		if got := cl.run([]*Plan{NewPlan(get)})[0]; got != redirect {
			t.Errorf("got %q", got)
		}
		from := c.Snapshot().Owner(0)
		slot := Slot([]byte("k"))
		if r := c.Refusal(from, []byte(redirect)); r.to != nil || r.step(slot, 0) != Look || (r.kind == asked) != (word == "ASK") {
			t.Errorf("got %+v", r)
		} else if r.step(1, 0) != Stop {
			t.Error("another slot's redirect was taken")
		}
		itself := fmt.Sprintf("-MOVED 1 127.0.0.1:%d\r\n", port)
		if r := c.Refusal(from, []byte(itself)); r.to != from || r.step(1, 0) != Follow {
			t.Errorf("got %+v", r)
		}
	}
	if n := conns.Load(); n != 0 {
		t.Errorf("%d connections to a stranger", n)
	}
}

// A script's error is followed only if the node says the same of the keys. A node that is too slow to say so is asked again.
func TestRedirectOfAScriptIsAskedAboutAgain(t *testing.T) {
	t.Parallel()
	var port int
	var evals, questions atomic.Int64
	port, _ = fakeNode(t, func(line string) string {
		redirect := fmt.Sprintf("-MOVED %d :%d\r\n", Slot([]byte("k")), port)
		if strings.HasPrefix(line, "EXISTS ") {
			if questions.Add(1) == 1 {
				time.Sleep(askTimeout + askTimeout/2)
			}
			return redirect
		}
		if evals.Add(1) == 1 {
			return redirect
		}
		return "+done\r\n"
	})
	target := upstream.ClusterTarget{Seeds: []string{fmt.Sprintf("127.0.0.1:%d", port)}, Node: upstream.Target{Network: "tcp"}}
	cl := newClient(t, openTarget(t, target, Options{RetryFor: time.Minute}), nil, 2)
	words := [][]byte{[]byte("EVAL"), []byte("return 1"), []byte("1"), []byte("k")}
	eval := Command{Raw: resp.AppendCommand(nil, "EVAL", "return 1", "1", "k"), Args: words, Keys: []int{3}, Facts: FactsOf("eval", nil, nil)}
	if got := cl.run([]*Plan{NewPlan(eval)})[0]; got != "+done\r\n" {
		t.Errorf("got %q", got)
	}
	if evals, questions := evals.Load(), questions.Load(); evals != 2 || questions < 2 {
		t.Errorf("%d EVALs, %d questions", evals, questions)
	}
}

// What a script is refused by a node that has its slot, just then, may be the script's own word. One that changes nothing is sent again,
// until that is clear.
func TestRefusalOfAScriptWhoseSlotIsBack(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		flags    []string
		refusals int64 // by Redis, before it runs the script; below 0: the script's own, each time
		runs     int64
	}{"EVAL": {nil, 1, 1}, "EVAL_RO": {[]string{"readonly"}, 3, 4}, "FCALL_RO": {[]string{"readonly"}, -1, 1 + mostRepeats}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var port int
			var runs atomic.Int64
			refusal := ""
			port, _ = fakeNode(t, func(line string) string {
				if strings.HasPrefix(line, "EXISTS ") {
					return ":1\r\n"
				}
				if n := runs.Add(1); of.refusals < 0 || n <= of.refusals {
					return refusal
				}
				return "+done\r\n"
			})
			refusal = fmt.Sprintf("-MOVED %d :%d\r\n", Slot([]byte("k")), port)
			target := upstream.ClusterTarget{Seeds: []string{fmt.Sprintf("127.0.0.1:%d", port)}, Node: upstream.Target{Network: "tcp"}}
			cl := newClient(t, openTarget(t, target, Options{RetryFor: time.Minute}), nil, 2)
			words := [][]byte{[]byte(name), []byte("s"), []byte("1"), []byte("k")}
			script := Command{Raw: resp.AppendCommand(nil, name, "s", "1", "k"), Args: words, Keys: []int{3}, Facts: FactsOf(name, of.flags, nil)}
			want := refusal
			if of.refusals >= 0 && of.runs > of.refusals {
				want = "+done\r\n"
			}
			if got := cl.run([]*Plan{NewPlan(script)})[0]; got != want || runs.Load() != of.runs {
				t.Errorf("got %q after %d runs, want %q after %d", got, runs.Load(), want, of.runs)
			}
		})
	}
}

// Nodes that send a command round in circles do not do so for ever, nor without pauses.
func TestRedirectedInCircles(t *testing.T) {
	t.Parallel()
	asked := atomic.Int64{}
	var port int
	port, _ = fakeNode(t, func(string) string {
		asked.Add(1)
		return fmt.Sprintf("-MOVED %d :%d\r\n", Slot([]byte("k")), port)
	})
	target := upstream.ClusterTarget{Seeds: []string{fmt.Sprintf("127.0.0.1:%d", port)}, Node: upstream.Target{Network: "tcp"}}
	cl := newClient(t, openTarget(t, target, Options{RetryFor: 100 * time.Millisecond}), nil, 2)
	get := Command{Raw: []byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), Args: [][]byte{[]byte("GET"), []byte("k")}, Keys: []int{1}, Facts: FactsOf("get", nil, nil)}
	if got := cl.run([]*Plan{NewPlan(get)})[0]; !strings.HasPrefix(got, "-MOVED ") {
		t.Errorf("got %q", got)
	}
	// Each pause is 10 ms or longer, and lies before so many tries at the most.
	if n := asked.Load(); n <= mostFollowed || n > 11*(mostFollowed+1) {
		t.Errorf("sent %d times", n)
	}
}

// A node refuses the first of three writes to a key, as one does that recovers between them: that one is not sent again
// behind the others.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var ran []string
	port, _ := fakeNode(t, func(line string) string {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, line)
		if len(ran) == 1 || len(ran) == 4 {
			return "-CLUSTERDOWN The cluster is down\r\n"
		}
		return "+OK\r\n"
	})
	target := upstream.ClusterTarget{Seeds: []string{fmt.Sprintf("127.0.0.1:%d", port)}, Node: upstream.Target{Network: "tcp"}}
	cl := newClient(t, openTarget(t, target, Options{}), nil, 2)
	set := func(key, value string) *Plan {
		raw := fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\n%s\r\n$1\r\n%s\r\n", key, value)
		return NewPlan(Command{Raw: []byte(raw), Args: [][]byte{[]byte("SET"), []byte(key), []byte(value)}, Keys: []int{1}, Facts: FactsOf("set", nil, nil)})
	}
	plans := []*Plan{set("k", "1"), set("k", "2"), set("k", "3"), set("x", "4")}
	cl.e.Do(context.Background(), plans)
	var got []string
	for _, p := range plans {
		got = append(got, strings.TrimSpace(string(p.Reply)))
	}
	if want := "-CLUSTERDOWN The cluster is down|+OK|+OK|+OK"; strings.Join(got, "|") != want {
		t.Errorf("got %q", got)
	}
	if want := "SET k 1|SET k 2|SET k 3|SET x 4|SET x 4"; strings.Join(ran, "|") != want {
		t.Errorf("ran %q", ran)
	}
}
