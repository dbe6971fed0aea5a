package testredis

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// VerifyTestMain runs a package's tests, and fails them if they leave goroutines behind. One of toxiproxy's may stay: when a toxic is put
// on a link, or taken off it, while that ends, the link's first stage waits for ever for somebody to take its last bytes. Goroutines have
// longer to end than goleak gives them, because on a busy machine one that is about to may wait for a processor.
func VerifyTestMain(m *testing.M, options ...goleak.Option) {
	options = append(options, goleak.IgnoreTopFunction("github.com/Shopify/toxiproxy/v2/toxics.(*NoopToxic).Pipe"))
	code := m.Run()
	for end := time.Now().Add(readyTimeout); code == 0; {
		err := goleak.Find(options...)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintf(os.Stderr, "goroutines are left: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}
