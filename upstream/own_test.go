package upstream

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestOwnConnectionsAreKeptAside: passwords, the proxy's own questions and locks need no place of a Budget that is used up, and are
// counted by themselves. It is not parallel, since the gauge is of the whole process.
func TestOwnConnectionsAreKeptAside(t *testing.T) {
	server := testredis.Start(t)
	target := targetOf(t, server)
	was := telemetry.UpstreamOwn.Value()
	b := NewBudget(1, 1)
	n := NewNode(target, NodeOptions{Budget: b, DialTimeout: dialTime})
	if _, err := n.Open(context.Background(), Identity{Proto: 2, DB: 1}); err != nil {
		t.Fatal(err)
	}
	if err := n.Authenticate(context.Background(), "", "nobody", "x"); Refused(err) == nil {
		t.Error(err)
	}
	aside, err := n.Aside(context.Background(), Identity{Proto: 2})
	if err != nil {
		t.Fatal(err)
	}
	c := NewControl(target, ControlOptions{DialTimeout: dialTime})
	client, err := c.Client(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Do(context.Background(), client.B().Ping().Build()).Error(); err != nil {
		t.Error(err)
	}
	ownAre := func(least, most int64) {
		t.Helper()
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			own := telemetry.UpstreamOwn.Value() - was
			if own >= least && own <= most {
				return
			}
			if time.Since(start) > time.Minute {
				t.Fatalf("%d connections of the proxy's own, want %d to %d", own, least, most)
			}
		}
	}
	ownAre(3, 8)
	usedIs(t, b, 1)
	aside.Release()
	c.Close()
	n.Close()
	ownAre(0, 0)
}

// TestBudgetOfAMasterThatMoves: what is lost in a failover gives its places back, and the new master's connections have them.
func TestBudgetOfAMasterThatMoves(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	target := follow(t, g)
	b := NewBudget(8, 4)
	n := newNode(t, target, NodeOptions{Budget: b})
	nobody := Identity{Proto: 2}
	fill := func() (used []*Dedicated) {
		t.Helper()
		for range 4 {
			used = append(used, dedicate(t, n, nobody))
		}
		if _, err := n.Dedicate(context.Background(), nobody); full(err) != "user" {
			t.Errorf("one too many: %v", err)
		}
		usedIs(t, b, 4)
		return used
	}
	used := fill()
	g.Failover()
	for _, p := range used {
		p.ends(t)
	}
	usedIs(t, b, 0)
	fill()
}
