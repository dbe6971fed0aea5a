package proxyclient

import (
	"flag"
	"strings"
	"testing"
)

// What the flags say is one proxy, or is refused before anybody connects.
func TestFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--address a": "redis://a:6380", "--address a:1": "redis://a:1", "--address [::1]": "redis://[::1]:6380", "--tls --address a": "rediss://a:6380", "--tls --address rediss://a:1": "rediss://a:1",
		"--address http://x": "--address: not host:port", "--cacert x": "only with --tls", "--tls --cert x": "not one without", "--tls --cacert /nowhere": "--cacert, --cert, --key: open /nowhere",
		"--tls --cacert address.go": "holds no certificate", "--tls --cert /nowhere --key /nowhere": "--cacert, --cert, --key: open",
	} {
		fs := flag.NewFlagSet("x", flag.ContinueOnError)
		client := Flags(fs, "x")
		if err := fs.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		c, err := client()
		if strings.HasPrefix(want, "redis") {
			if err != nil || c.at.String() != want {
				t.Errorf("%s: %v, want %s", line, err, want)
			}
		} else if err == nil || !strings.HasPrefix(err.Error(), want) && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}
