package session

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// A user's clients get errors when they take more than their share together, and other users' do not.
func TestShareOfAUser(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	do := admin(t, server)
	for _, user := range []string{"alice", "bob"} {
		do("ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all")
	}
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.LocksPerUser = 2 })
	login := func(user string) *wire {
		t.Helper()
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "AUTH", user, "pw")
		return w
	}
	const tooMany = "-ERR max number of "
	a, b, c, bob, nobody := login("alice"), login("alice"), login("alice"), login("bob"), dialWire(t, p.addr)
	nobody.expect("+OK\r\n", "LOCK", "others")
	a.expect("+OK\r\n", "LOCK", "l1")
	a.expect("+OK\r\n", "LOCK", "l1") // is the same lock
	b.expect("+OK\r\n", "LOCK", "l2", "OWNER", "me", "EX", "30")
	c.expect(tooMany+"locks per user reached\r\n", "LOCK", "l3")
	c.expect("+OK\r\n", "LOCK", "l2", "OWNER", "me", "EX", "30")
	c.expect("+OK\r\n", "MULTILOCK", "1", "l2", "OWNER", "me", "EX", "30")
	bob.expect("+OK\r\n", "MULTILOCK", "2", "l3", "l4")
	a.expect(":0\r\n", "UNLOCK", "l1")
	a.expect(":1\r\n", "UNLOCK", "l1")
	a.expect("$-1\r\n", "LOCK", "others")
	a.send("LOCK", "others", "BLOCK", "0")
	eventually(t, "it waits", func() bool { return strings.Contains(bob.do("INFO", "lockproxy"), "locks_waiting:1\r\n") })
	b.expect(tooMany+"locks per user reached\r\n", "LOCK", "others", "BLOCK", "0")
	c.expect(":1\r\n", "UNLOCK", "l2", "OWNER", "me")
	nobody.expect(":1\r\n", "UNLOCK", "others")
	a.want("+OK\r\n")
	b.expect("+OK\r\n", "LOCK", "l5")
	a.conn.Close()
	b.conn.Close()
	eventually(t, "the locks are given back", func() bool { return c.do("MULTILOCK", "2", "l1", "l5") == "+OK\r\n" })

	if err := p.srv.Change(Limits{}, CommandRules{}); err != nil {
		t.Fatal(err)
	}
	c.expect("+OK\r\n", "LOCK", "l6")
}

// A login that fails on the client's own connection has the client stay who it was, also in what it counts for.
func TestShareOfAFailedLogin(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 2, 0)
	redis.Servers[0].Do(t, "ACL", "SETUSER", "alice", "on", ">pw", "~*", "&*", "+@all")
	p := startProxyOf(t, redis, func(o *ServerOptions) { o.LocksPerUser = 1 })
	known, elsewhere := keyAt(t, redis, redis.Servers[0]), keyAt(t, redis, redis.Servers[1])
	watch := dialWire(t, p.addr)
	for i, words := range [][]string{{"AUTH", "alice", "pw"}, {"HELLO", "3", "AUTH", "alice", "pw"}} {
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "LOCK", "l"+strconv.Itoa(i))
		w.expect("+OK\r\n", "WATCH", elsewhere)
		if got := w.do(words...); !strings.HasPrefix(got, "-WRONGPASS") {
			t.Fatalf("%q: %q", words, got)
		}
		if info := w.do("CLIENT", "INFO"); !strings.Contains(info, " user=default ") {
			t.Errorf("%q: %q", words, info)
		}
		alice := dialWire(t, p.addr)
		alice.expect("+OK\r\n", "AUTH", "alice", "pw")
		alice.expect("+OK\r\n", "LOCK", known)
		alice.conn.Close()
		w.conn.Close()
		eventually(t, "their locks are given back", func() bool { return strings.Contains(watch.do("INFO", "lockproxy"), "locks_held:0\r\n") })
	}
}

// A named owner's lease counts for the user whose client has named the owner last, once.
func TestShareOfALease(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.LocksPerUser = 1 })
	do := admin(t, server)
	of := map[string]*wire{}
	for _, user := range []string{"alice", "bob"} {
		do("ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all")
		of[user] = dialWire(t, p.addr)
		of[user].expect("+OK\r\n", "AUTH", user, "pw")
	}
	alice, bob := of["alice"], of["bob"]
	const tooMany = "-ERR max number of locks per user reached\r\n"
	alice.expect("+OK\r\n", "LOCK", "x", "OWNER", "o", "EX", "30")
	alice.expect(tooMany, "LOCK", "y")
	bob.expect(":1\r\n", "RENEW", "x", "OWNER", "o", "EX", "60")
	bob.expect("+OK\r\n", "LOCK", "x", "OWNER", "o", "EX", "60")
	bob.expect(tooMany, "LOCK", "z")
	alice.expect("+OK\r\n", "LOCK", "y")
	bob.expect(":1\r\n", "UNLOCK", "x", "OWNER", "o")
	bob.expect("+OK\r\n", "LOCK", "z")
}
