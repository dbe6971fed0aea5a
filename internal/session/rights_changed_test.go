package session

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// What is changed of users through this proxy holds for the next command, whatever was known of their rights.
func TestRightsChangedHereHoldAtOnce(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	do := admin(t, server)
	do("ACL", "SETUSER", "alice", "on", ">one", "~*", "&*", "+@all")
	do("ACL", "SETUSER", "boss", "on", ">boss", "~*", "&*", "+@all")
	p := startProxy(t, strings.Replace(server.URL(), "redis://", "redis://boss:boss@", 1), nil)
	alice, boss := dialWire(t, p.addr), dialWire(t, p.addr)
	alice.expect("+OK\r\n", "AUTH", "alice", "one")
	boss.expect("+OK\r\n", "AUTH", "boss", "boss")
	lock := func(may bool) {
		t.Helper()
		got := alice.do("LOCK", "l")
		if may && got != "+OK\r\n" || !may && !strings.HasPrefix(got, "-NOPERM") {
			t.Errorf("LOCK: %q, may %v", got, may)
		}
		if may {
			alice.expect(":1\r\n", "UNLOCK", "l")
		}
		got = alice.do("CLIENT", "ID")
		if may == strings.HasPrefix(got, "-NOPERM") {
			t.Errorf("CLIENT ID: %q, may %v", got, may)
		}
	}
	for range 3 {
		lock(true)
		boss.expect("+OK\r\n", "ACL", "SETUSER", "alice", "-@write", "-client|id")
		lock(false)
		boss.expect("+OK\r\n", "MULTI")
		boss.expect("+QUEUED\r\n", "ACL", "SETUSER", "alice", "+@all")
		lock(false)
		boss.expect("*1\r\n+OK\r\n", "EXEC")
		lock(true)
		boss.expect("+OK\r\n", "WATCH", "k") // and on a connection of its own
		boss.expect("+OK\r\n", "ACL", "SETUSER", "alice", "-@write", "-client|id")
		lock(false)
		boss.expect("+OK\r\n", "UNWATCH")
		boss.expect("+OK\r\n", "ACL", "SETUSER", "alice", "+@all")
	}
}

// A password that is set through this proxy is asked of the next client.
func TestPasswordSetHereHoldsAtOnce(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	do := admin(t, server)
	do("ACL", "SETUSER", "boss", "on", ">boss", "~*", "&*", "+@all")
	p := startProxy(t, strings.Replace(server.URL(), "redis://", "redis://boss:boss@", 1), nil)
	boss := dialWire(t, p.addr)
	boss.expect("+OK\r\n", "AUTH", "boss", "boss")
	for _, change := range [][]string{
		{"CONFIG", "SET", "requirepass", "x"}, {"ACL", "SETUSER", "default", "off"}, {"ACL", "SETUSER", "default", "resetpass"},
	} {
		boss.expect("+OK\r\n", "ACL", "SETUSER", "default", "on", "nopass")
		early := dialWire(t, p.addr)
		early.expect("+PONG\r\n", "PING")
		early.expect("*0\r\n", "KEYS", "none*")
		boss.expect("+OK\r\n", change...)
		for _, first := range [][]string{{"GET", "k"}, {"LOCK", "l"}, {"BLPOP", "q", "0.01"}} {
			dialWire(t, p.addr).expect("-NOAUTH Authentication required.\r\n", first...)
		}
		early.expect("-NOAUTH Authentication required.\r\n", "GET", "k")
	}
}

// A user that is deleted loses its connections, as at Redis: idle ones, those of holders, and those at work, and none is told
// that something it has not sent may have been done.
func TestDeletedUsersAreClosed(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	do := admin(t, server)
	p := startProxy(t, server.URL(), nil)
	boss := dialWire(t, p.addr)
	for _, how := range []string{"here", "in a transaction", "past the proxy"} {
		t.Run(how, func(t *testing.T) {
			do("ACL", "SETUSER", "alice", "on", ">one", "~*", "&*", "+@all")
			as := func() *wire {
				w := dialWire(t, p.addr)
				w.expect("+OK\r\n", "AUTH", "alice", "one")
				return w
			}
			idle, holder, busy := as(), as(), as()
			holder.expect("+OK\r\n", "LOCK", "held"+how)
			busy.expect("+OK\r\n", "LOCK", "busy"+how)
			said := make(chan string, 1)
			var working sync.WaitGroup
			working.Go(func() {
				for {
					if _, err := busy.conn.Write(resp.AppendCommand(nil, "INCR", "n")); err != nil {
						said <- ""
						return
					}
					if got := busy.frame(); !strings.HasPrefix(got, ":") {
						said <- got
						return
					}
				}
			})
			switch how {
			case "here":
				boss.expect(":1\r\n", "ACL", "DELUSER", "nobody", "alice")
			case "in a transaction":
				boss.expect("+OK\r\n", "MULTI")
				boss.expect("+QUEUED\r\n", "ACL", "DELUSER", "alice")
				boss.expect("*1\r\n:1\r\n", "EXEC")
			default:
				do("ACL", "DELUSER", "alice")
			}
			if got := <-said; strings.Contains(got, "unknown") {
				t.Errorf("at work: %q", got)
			}
			working.Wait()
			if got := holder.rest(); got != "" {
				t.Errorf("a holder: %q", got)
			}
			if got := idle.rest(); got != "" {
				t.Errorf("an idle one: %q", got)
			}
			boss.expect("+PONG\r\n", "PING")
		})
	}
}

// So it is with clients that have not asked Redis for anything since they logged in, when nobody else of that user is there.
func TestDeletedUsersIdleClientsAreClosed(t *testing.T) {
	closed := func(t *testing.T, p *proxy, servers ...*testredis.Server) {
		for _, login := range [][]string{{"AUTH", "alice", "one"}, {"HELLO", "3", "AUTH", "alice", "one"}} {
			for _, s := range servers {
				s.Do(t, "ACL", "SETUSER", "alice", "on", ">one", "~*", "&*", "+@all")
			}
			idle := dialWire(t, p.addr)
			idle.do(login...)
			for i, s := range servers {
				if i > 0 {
					time.Sleep(100 * time.Millisecond) // the proxy asks all of them, while some still know the user
				}
				s.Do(t, "ACL", "DELUSER", "alice")
			}
			if got := idle.rest(); got != "" {
				t.Errorf("after %q: %q", login, got)
			}
			eventually(t, "it has gone", func() bool { return p.srv.clients.n.Load() == 0 })
		}
	}
	t.Run("one Redis", func(t *testing.T) {
		server := startRedis(t)
		closed(t, startProxy(t, server.URL(), nil), server)
	})
	t.Run("a cluster", func(t *testing.T) {
		redis := testredis.StartCluster(t, 3, 0)
		closed(t, startProxyOf(t, redis, nil), redis.Servers...)
	})
}

// Every run of commands is asked whether it changed rights: where it did not, that needs no memory.
func TestNoChangeOfRightsAllocatesNothing(t *testing.T) {
	s := &Server{}
	if n := testing.AllocsPerRun(100, func() { s.rightsChanged(backend.RightsChange{}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
