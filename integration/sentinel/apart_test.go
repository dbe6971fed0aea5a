package sentinel

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestSentinelApart: with --locks the locks are behind Sentinels and the data is not. When their master dies, the locks that the new one has
// stay, and the holder of one that it does not have is told; commands go on.
func TestSentinelApart(t *testing.T) {
	t.Parallel()
	g, data := testredis.StartGroup(t, testredis.GroupOptions{}), testredis.Start(t)
	p := harness.StartProxy(t, data.URL(), "--locks", g.URL(), "--lock-watchdog-timeout", "2m") // longer than a failover takes on a busy machine
	kept, waiter, lost := harness.DialHearing(t, p.Addr()), harness.Dial(t, p.Addr()), harness.DialHearing(t, p.Addr())
	harness.Expect(t, kept, ok, "LOCK", "kept", "REPLICAS", "2")
	harness.Expect(t, kept, yes, "RENEW", "kept")
	waiter.Send("LOCK", "kept", "BLOCK", "0")
	former := g.Master()
	for _, n := range g.Nodes[1:] {
		n.Stop()
	}
	former.Do(t, "CLIENT", "KILL", "TYPE", "replica") // or they would read the rest of the stream first
	harness.Expect(t, lost, ok, "LOCK", "lost")
	g.Hasten()
	former.Kill()
	for _, n := range g.Nodes[1:] {
		n.Cont()
	}
	harness.Expect(t, lost, ok, "SET", "d", "1")
	g.AwaitSwitch(former)
	g.Calm()
	if push := lost.Read(); !strings.HasPrefix(push, ">4\r\n$9\r\nlock-lost\r\n$4\r\nlost\r\n") || !strings.Contains(push, "\r\nfailover\r\n") {
		t.Errorf("the holder hears %q", push)
	}
	harness.Eventually(t, "the kept lock is renewed at the new master", func() bool { return kept.Do("RENEW", "kept") == yes })
	harness.Expect(t, kept, yes, "UNLOCK", "kept")
	if got := waiter.Read(); got != ok {
		t.Errorf("the waiter: %q", got)
	}
	harness.Expect(t, lost, "$1\r\n1\r\n", "GET", "d")
}
