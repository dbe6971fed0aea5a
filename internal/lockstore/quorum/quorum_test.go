package quorum

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

// TestQuorumProbeDoesAllAndLeavesNothing: on the nodes of a quorum all steps of the probe do what they are for, and no key is left.
func TestQuorumProbeDoesAllAndLeavesNothing(t *testing.T) {
	servers := testredis.StartSet(t, 3)
	var o Options
	for _, s := range servers {
		target, err := upstream.ParseTarget(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		o.Nodes = append(o.Nodes, Node{Name: s.Addr(), Control: upstream.NewControl(target, upstream.ControlOptions{DialTimeout: 10 * time.Second})})
	}
	var running sync.WaitGroup
	q := newStore(lockstore.Host{
		UUID: uuid.NewString(), Log: slog.New(slog.DiscardHandler), FairWait: time.Minute, WarmChannels: 1, Background: func(work func()) { running.Go(work) },
	}, o)
	for i, n := range q.all {
		if err := n.Account.Ensure(t.Context(), q.site(n)); err != nil || !n.Account.Fresh() || n.Refusal() != nil {
			t.Errorf("%s: %v %v", n.name, err, n.Refusal())
		}
		if left := servers[i].Do(t, "DBSIZE").(int64); left != 0 {
			t.Errorf("%s: %d keys are left: %q", n.name, left, servers[i].Do(t, "KEYS", "*"))
		}
	}
	running.Wait()
	for _, n := range o.Nodes {
		n.Control.Close()
	}
}
