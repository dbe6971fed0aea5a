package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// admin runs commands past the proxy.
func admin(t *testing.T, s *testredis.Server) func(args ...any) any {
	conn := s.Dial(t)
	return func(args ...any) any {
		t.Helper()
		got, err := conn.Do(args[0].(string), args[1:]...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return got
	}
}

func stat(t *testing.T, do func(...any) any, name string) (n int) {
	t.Helper()
	info, err := redis.String(do("INFO"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(info, "\n"+name+":")
	fmt.Sscan(line, &n)
	return n
}

// A wrong password is Redis' own affair: its words, its ACL LOG, and no connection for each try.
func TestWrongPasswords(t *testing.T) {
	t.Parallel()
	server := startRedis(t, "--requirepass secret")
	do := admin(t, server)
	do("ACL", "SETUSER", "off", "off", ">one")
	p := startProxy(t, server.URL(), nil)
	eventually(t, "the password is known to be needed", p.srv.asksPassword)
	direct, w := dialWire(t, server.Addr()), dialWire(t, p.addr)
	for _, args := range [][]string{
		{"AUTH", "wrong"}, {"AUTH", "default", "wrong"}, {"AUTH", "nobody", "wrong"}, {"AUTH", "off", "one"}, {"AUTH", "a", "b", "c"}, {"AUTH"},
		{"AUTH", "", "x"}, {"HELLO", "3", "AUTH", "default", "wrong"}, {"HELLO", "3"}, {"GET", "k"}, {"AUTH", "secret"}, {"AUTH", "wrong"}, {"SET", "k", "v"},
	} {
		if want, got := direct.do(args...), w.do(args...); want != got {
			t.Errorf("%q: lockproxy %q, redis %q", args, got, want)
		}
	}
	w.expect("+OK\r\n", "LOCK", "first") // the lock for a try at the start is over then: its scripts count as commands
	do("ACL", "LOG", "RESET")
	connections, calls := stat(t, do, "total_connections_received"), stat(t, do, "total_commands_processed")
	for i := range 50 {
		c := dialWire(t, p.addr)
		if got := c.do("AUTH", fmt.Sprint("user", i), "wrong"); !strings.HasPrefix(got, "-WRONGPASS") {
			t.Fatal(got)
		}
		c.conn.Close()
	}
	if n := stat(t, do, "total_connections_received") - connections; n > 20 {
		t.Errorf("%d connections for 50 wrong passwords", n)
	}
	if n := stat(t, do, "total_commands_processed") - calls; n > 300 {
		t.Errorf("%d commands for 50 wrong passwords", n)
	}
	if entries, _ := redis.Values(do("ACL", "LOG", 300), nil); len(entries) < 50 {
		t.Errorf("%d entries in Redis' ACL LOG", len(entries))
	}
}

// After a change of the password those who are in stay, as in Redis, and the old one lets nobody in, whoever is in with
// it. When a connection is made again with it, all its clients are closed and their locks run out.
func TestPasswordRotated(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		user, old, fresh []string
		change           []any
	}{
		"of a user": {[]string{"alice"}, []string{"alice", "one"}, []string{"alice", "two"}, []any{"ACL", "SETUSER", "alice", "resetpass", ">two"}},
		"of all":    {[]string{"default"}, []string{"one"}, []string{"two"}, []any{"CONFIG", "SET", "requirepass", "two"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := startRedis(t)
			do := admin(t, server)
			do("ACL", "SETUSER", "alice", "on", ">one", "~*", "&*", "+@all")
			do("ACL", "SETUSER", "boss", "on", ">boss", "~*", "&*", "+@all")
			do("AUTH", "boss", "boss")
			do("CONFIG", "SET", "requirepass", "one")
			p := startProxy(t, strings.Replace(server.URL(), "redis://", "redis://boss:boss@", 1), nil)
			auth := func(credentials []string) *wire {
				t.Helper()
				w := dialWire(t, p.addr)
				w.expect("+OK\r\n", append([]string{"AUTH"}, credentials...)...)
				return w
			}
			holder, idle, waiter, boss := auth(c.old), auth(c.old), auth(c.old), auth([]string{"boss", "boss"})
			three := auth(c.old)
			three.do("HELLO", "3")
			holder.expect("+OK\r\n", "LOCK", "mine", "PX", "600000")
			holder.expect("+OK\r\n", "LOCK", "watched")
			boss.expect("+OK\r\n", "LOCK", "his")
			do(c.change...)
			for _, w := range []*wire{holder, idle, three} {
				w.expect("+PONG\r\n", "PING")
			}
			late := dialWire(t, p.addr)
			if got := late.do(append([]string{"AUTH"}, c.old...)...); !strings.HasPrefix(got, "-WRONGPASS") {
				t.Errorf("the old password: %q", got)
			}
			if got := late.do("HELLO", "3", "AUTH", c.user[0], "one"); !strings.HasPrefix(got, "-WRONGPASS") {
				t.Errorf("the old password with HELLO: %q", got)
			}
			fresh := auth(c.fresh)
			fresh.expect("+OK\r\n", "LOCK", "theirs") // a holder is not closed if its next command is sent before the loss of its connection is noticed
			waiter.send("LOCK", "his", "BLOCK", "0")
			eventually(t, "it waits", func() bool { return strings.Contains(boss.do("INFO", "lockproxy"), "locks_waiting:1\r\n") })

			attempts := stat(t, do, "total_connections_received")
			do("CLIENT", "KILL", "USER", c.user[0])
			for _, w := range []*wire{holder, idle, three, waiter} {
				w.rest() // closed, without a word from the client
			}
			eventually(t, "those with the new one go on", func() bool { return fresh.do("PING") == "+PONG\r\n" })
			boss.expect("+PONG\r\n", "PING")
			if got := boss.do("LOCK", "mine"); got != "$-1\r\n" {
				t.Errorf("a lock was released under its holder: %q", got)
			}
			if got := boss.do("LOCK", "watched"); got != "$-1\r\n" {
				t.Errorf("a watched lock was released under its holder: %q", got)
			}
			boss.expect("+OK\r\n", "LOCK", "watched", "BLOCK", "60000")
			boss.expect(":1\r\n", "UNLOCK", "his")
			if n := stat(t, do, "total_connections_received") - attempts; n > 20 {
				t.Errorf("%d connections since", n)
			}
		})
	}
}

// However many others come and go, who is connected keeps the connection and what it stands for.
func TestIdentitiesInUseStay(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	do := admin(t, server)
	p := startProxy(t, server.URL(), nil)
	do("ACL", "SETUSER", "stays", "on", ">pw", "~*", "+@all")
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "AUTH", "stays", "pw")
	id := w.do("EVAL", "return redis.call('CLIENT','ID')", "0")
	for i := range 200 { // 64 are kept when nobody uses them
		user := fmt.Sprint("u", i)
		do("ACL", "SETUSER", user, "on", ">pw", "~*", "+@all")
		c := dialWire(t, p.addr)
		c.expect("+OK\r\n", "AUTH", user, "pw")
		c.expect("+PONG\r\n", "PING")
		c.conn.Close()
	}
	if got := w.do("EVAL", "return redis.call('CLIENT','ID')", "0"); got != id {
		t.Errorf("connection %q has become %q", id, got)
	}
	// Of each of 64 identities the shared connection is kept, and the one on which AUTH succeeded.
	eventually(t, "the others' connections are closed", func() bool { return stat(t, do, "connected_clients") < 2*64+16 })
}

// Behind RESET a client is held to Redis' small limits, also by what came in the same packet: it closes its own connection,
// not the one upstream that it shares with others who have not logged in.
func TestLimitsBehindReset(t *testing.T) {
	t.Parallel()
	server := startRedis(t, "--requirepass secret")
	p := startProxy(t, server.URL(), nil)
	eventually(t, "the password is known to be needed", p.srv.asksPassword)
	do := admin(t, server)
	other := dialWire(t, p.addr)
	other.expect("-NOAUTH Authentication required.\r\n", "GET", "k")
	eleven := []string{"DEL", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}
	connections, began := stat(t, do, "total_connections_received"), time.Now()
	for _, behind := range [][][]string{
		{eleven}, {{"ECHO", strings.Repeat("x", 16385)}}, {{"PING"}, eleven, {"PING"}}, {eleven[:10], {"QUIT"}},
		{{"AUTH", "secret"}, eleven, {"ECHO", strings.Repeat("x", 16385)}, {"QUIT"}}, {{"AUTH", "wrong"}, eleven},
	} {
		var said []string
		for _, addr := range []string{server.Addr(), p.addr} {
			w := dialWire(t, addr)
			w.expect("+OK\r\n", "AUTH", "secret")
			var all []byte
			for _, args := range append([][]string{{"PING"}, {"RESET"}}, behind...) {
				all = append(all, resp.Command(bytesOf(args))...)
			}
			w.raw(all)
			said = append(said, w.rest())
		}
		if said[0] != said[1] {
			t.Errorf("%.60q:\n  redis     %.200q\n  lockproxy %.200q", behind, said[0], said[1])
		}
		other.expect("-NOAUTH Authentication required.\r\n", "GET", "k")
	}
	// 6 of them are this test's, and whether Redis asks for a password is asked again now and then, on a connection of its own.
	n, took := stat(t, do, "total_connections_received")-connections, time.Since(began)
	if n > 6+6+2*int(took/needPeriod) {
		t.Errorf("%d connections within %v: the shared one was closed", n, took)
	}
}

// A password that was right at the login and is not any more costs a client new connections only: whoever is logged in goes on, as at Redis,
// and nobody else hears of it.
func TestPasswordRotatedBeforeADedicatedConnection(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	do := admin(t, server)
	do("ACL", "SETUSER", "alice", "on", ">one", "~*", "&*", "+@all")
	p := startProxy(t, server.URL(), nil)
	w, idle, three := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	for _, c := range []*wire{w, idle, three} {
		c.expect("+OK\r\n", "AUTH", "alice", "one")
		c.expect("+PONG\r\n", "PING")
	}
	three.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
	idle.expect("+OK\r\n", "LOCK", "l")
	do("ACL", "SETUSER", "alice", "resetpass", ">two")
	const refused = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	w.expect("*-1\r\n", "BLPOP", "list", "0.01") // over the connection on which the password was asked
	w.expect("+OK\r\n", "MULTI")
	w.expect("+QUEUED\r\n", "SET", "k", "v")
	idle.expect("+OK\r\n", "MULTI") // there is no further one; what follows is not run by itself
	idle.expect(strings.TrimSuffix(refused, "\r\n")+": the transaction is discarded, EXEC or DISCARD ends it\r\n", "SET", "k", "v")
	idle.expect("+OK\r\n", "DISCARD")
	idle.raw(slices.Concat(resp.AppendCommand(nil, "SELECT", "3"), resp.AppendCommand(nil, "SET", "k", "of database 3"), resp.AppendCommand(nil, "SELECT", "0"), resp.AppendCommand(nil, "GET", "k")))
	for _, want := range []string{"+OK\r\n", refused, "+OK\r\n", "$-1\r\n"} {
		idle.want(want)
	}
	w.expect("*1\r\n+OK\r\n", "EXEC")
	w.expect("+OK\r\n", "SET", "big", strings.Repeat("x", 2*resp.Long))
	idle.expect("+OK\r\n", "SET", "k", "v")
	idle.expect(":1\r\n", "UNLOCK", "l")
	idle.expect(":1\r\n", "PUBLISH", "c", "m")
	three.want("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n")
	idle.expect("+OK\r\n", "SELECT", "3")
	idle.expect(refused, "GET", "k")
	w.expect("+OK\r\n", "AUTH", "alice", "two")
	idle.expect("$-1\r\n", "GET", "k") // by the user's newer password
	do("CLIENT", "KILL", "USER", "alice")
	for _, c := range []*wire{idle, three} { // a password that has leaked ends with its connections, although the newer one is known
		if got := c.rest(); got != "" {
			t.Errorf("%q", got)
		}
	}
	w.expect("+OK\r\n", "SELECT", "3")
}

// Before a cluster a client whose password is not valid any more goes on as well: what would need a further connection of it, but for commands
// that wait or keep something, goes over those that it has.
func TestPasswordRotatedInACluster(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 2, 0)
	p := startProxyOf(t, redis, nil)
	each := func(words ...any) {
		for _, s := range redis.Servers {
			s.Do(t, words...)
		}
	}
	each("ACL", "SETUSER", "alice", "on", ">one", "~*", "&*", "+@all")
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "AUTH", "alice", "one")
	here, there := keyAt(t, redis, redis.Servers[0]), keyAt(t, redis, redis.Servers[1])
	big := strings.Repeat("x", 2*resp.Long)
	for _, key := range []string{here, there} {
		w.expect("$-1\r\n", "GET", key)
	}
	each("ACL", "SETUSER", "alice", "resetpass", ">two")
	for _, key := range []string{here, there} {
		w.expect("+OK\r\n", "SET", key, big)
		w.expect(":1\r\n", "EVAL", "return 1", "1", key)
		w.expect(":1\r\n", "EVAL", "return redis.call('EXISTS', KEYS[1])", "1", key)
	}
	w.expect("+OK\r\n", "MSET", here, big, there, big)
}
