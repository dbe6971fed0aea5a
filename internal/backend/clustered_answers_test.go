package backend

import (
	"bytes"
	"testing"
)

// WAIT goes on for as long as a number is too low, and no longer.
func TestEnough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply, wanted string
		want          bool
	}{
		{":1\r\n", "1", true}, {":1\r\n", "2", false}, {"*2\r\n:1\r\n:2\r\n", "1 2", true}, {"*2\r\n:1\r\n:1\r\n", "1 2", false}, {"-ERR no\r\n", "1", true}, {":0\r\n", "x", true},
	} {
		if got := enough([]byte(c.reply), bytes.Fields([]byte(c.wanted))); got != c.want {
			t.Errorf("%q of %s: %v", c.reply, c.wanted, got)
		}
	}
}
