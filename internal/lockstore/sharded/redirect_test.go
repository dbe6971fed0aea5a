package sharded

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// A request that is not sent again, as those of waiters are not, follows a redirect all the same, and has the topology
// looked at when its node cannot be reached, or does not have the slot.
func TestRequestThatIsSentOnce(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 2, 0)
	where, err := upstream.ParseURL("redis-cluster://" + tc.Servers[0].Addr())
	target, _ := where.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	c := testredis.Opened(t, func() (*cluster.Cluster, error) {
		return cluster.Open(context.Background(), target, cluster.Options{Refresh: time.Hour})
	})
	s := opened(t, Cluster(c, ""), c.Close)
	once := func(send sending) *request {
		return &request{key: "k", send: send, build: func(*shard, string) node.Call { return node.Call{Script: scripts.Look, Keys: []string{"k"}} }}
	}
	for _, failure := range []error{
		&upstream.NotSentError{Cause: lockstore.ErrUnserved},
		&upstream.ReplyError{Line: "CLUSTERDOWN Hash slot not served"},
	} {
		before := c.Stats().Refreshes
		if _, err := s.do(context.Background(), once(func(*shard, node.Call, bool) ([]int64, error) { return nil, failure })); !lockstore.NotSent(err) {
			t.Errorf("%v: %v", failure, err)
		}
		eventually(t, "a look at the topology", func() bool { return c.Stats().Refreshes > before })
	}
	slot := cluster.Slot([]byte("k"))
	owner, err := tc.Owner(slot)
	if err != nil {
		t.Fatal(err)
	}
	other := tc.Servers[0]
	if other == owner {
		other = tc.Servers[1]
	}
	var asked []string
	_, err = s.do(context.Background(), once(func(sh *shard, _ node.Call, ask bool) ([]int64, error) {
		if asked = append(asked, fmt.Sprintf("%s %v", sh.is.Addr, ask)); len(asked) == 1 {
			return nil, &upstream.ReplyError{Line: fmt.Sprintf("ASK %d %s", slot, other.Addr())}
		}
		return nil, nil
	}))
	want := []string{owner.Addr() + " false", other.Addr() + " true"}
	if err != nil || fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("%v: asked %q, want %q", err, asked, want)
	}
}
