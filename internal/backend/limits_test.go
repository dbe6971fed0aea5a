package backend

import (
	"testing"

	"github.com/lockproxy/lockproxy/proto/resp"
)

func TestLimitsOutput(t *testing.T) {
	t.Parallel()
	const none = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
	for _, c := range []struct {
		settings []string
		want     bool
	}{
		{[]string{"maxclients", "10000", "client-output-buffer-limit", none, "maxmemory-clients", "0"}, false},
		{[]string{"client-output-buffer-limit", "normal 8388608 0 0 slave 0 0 0 pubsub 0 0 0"}, true},
		{[]string{"client-output-buffer-limit", "slave 0 0 0 normal 0 1048576 10"}, true},
		{[]string{"client-output-buffer-limit", none, "maxmemory-clients", "5%"}, true},
		{[]string{"client-output-buffer-limit", "normal"}, false},
		{[]string{"maxmemory-clients"}, false},
		{nil, false},
	} {
		reply := resp.AppendArray(nil, len(c.settings))
		for _, word := range c.settings {
			reply = resp.AppendBulk(reply, []byte(word))
		}
		if got := LimitsOutput(reply); got != c.want {
			t.Errorf("%q: %t", c.settings, got)
		}
	}
	if LimitsOutput([]byte("-NOPERM no\r\n")) {
		t.Error("an error is taken for a limit")
	}
}
