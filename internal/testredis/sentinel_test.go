package testredis

import "testing"

func TestGroup(t *testing.T) {
	t.Parallel()
	g := StartGroup(t, GroupOptions{Node: []string{"--requirepass", "data"}, Password: "watch"})
	first := g.Master()
	if first != g.Nodes[0] {
		t.Fatalf("the master is %v", first)
	}
	second := g.Failover()
	if second == nil || second == first {
		t.Fatalf("after a failover the master is %v", second)
	}
	g.AwaitWhole()
	second.Do(t, "SET", "k", "v")
	g.Hasten()
	second.Kill()
	if third := g.AwaitSwitch(second); third == nil || third == second {
		t.Fatalf("after its death the master is %v", third)
	}
	g.Calm()
	second.Restart()
	g.AwaitWhole()
}
