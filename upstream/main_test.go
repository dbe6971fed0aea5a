package upstream

import (
	"log/slog"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

func targetOf(t testing.TB, s *testredis.Server) Target {
	t.Helper()
	target, err := parseTarget(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// Follow is sentinel.Follow, which this package must not import: an external test of this folder sets it.
var Follow func(*Target, *slog.Logger) interface {
	Resolver
	Close()
}

// follow has the Sentinels of g asked until t ends.
func follow(t *testing.T, g *testredis.Group) Target {
	t.Helper()
	target, err := parseTarget(g.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(Follow(&target, slog.New(slog.DiscardHandler)).Close)
	return target
}

// parseTarget is ParseURL for what is no cluster.
func parseTarget(raw string) (Target, error) {
	u, err := ParseURL(raw)
	if err == nil && u.Target().Network == "" {
		err = errTarget
	}
	return u.Target(), err
}

// parseClusterTarget is ParseURL for a cluster.
func parseClusterTarget(raw string) (ClusterTarget, error) {
	u, err := ParseURL(raw)
	ct, is := u.Cluster()
	if err == nil && !is {
		err = errClusterTarget
	}
	return ct, err
}
