package cluster

import (
	"fmt"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// WAIT has its own time beside --upstream-timeout.
func TestClusterWaitBesideTheTimeout(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc, "--upstream-timeout", "800ms")
	harness.Undisturbed(t, func() (wrong string) {
		w := harness.Dial(t, p.Addr())
		for _, time := range []string{"900", "2100"} { // the longer one is asked for in parts
			if got, err := w.Try("WAIT", "1", time); got != ":0\r\n" {
				return fmt.Sprintf("WAIT 1 %s: %q %v", time, got, err)
			}
		}
		return ""
	})
}
