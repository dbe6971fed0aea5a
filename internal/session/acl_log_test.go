package session

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// A user without rights to CLIENT who has a name, and connections of its own, stands in no ACL LOG: it has sent nothing that it may not.
func TestACLLogOfConnectionsOfOnesOwn(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	server.Do(t, "ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@read", "+@write", "+@transaction", "+@pubsub", "+@connection", "-client", "+ping")
	for _, hello := range []string{"2", "3"} {
		name := "worker-" + hello
		w := dialWire(t, p.addr)
		w.do("HELLO", hello, "AUTH", "u", "pw", "SETNAME", name)
		w.expect("+OK\r\n", "WATCH", "k")
		w.expect("+OK\r\n", "UNWATCH")
		s := dialWire(t, p.addr)
		s.do("HELLO", hello, "AUTH", "u", "pw", "SETNAME", name)
		s.do("SUBSCRIBE", "ch")
		eventually(t, "the connection has the client's name", func() bool {
			return strings.Contains(text(server.Do(t, "CLIENT", "LIST", "TYPE", "pubsub")), " name="+name+" ")
		})
	}
	if denied, err := redis.Values(server.Do(t, "ACL", "LOG"), nil); err != nil || len(denied) > 0 {
		t.Errorf("ACL LOG: %q, %v", denied, err)
	}
}
