package sentinel

import (
	"os"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// Replies that come often.
const ok, yes = "+OK\r\n", ":1\r\n"
