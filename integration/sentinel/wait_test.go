package sentinel

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// WAIT is about what the client wrote over a shared connection at the present master.
func TestSentinelWaitCoversSharedWrites(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1})
	p := harness.StartProxy(t, g.URL())
	w := harness.Dial(t, p.Addr())
	round := func(replica *testredis.Server) {
		t.Helper()
		replica.Stop()
		harness.Expect(t, w, "+OK\r\n", "SET", "k", "v")
		began := time.Now()
		harness.Expect(t, w, ":0\r\n", "WAIT", "1", "500")
		if took := time.Since(began); took < 400*time.Millisecond {
			t.Errorf("it took only %v", took)
		}
		w.Send("WAIT", "1", "0")
		replica.Cont()
		if got := w.Read(); got != ":1\r\n" {
			t.Errorf("%q", got)
		}
	}
	round(g.Nodes[1])
	g.Failover()
	g.AwaitWhole()
	harness.Eventually(t, "the new master serves", func() bool { // a client of the former one may be closed
		w = harness.Dial(t, p.Addr())
		got, err := w.Try("SET", "k", "v")
		return err == nil && got == "+OK\r\n"
	})
	round(g.Nodes[0])
}
