package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Nodes in trouble are the last that are tried, each node is tried once, and who has a node that answers keeps it. After all
// of them comes the node that has the number.
func TestAnyPassesOverTrouble(t *testing.T) {
	t.Parallel()
	a, b, c := &Node{ID: "a"}, &Node{ID: "b"}, &Node{ID: "c"}
	s := &Snapshot{Masters: []*Node{a, b, c}}
	order := func(n int) (ids string) {
		for passed := range 4 {
			ids += s.Any(n, passed).ID
		}
		return ids
	}
	for _, step := range []struct {
		change func()
		want   [4]string
	}{
		{func() {}, [4]string{"abca", "bcab", "cabc", "abca"}},
		{func() { b.trouble.begin(time.Now()) }, [4]string{"acba", "cabb", "cabc", "acba"}},
		{func() { c.trouble.begin(time.Now()) }, [4]string{"abca", "abcb", "acbc", "abca"}},
		{func() { a.trouble.begin(time.Now()) }, [4]string{"abca", "bcab", "cabc", "abca"}},
		{func() { b.trouble.end() }, [4]string{"baca", "bcab", "bcac", "baca"}},
	} {
		step.change()
		for n, want := range step.want {
			if got := order(n); got != want {
				t.Errorf("%d: %s, want %s", n, got, want)
			}
		}
	}
}

// A wait that another node could end lasts for as long as the node is not in trouble; without another node it goes on.
func TestWhile(t *testing.T) {
	t.Parallel()
	a, b := &Node{}, &Node{}
	s := &Snapshot{Masters: []*Node{a, b}}
	ctx, done := s.While(t.Context(), a)
	defer done()
	if ctx.Err() != nil || a.Trouble() != nil {
		t.Error("it has ended")
	}
	a.trouble.begin(time.Now().Add(-time.Second))
	if <-ctx.Done(); !errors.Is(context.Cause(ctx), ErrInTrouble) || a.Trouble() == nil {
		t.Errorf("it ended for %v, the node's trouble is %v", context.Cause(ctx), a.Trouble())
	}
	late, done := s.While(t.Context(), a)
	defer done()
	<-late.Done()
	b.trouble.begin(time.Now())
	alone, done := s.While(t.Context(), b)
	defer done()
	select {
	case <-alone.Done():
		t.Error("it has ended though no other node answers")
	case <-time.After(20 * time.Millisecond):
	}
	a.trouble.end()
	again, done := s.While(t.Context(), a)
	if again.Err() != nil || a.Trouble() != nil || a.InTrouble() {
		t.Error("it does not begin anew")
	}
	if done(); again.Err() == nil {
		t.Error("it does not end")
	}
}

// A node that hangs is known to, and what any node can do does not wait for it any more, nor what may leave it out; once it goes on it is
// one of the others again.
func TestNodeThatHangs(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	c := openCluster(t, tc, Options{})
	all := learn(t, c)
	n := c.Snapshot().Masters[0]
	eventually(t, "all answer", func() bool { return !n.InTrouble() })
	hung := tc.Servers[0]
	hung.Stop()
	t.Cleanup(hung.Cont)
	eventually(t, "it is in trouble", n.InTrouble)
	cl := newClient(t, c, all, 2)
	cl.e.home.at = 0
	cl.expect("PUBLISH a b", ":0\r\n")
	info := NewPlan(Command{Raw: []byte("*1\r\n$6\r\nDBSIZE\r\n"), Args: [][]byte{[]byte("DBSIZE")},
		Facts: &Facts{Name: "dbsize", ReadOnly: true, Request: AllShards, Response: Each, Partial: true}})
	if got := cl.run([]*Plan{info}); got[0] != "*2\r\n:0\r\n:0\r\n" {
		t.Errorf("got %q", got)
	}
	hung.Cont()
	eventually(t, "it answers again", func() bool { return !n.InTrouble() })
	if c.Snapshot().Any(0, 0) != n {
		t.Error("it is not home again")
	}
}
