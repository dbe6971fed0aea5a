package session_test

import (
	"errors"
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

// A Redis that answers late, as at the start on a busy machine, is waited for by the first commands.
func TestFirstCommandsWaitForTheCommandTable(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Stop()
	defer server.Cont()
	addr := twoWires(t, server.Addr(), server.Addr(), lock.ManagerOptions{})
	c := connect(t, addr)
	if err := errors.Join(c.Send("SET", "k", "v"), c.Flush()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second / 2) // longer than a command is tried again
	server.Cont()
	if got, err := redis.String(c.Receive()); got != "OK" {
		t.Errorf("got %q, %v", got, err)
	}
}
