package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// leaving starts a proxy at which a user may have so many connections more to itself.
func leaving(t *testing.T, tc *testredis.Cluster, free int) *harness.Proxy {
	t.Helper()
	const perUser = 12 // three quarters of all
	p := harness.StartClusterProxy(t, tc, "--max-upstream-connections", "16")
	for range perUser - free {
		s := &subscriber{harness.Dial(t, p.Addr()), t, "*"}
		s.Send("SUBSCRIBE", "taken")
		s.confirmed("subscribe", "taken", 1)
	}
	return p
}

// givenBack waits until so many connections of clients' own are left. Those that nobody uses are kept for half a minute, so it looks seldom.
func givenBack(t *testing.T, p *harness.Proxy, left float64) {
	t.Helper()
	harness.Eventually(t, "the other connections are given back", func() bool {
		time.Sleep(harness.Breath(200 * time.Millisecond))
		return p.Metric("lockproxy_dedicated") == left
	})
}

// A command for several nodes that meets the bound of connections half-way runs once at each: the rest of it goes over the shared ones.
func TestClusterCommandThatMeetsTheBound(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := leaving(t, tc, 1)
	here, there := keyOf(t, tc, tc.Servers[0]), keyOf(t, tc, tc.Servers[1])
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, ok, "SET", there, "1")
	harness.Expect(t, w, ok, "SET", here, strings.Repeat("x", 100<<10)) // has the client's one connection
	harness.Expect(t, w, ":2\r\n", "DEL", here, there)
	harness.Expect(t, w, ok, "MSET", here, "1", there, "2")
	harness.Expect(t, w, "*2\r\n$1\r\n2\r\n$1\r\n1\r\n", "MGET", there, here)
	harness.Expect(t, w, ok, "SCRIPT", "FLUSH")
	// An error of FUNCTION LOAD may look like several replies, so it never goes over a shared connection, but to one node after the other.
	harness.Expect(t, w, "$2\r\nlb\r\n", "FUNCTION", "LOAD", "#!lua name=lb\nredis.register_function('f', function() return 1 end)")
}

// A client that may not have a connection to each master is not told that it is subscribed to what all masters tell.
func TestClusterKeyspaceEventsThatMeetTheBound(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := leaving(t, tc, 2)
	s := &subscriber{harness.Dial(t, p.Addr()), t, "*"}
	s.Send("SUBSCRIBE", "news")
	s.confirmed("subscribe", "news", 1)
	const refusal = "-ERR max number of upstream connections reached for this user\r\n"
	harness.Expect(t, s.Wire, refusal, "SUBSCRIBE", "__keyevent@0__:del")
	harness.Expect(t, s.Wire, refusal, "PSUBSCRIBE", "*")
	givenBack(t, p, 11)
	s.Send("SUBSCRIBE", "more")
	s.confirmed("subscribe", "more", 2)
}

// That also holds for the client's first subscription: nothing is left of it, and nothing comes that it was refused.
func TestClusterFirstKeyspaceEventsThatMeetTheBound(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0, "--notify-keyspace-events", "Eg")
	p := leaving(t, tc, 3)
	s, w := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, s, "-ERR max number of upstream connections reached for this user\r\n", "SUBSCRIBE", "__keyevent@0__:del")
	givenBack(t, p, 9)
	deleteAll(t, w, 0)
	harness.Expect(t, s, "+PONG\r\n", "PING")
}

// RANDOMKEY finds the keys of every shard.
func TestClusterRandomKey(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc)
	w := harness.Dial(t, p.Addr())
	for _, s := range tc.Servers {
		key := keyOf(t, tc, s)
		harness.Expect(t, w, ok, "SET", key, "1")
		harness.Expect(t, w, "$1\r\n"+key+"\r\n", "RANDOMKEY")
		harness.Expect(t, w, ":1\r\n", "DEL", key)
	}
}
