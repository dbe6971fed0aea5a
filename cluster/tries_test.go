package cluster

import (
	"fmt"
	"testing"
	"time"
)

// What becomes of a request after a try, by what that try has met.
func TestTries(t *testing.T) {
	t.Parallel()
	const slot = 7
	from, other := &Node{Addr: "10.0.0.1:1"}, &Node{Addr: "10.0.0.2:1"}
	s := &Snapshot{names: map[string]*Node{"10.0.0.1:1": from, "10.0.0.2:1": other}}
	for _, c := range []struct {
		reply string
		step  Step
		to    *Node
		ask   bool
	}{
		{"-MOVED 7 10.0.0.2:1", Follow, other, false},
		{"-MOVED 7 :1", Follow, from, false},
		{"-ASK 7 10.0.0.2:1", Follow, other, true},
		{"-MOVED 7 10.0.0.3:1", Look, nil, false}, // the topology does not know that node yet
		{"-ASK 7 10.0.0.3:1", Look, nil, false},
		{"-MOVED 8 10.0.0.2:1", Stop, nil, false}, // it is not about this request's slot
		{"-ASK 8 10.0.0.2:1", Stop, nil, false},
		{"-TRYAGAIN Multiple keys request during rehashing of slot", Pause, nil, false},
		{"-CLUSTERDOWN The cluster is down", Look, nil, false},
		{"-READONLY You can't write against a read only replica.", Look, nil, false},
		{"-ERR WAIT cannot be used with replica instances.", Look, nil, false},
		{"-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", Look, nil, false},
		{"-UNBLOCKED client unblocked via CLIENT UNBLOCK", Stop, nil, false},
		{"-ERR unknown command", Stop, nil, false},
		{"-WRONGTYPE Operation against a key holding the wrong kind of value", Stop, nil, false},
	} {
		now := time.Now()
		tries := Tries{Until: now.Add(time.Second), slot: slot, To: from, Ask: true}
		r := s.readRefusal(from, []byte(c.reply+"\r\n"))
		if step := tries.After(r, now); step != c.step || tries.To != c.to || tries.Ask != c.ask {
			t.Errorf("%s: step %d to %v, ASKING %v", c.reply, step, tries.To, tries.Ask)
		}
		if c.step != Follow {
			c.step = Stop
		}
		tries.Until = now
		if step := tries.After(r, now); step != c.step || tries.To != c.to || tries.Ask != c.ask {
			t.Errorf("%s when the time is up: step %d to %v, ASKING %v", c.reply, step, tries.To, tries.Ask)
		}
	}
	for r, want := range map[Refusal]Step{{}: Stop, Unreached: Look, Incomplete: Pause} {
		tries := Tries{Until: time.Now().Add(time.Minute), slot: slot}
		if step := tries.After(r, time.Now()); step != want {
			t.Errorf("%v: step %d, want %d", r, step, want)
		}
	}
}

// Nodes that send a request to each other get a pause now and then, in which the topology is looked at.
func TestTriesInCircles(t *testing.T) {
	t.Parallel()
	now, steps := time.Now(), ""
	tries := Tries{Until: now.Add(time.Second), slot: 7}
	for range 2*mostFollowed + 2 {
		steps += fmt.Sprint(tries.After(Refusal{kind: moved, slot: 7, to: &Node{}}, now))
	}
	if want := "111113111113"; steps != want {
		t.Errorf("steps %s, want %s", steps, want)
	}
	tries.Until, steps = now, ""
	for range mostFollowed + 2 {
		steps += fmt.Sprint(tries.After(Refusal{kind: moved, slot: 7, to: &Node{}}, now))
	}
	if want := "1111100"; steps != want {
		t.Errorf("steps when the time is up %s, want %s", steps, want)
	}
}

// A refusal after a wait at Redis begins a new series of tries; one that comes soon does not.
func TestTriesAfterAWait(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tries := Tries{c: &Cluster{opts: Options{RetryFor: time.Minute}}, Until: now, slot: -1}
	refused := Refusal{kind: demoted}
	if tries.Waited(now); tries.After(refused, now) != Stop {
		t.Error("a try that has not waited begins a new series")
	}
	if tries.Waited(now.Add(-2 * time.Second)); tries.After(refused, now) != Look {
		t.Error("a try that has waited for two seconds is the last one")
	}
}
