package cluster

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// A command that a bound stopped half-way is not sent a second time: Resume has the rest of it sent.
func TestResume(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	o := Options{}
	o.Node.Budget = upstream.NewBudget(100, 1)
	c := openCluster(t, tc, o)
	cl := newClient(t, c, learn(t, c), 2)
	here, there := keyIn(1), keyIn(Slots-1)
	for _, step := range []struct {
		command, want string
		unsent        bool
	}{
		{"MSET " + here + " 1 " + there + " 2", "+OK\r\n", false},
		{"MGET " + there + " " + here, "*2\r\n$1\r\n2\r\n$1\r\n1\r\n", false},
		{"DEL " + there + " " + here, ":2\r\n", false},
		{"INCR " + here, ":1\r\n", true},
		{"FLUSHALL", "+OK\r\n", false},
	} {
		cl.e.Private(true)
		eventually(t, "the only connection there may be is to another node", func() bool { // the one before is closed a little later
			return !strings.HasPrefix(cl.do("GET " + there)[0], "error")
		})
		plans := []*Plan{NewPlan(cl.table.command(strings.Fields(step.command)...))}
		p := plans[0]
		if cl.run(plans); !upstream.IsFull(p.Err) || p.Unsent() != step.unsent {
			t.Fatalf("%s: got %q, %v, unsent: %v", step.command, p.Reply, p.Err, p.Unsent())
		}
		cl.e.Private(false)
		p.Resume()
		if got := cl.run(plans)[0]; p.Err != nil || got != step.want || p.Unsent() {
			t.Errorf("%s: got %q, want %q", step.command, got, step.want)
		}
		if p.Resume(); !p.settled() {
			t.Errorf("%s would be sent again", step.command)
		}
	}
}

// A replica is left out when it is out of reach, not when a bound of this proxy's allows no connection to it.
func TestResumeAtReplicas(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1)
	o := Options{}
	o.Node.Budget = upstream.NewBudget(100, 6)
	c := openCluster(t, tc, o)
	cl := newClient(t, c, learn(t, c), 2)
	cl.e.Private(true)
	cl.expect("FLUSHALL", "+OK\r\n") // over the three private connections there may be
	p := NewPlan(cl.table.command("ACL", "SETUSER", "somebody", "on"))
	if cl.run([]*Plan{p}); !upstream.IsFull(p.Err) || p.Unsent() {
		t.Fatalf("got %q, %v", p.Reply, p.Err)
	}
	cl.e.Private(false)
	p.Resume()
	if got := cl.run([]*Plan{p})[0]; got != "+OK\r\n" {
		t.Errorf("got %q", got)
	}
	for _, s := range tc.Servers {
		if s.Do(t, "ACL", "GETUSER", "somebody") == nil {
			t.Errorf("%s has no such user", s.Addr())
		}
	}
}
