package node

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// What the scripts return fits, as their RETURNS say it; shorter replies, and those that name what is not there, do not.
func TestShapes(t *testing.T) {
	t.Parallel()
	id := lockstore.ID{Key: "k", Owner: "me"}
	ask, back := &lockstore.Acquire{ID: id, Counts: lockstore.Counts{Writes: 1}, Lease: 1000}, &lockstore.Release{ID: id, Whole: true}
	two := lockstore.Renewal{Holds: []lockstore.Renewed{{ID: id}, {ID: id}}}
	handed := *back
	handed.Next = &lockstore.Handoff{Asks: []*lockstore.Acquire{ask, ask}, Line: id.Line()}
	var s Steps
	type replies [][]int64
	for name, c := range map[string]struct {
		call     Call
		fit, odd replies
	}{
		"acquire": {s.Acquire(ask, "1"), replies{{-2, 0, 0, 0, 0}, {0, 0, 5, 0, 0}, {1, 1, 5, 0, 0}}, replies{{}, {1}, {-2}, {0, 0}, {1, 1, 5}, {1, 1, 5, 0}}},
		"vote":    {s.Vote([]*lockstore.Acquire{ask}, "1"), replies{{-2, 0, 0, 0, 0}, {0, 0, 5, 9, 0}, {1, 1, 5, 0, 0}}, replies{{}, {1}, {1, 1, 5, 0}}},
		"votes":   {s.Vote([]*lockstore.Acquire{ask, ask}, "1"), replies{{1, 1, 5, 0, 0, 0, 0, 5, 9, 0}}, replies{{}, {1}, {1, 1, 5, 0, 0}}},
		"release": {s.Release(back, "1"), replies{{1}, {-2}, {0}}, replies{{}}},
		"handoff": {s.Release(&handed, "1"), replies{{1, 0, 1, 1, 5, 0, 0, -9, -9, -9, -9, -9}}, replies{{}, {1}, {-2}, {1, 0, 1, 1, 5, 0, 0}}},
		"renew":   {Renew(two, "1"), replies{{1, 0}, {-2}}, replies{{}, {1}}},
		"extend":  {Extend(lockstore.Extension{ID: id, Lease: 1}, false, "1"), replies{{1, 5, 0}, {-2, 0, 0}}, replies{{}, {1}, {1, 1}}},
		"raise":   {Raise(id, 7, "1"), replies{{1}, {-2}}, replies{{}}},
		"force":   {s.Release(&lockstore.Release{ID: lockstore.ID{Key: "k"}}, "1"), replies{{1}, {0}}, replies{{}}},
		"refresh": {s.Refresh(lockstore.Queue{Key: "k", Positions: make([]lockstore.Position, 2)}, "1"), replies{{-1}, {-2}, {5, 1, 2}}, replies{{}, {5, 0}, {5, 3}, {5, -1}}},
		"vacant":  {s.Vacant([]lockstore.ID{id, id}), replies{{0, -1}}, replies{{}, {0}, {-2}}},
		"others":  {Call{Script: scripts.Leave}, replies{{1}}, replies{{}}},
	} {
		for _, out := range c.fit {
			if got, err := c.call.judged(out); err != nil || len(got) != len(out) {
				t.Errorf("%s: %v: %v", name, out, err)
			}
		}
		for _, out := range c.odd {
			if _, err := c.call.judged(out); err == nil {
				t.Errorf("%s: %v is taken", name, out)
			}
		}
	}
}

// saying returns a node that answers everything but its greeting with the same.
func saying(t *testing.T, says string) *Node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				for buf := make([]byte, 64<<10); ; {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					answer := says
					if bytes.Contains(buf[:n], []byte("HELLO")) {
						answer = "%1\r\n+proto\r\n:3\r\n"
					}
					if _, err := c.Write([]byte(answer)); err != nil {
						return
					}
				}
			})
		}
	})
	control := upstream.NewControl(upstream.Target{Network: "tcp", Addr: ln.Addr().String()}, upstream.ControlOptions{})
	t.Cleanup(func() { control.Close(); ln.Close(); running.Wait() })
	return &Node{Control: control}
}

// What a node says of its commands, its clock and a lock is an error when it is too short, or names what was not asked about.
func TestOddAnswersToQuestions(t *testing.T) {
	t.Parallel()
	for _, says := range []string{"*0\r\n", "*1\r\n:0\r\n", "*1\r\n:-7\r\n", "*1\r\n:999\r\n", ":1\r\n"} {
		n := saying(t, says)
		if _, _, err := n.publishesWith(PubSubBoth); err == nil {
			t.Errorf("%q: commands", says)
		}
		if _, err := ParseInfo(n.Eval(Info(0, "k", 10), false)); err == nil {
			t.Errorf("%q: a lock", says)
		}
		if _, _, err := n.askTime(); err == nil {
			t.Errorf("%q: the clock", says)
		}
	}
}
