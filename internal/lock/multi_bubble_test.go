package lock

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestMultiUnlockOfSome: what MULTIUNLOCK says when one node of a cluster is out of reach is not that nothing was done.
func TestMultiUnlockOfSome(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		k := w.NewCluster("10.0.0.1:6379", "10.0.0.2:6379")
		o := Options{Logger: testLog()}
		seeds := upstream.ClusterTarget{Seeds: []string{"10.0.0.1:6379"}, Node: upstream.Target{Network: "tcp", Dialer: w.Proxy("one")}}
		c, err := cluster.Open(context.Background(), seeds, cluster.Options{Node: upstream.NodeOptions{Logger: o.Logger}})
		if err != nil {
			t.Fatal(err)
		}
		m := atWork(t, New(sharded.Cluster(c, ""), o), c.Close)
		a, _ := client(m)
		keys := []string{nameIn("a", 0, 2), nameIn("b", 1, 2)}
		if _, err := a.MultiLock(context.Background(), keys, Request{Owner: "job"}); err != nil {
			t.Fatal(err)
		}
		w.Proxy("one").Link(k.Nodes()[0].Addr()).Cut()
		b, _ := client(m)
		_, err = b.MultiUnlock(context.Background(), keys, UnlockRequest{Owner: "job"})
		if k.Nodes()[1].Do(t, "EXISTS", keys[1]).(int64) != 0 {
			t.Fatal("the lock on the other node was not given back")
		}
		var own *Error
		if !errors.As(err, &own) || !strings.HasPrefix(own.Text, "not released: some ") {
			t.Fatal(err)
		}
	})
}
