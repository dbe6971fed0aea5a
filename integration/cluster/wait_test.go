package cluster

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// WAIT has its own time beside --upstream-timeout.
func TestClusterWaitBesideTheTimeout(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc, "--upstream-timeout", "300ms")
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, ":0\r\n", "WAIT", "1", "900")
	harness.Expect(t, w, ":0\r\n", "WAIT", "1", "2100") // asked for in parts
}
