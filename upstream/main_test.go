package upstream

import (
	"log/slog"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

func targetOf(t testing.TB, s *testredis.Server) Target {
	t.Helper()
	target, err := ParseTarget(s.URL())
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
	target, err := ParseTarget(g.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(Follow(&target, slog.New(slog.DiscardHandler)).Close)
	return target
}
