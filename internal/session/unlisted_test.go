package session_test

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Nothing is forwarded before Redis has listed its commands: nobody knows what they do to the connection that clients share.
func TestNothingIsForwardedBeforeCommandsAreKnown(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--rename-command MULTI begin", "--user default on nopass ~* &* +@all -command")
	addr := twoWires(t, server.Addr(), server.Addr(), lock.ManagerOptions{})
	c, other := connect(t, addr), connect(t, addr)
	const line = "NOPERM the service account may not run COMMAND, by which lockproxy learns what commands do"
	for _, name := range []string{"BEGIN", "GET"} {
		if _, err := c.Do(name); err == nil || err.Error() != line {
			t.Errorf("%s: %v", name, err)
		}
	}
	server.Do(t, "ACL", "SETUSER", "default", "+command")
	for end := time.Now().Add(longEnough); ; {
		if _, err := c.Do("BEGIN"); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if got, err := redis.String(other.Do("PING")); got != "PONG" {
		t.Errorf("another client's PING: %q, %v", got, err)
	}
	if got, err := redis.String(c.Do("PING")); got != "QUEUED" {
		t.Errorf("its own: %q, %v", got, err)
	}
}
