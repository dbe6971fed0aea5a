package backend

import (
	"testing"

	"github.com/lockproxy/lockproxy/proto/resp"
)

func TestArgument(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"EVAL", "return 1", "0"}, {"evalsha", ""}, {"SCRIPT", "LOAD", "\r\n$3\r\nabc\r\n"}, {"x"}} {
		raw := resp.AppendCommand(nil, args...)
		for i := range len(args) + 2 {
			got := argument(raw, i)
			if i >= len(args) && got != nil || i < len(args) && string(got) != args[i] {
				t.Errorf("%q: argument %d is %q", args, i, got)
			}
		}
	}
	for _, raw := range []string{"", "*1\r\n", "*1\r\n$5\r\nab\r\n", "*1\r\n$"} {
		if got := argument([]byte(raw), 0); got != nil {
			t.Errorf("%q: %q", raw, got)
		}
	}
}
