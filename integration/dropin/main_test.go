package dropin

import (
	"os"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
