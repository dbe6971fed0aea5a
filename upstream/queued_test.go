package upstream

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What is asked by queueing a command does not run, whatever Redis says: to the command, to MULTI, or to the login.
func TestAskQueuedRunsNothing(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	for user, rules := range map[string][]any{"all": {"+@all"}, "some": {"+@all", "-del"}, "none": {"+@all", "-multi"}} {
		s.Do(t, append([]any{"ACL", "SETUSER", user, "on", ">p", "~*"}, rules...)...)
	}
	n := newNode(t, targetOf(t, s), NodeOptions{DialTimeout: dialTime})
	s.Do(t, "SET", "k", "v")
	for user, want := range map[string]string{"all": "+QUEUED\r\n", "some": "-NOPERM ", "none": "-NOPERM ", "nobody": "WRONGPASS "} {
		reply, err := n.AskQueued(t.Context(), Identity{User: user, Password: "p"}, "DEL", "k")
		if err != nil {
			reply = []byte(err.Error())
		}
		if !strings.HasPrefix(string(reply), want) {
			t.Errorf("%s: %q", user, reply)
		}
	}
	if got := s.Do(t, "EXISTS", "k"); got != int64(1) {
		t.Errorf("the key is gone: %v", got)
	}
}
