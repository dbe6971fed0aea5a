package session

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A password set while the proxy runs: nobody is served without it any more, also those who were before.
func TestPasswordSetLater(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	p := startProxy(t, redis.URL(), nil)
	old := dialWire(t, p.addr)
	old.expect("+OK\r\n", "SET", "k", "v")
	redis.Do(t, "CONFIG", "SET", "requirepass", "secret")
	eventually(t, "newcomers must log in", func() bool {
		w := dialWire(t, p.addr)
		defer w.conn.Close()
		return strings.HasPrefix(w.do("GET", "k"), "-NOAUTH") && strings.HasPrefix(w.do("LOCK", "l"), "-NOAUTH")
	})
	old.expect("-NOAUTH Authentication required.\r\n", "GET", "k")
	old.expect("-NOAUTH Authentication required.\r\n", "LOCK", "l")
	old.expect("+RESET\r\n", "RESET")
	old.expect("-NOAUTH Authentication required.\r\n", "GET", "k")
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "AUTH", "secret")
	w.expect("$1\r\nv\r\n", "GET", "k")
}

// A client whose password is no longer valid when its connection upstream is made again would get the same error for
// ever; Redis would have closed it with that connection.
func TestPasswordTakenAway(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	admin := redis.Dial(t)
	acl := func(args ...any) {
		t.Helper()
		if _, err := admin.Do("ACL", args...); err != nil {
			t.Fatal(err)
		}
	}
	acl("SETUSER", "alice", "on", ">one", "~*", "+@all")
	p := startProxy(t, redis.URL(), nil)
	w, waiting := dialWire(t, p.addr), dialWire(t, p.addr)
	for _, c := range []*wire{w, waiting} {
		c.expect("+OK\r\n", "AUTH", "alice", "one")
		c.expect("+PONG\r\n", "PING")
	}
	acl("SETUSER", "alice", "resetpass", ">two")
	w.expect("+PONG\r\n", "PING") // a new password alone ends no connection
	if _, err := admin.Do("CLIENT", "KILL", "USER", "alice"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*wire{w, waiting} {
		// Closed as Redis would, between commands without a word; within one, with Redis' error as its reply.
		if got := c.rest(); got != "" {
			t.Fatalf("got %q", got)
		}
	}
	again := dialWire(t, p.addr)
	again.expect("+OK\r\n", "AUTH", "alice", "two")
	again.expect("$-1\r\n", "GET", "k")
}

// While a script keeps Redis busy it does not tell its commands; what is known of them stands.
func TestLearningFromABusyRedis(t *testing.T) {
	t.Parallel()
	redis := startRedis(t, "--busy-reply-threshold 50")
	p := startProxy(t, redis.URL(), nil)
	stuck, killer := dialWire(t, p.addr), dialWire(t, p.addr)
	killer.expect("+PONG\r\n", "PING")
	stuck.send("EVAL", "while true do end", "0")
	dialWire(t, p.addr).until("-BUSY", "PING")
	err := p.srv.learn()
	if err == nil || !strings.HasPrefix(err.Error(), "BUSY") {
		t.Errorf("got %v", err)
	}
	if n := p.known(); n < 200 {
		t.Errorf("%d commands are known", n)
	}
	eventually(t, "it is killed", func() bool { return killer.do("SCRIPT", "KILL") == "+OK\r\n" })
	stuck.frame()
}

// A client that was let in, and has given back the connections of its big traffic, has none by which a password would be noticed that is set
// then: its first lock verb asks Redis. (The connection of lock scripts, from the proxy's first lock verb on, would have Redis asked.)
func TestPasswordSetAfterBigTraffic(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 1, 0)
	p := startProxyOf(t, redis, nil)
	p.srv.up.common.OwnFor = 50 * time.Millisecond
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "SET", "k", strings.Repeat("x", 2*backend.BigRequest))
	asked := func() string { // how often Redis was asked as a new client
		_, stats, _ := strings.Cut(text(redis.Servers[0].Do(t, "INFO", "commandstats")), "cmdstat_reset:calls=")
		calls, _, _ := strings.Cut(stats, ",")
		return calls
	}
	eventually(t, "Redis is not asked any more whether it wants a password", func() bool {
		before := asked()
		time.Sleep(time.Second) // it is asked several times in that
		return before != "" && asked() == before
	})
	redis.Servers[0].Do(t, "CONFIG", "SET", "requirepass", "secret")
	w.expect("-NOAUTH Authentication required.\r\n", "LOCK", "l")
}
