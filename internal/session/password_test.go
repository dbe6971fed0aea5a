package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

const loggedOut = "-NOAUTH Authentication required.\r\n"

// keptWhoWasIn sets a password at each of the servers behind p where there was none. As at Redis, whoever was in stays in, and may take the
// password back; newcomers are asked for it at once, also those that share nothing with whoever was in, or that connected before and were silent.
func keptWhoWasIn(t *testing.T, p *proxy, servers ...*testredis.Server) {
	t.Helper()
	in, silent, reset := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	reset.expect("+PONG\r\n", "PING")
	in.expect("+OK\r\n", "LOCK", "mine")
	for i := range 10 { // there are connections to all nodes, for writes and for reads
		in.expect("+OK\r\n", "SET", fmt.Sprint("k", i), "v")
		in.expect("$1\r\nv\r\n", "GET", fmt.Sprint("k", i))
	}
	for _, s := range servers {
		s.Do(t, "CONFIG", "SET", "requirepass", "secret")
	}
	for _, first := range [][]string{{"GET", "k1"}, {"LOCK", "l"}, {"MULTI"}, {"SUBSCRIBE", "c"}, {"BLPOP", "q", "0.01"}, {"SELECT", "0"}, {"LOCKINFO", "mine"}} {
		dialWire(t, p.addr).expect(loggedOut, first...)
	}
	silent.expect(loggedOut, "GET", "k1")
	reset.expect("+RESET\r\n", "RESET")
	reset.expect(loggedOut, "GET", "k1")
	for i := range 10 {
		in.expect("$1\r\nv\r\n", "GET", fmt.Sprint("k", i))
	}
	if len(servers) == 1 { // a node of a cluster has such a connection if it was asked about a newcomer
		in.expect("+OK\r\n", "MULTI")
		in.expect("+QUEUED\r\n", "GET", "k1")
		in.expect("+OK\r\n", "DISCARD")
	}
	in.expect(":1\r\n", "UNLOCK", "mine")
	in.expect("+OK\r\n", "CONFIG", "SET", "requirepass", "")
	eventually(t, "newcomers are let in again", func() bool { return silent.do("GET", "k1") == "$1\r\nv\r\n" })
	for _, s := range servers {
		do := admin(t, s)
		do("CONFIG", "SET", "requirepass", "secret")
		do("CLIENT", "KILL", "TYPE", "normal")
	}
	if got := in.rest(); got != "" { // as at Redis: its connection has ended
		t.Errorf("when Redis has closed its connections: %q", got)
	}
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "AUTH", "secret")
	w.expect("$1\r\nv\r\n", "GET", "k1")
}

func TestPasswordSetWhereThereWasNone(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	keptWhoWasIn(t, p, server)
}

func TestPasswordSetInACluster(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 3, 0)
	keptWhoWasIn(t, startProxyOf(t, redis, nil), redis.Servers...)
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
