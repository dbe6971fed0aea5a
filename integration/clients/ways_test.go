package clients

import (
	"testing"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// way is what stands behind lockproxy, and what lockproxy seems to be.
type way struct {
	name    string
	start   func(t *testing.T) upstream
	cluster bool // lockproxy is a cluster of one node, and the clients are in cluster mode
	nodes   bool // a cluster stands behind it
}

// upstream is what stands behind lockproxy.
type upstream struct {
	url string
	at  func(key string) (*testredis.Server, error) // who has a key
}

var ways = []way{
	{name: "single", start: single},
	{name: "cluster", start: clustered, nodes: true},
	{name: "sentinel", start: watched},
	{name: "cluster mode, single", start: single, cluster: true},
	{name: "cluster mode, cluster", start: clustered, cluster: true, nodes: true},
}

func single(t *testing.T) upstream {
	s := testredis.Start(t)
	return upstream{s.URL(), func(string) (*testredis.Server, error) { return s, nil }}
}

func clustered(t *testing.T) upstream {
	c := testredis.StartCluster(t, 3, 0)
	at := func(key string) (*testredis.Server, error) { return c.Owner(slots.Slot([]byte(key))) }
	return upstream{"redis-cluster://" + c.Servers[0].Addr(), at}
}

func watched(t *testing.T) upstream {
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	return upstream{g.URL(), func(string) (*testredis.Server, error) { return g.Master(), nil }}
}

// proxy starts lockproxy. The short watchdog makes it notice a lost lock soon.
func (w way) proxy(t *testing.T, up upstream) (addr string) {
	t.Helper()
	args := []string{"--lock-watchdog-timeout", "3s"}
	if w.cluster {
		args = append(args, "--present", "cluster")
	}
	return harness.StartProxy(t, up.url, args...).Addr()
}
