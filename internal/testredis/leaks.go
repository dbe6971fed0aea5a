package testredis

import (
	"testing"

	"go.uber.org/goleak"
)

// VerifyTestMain runs a package's tests, and fails them if they leave goroutines behind. One of toxiproxy's may stay: when a toxic is put
// on a link, or taken off it, while that ends, the link's first stage waits for ever for somebody to take its last bytes.
func VerifyTestMain(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(m, append(options, goleak.IgnoreTopFunction("github.com/Shopify/toxiproxy/v2/toxics.(*NoopToxic).Pipe"))...)
}
