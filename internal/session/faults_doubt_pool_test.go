package session_test

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A doubt about a write concerns the locks of the connection that wrote. Over another connection of a pool an owner unlocks
// although the write may still come to pass: docs/VERBS.md says what such a program is to do.
func TestDoubtIsTheConnections(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	data := testredis.NewProxy(t, server.Addr())
	addr := twoWires(t, data.Addr(), server.Addr(), lock.ManagerOptions{})
	locks, writes := connect(t, addr), connect(t, addr)
	if got := locks.ask("LOCK orders OWNER worker EX 30"); got != "OK" {
		t.Fatal(got)
	}
	if got := writes.ask("SET stock 1"); got != "OK" {
		t.Fatal(got)
	}
	data.BlackHole()
	if err := writes.say("SET stock 2"); err != nil {
		t.Fatal(err)
	}
	if got := locks.ask("UNLOCK orders OWNER worker"); got != ":1" {
		t.Error("UNLOCK beside a write of another connection whose outcome is unknown:", got)
	}
	data.Clear()
	data.CutAll()
}
