package upstream

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func targetOf(t testing.TB, s *testredis.Server) Target {
	t.Helper()
	target, err := ParseTarget(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return target
}
