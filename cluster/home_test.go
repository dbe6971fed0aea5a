package cluster

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// What any node can answer is answered by one that is up, long before the others say that home has failed.
func TestHomeIsLeft(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*testing.T, *testredis.Server){
		"killed": func(_ *testing.T, s *testredis.Server) { s.Kill() },
		"frozen": func(t *testing.T, s *testredis.Server) {
			s.Stop()
			t.Cleanup(s.Cont)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc := testredis.StartCluster(t, 3, 0)
			c := openCluster(t, tc, Options{})
			cl := newClient(t, c, learn(t, c), 2)
			cl.e.home = 0
			cl.expect("PING", "+PONG\r\n")
			take(t, tc.Servers[0])
			began := time.Now()
			if got := cl.do("PING", "ECHO a"); got[0] != "+PONG\r\n" || got[1] != "$1\r\na\r\n" {
				t.Errorf("got %q", got)
			}
			if name == "killed" {
				cl.expect("PUBLISH b c", ":0\r\n")
			} else if cl.e.home != 0 {
				t.Error("home is left, and a PUBLISH would overtake those that it has got")
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("answered after %v", took)
			}
		})
	}
}

// A home that is slow is waited for if there may be no connection to another node.
func TestSlowHomeAtTheBound(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{Node: upstream.NodeOptions{Budget: upstream.NewBudget(1, 1)}})
	cl := newClient(t, c, learn(t, c), 2)
	cl.e.home = 0
	cl.expect("PING", "+PONG\r\n")
	tc.Servers[0].Stop()
	t.Cleanup(tc.Servers[0].Cont)
	got := make(chan string, 1)
	go func() { got <- cl.do("PING")[0] }()
	eventually(t, "it is asked elsewhere, and goes back", func() bool { return c.count.retried.Load() >= 2 || len(got) > 0 })
	tc.Servers[0].Cont()
	if reply := <-got; reply != "+PONG\r\n" {
		t.Errorf("got %q", reply)
	}
}

// What every batch is asked costs a command that is answered no memory.
func TestHomeCostsAnsweredCommandsNothing(t *testing.T) {
	e, n := &Executor{}, &Node{}
	if got := testing.AllocsPerRun(100, func() { e.leaveHome(n, nil) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
