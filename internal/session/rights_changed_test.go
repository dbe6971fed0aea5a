package session

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// What is changed of users through this proxy holds for the next command, whatever was known of their rights.
func TestRightsChangedHereHoldAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) {
		server := startRedis(t)
		do := admin(t, server)
		do("ACL", "SETUSER", "boss", "on", ">boss", "~*", "&*", "+@all")
		p := startProxy(t, strings.Replace(server.URL(), "redis://", "redis://boss:boss@", 1), nil)
		boss := dialWire(t, p.addr)
		boss.expect("+OK\r\n", "AUTH", "boss", "boss")
		boss.expect("+OK\r\n", "LOCK", "boss's")
		rightsHoldAtOnce(t, p, do, boss, []string{"FENCED", "boss's"})
	})
	t.Run("cluster", func(t *testing.T) {
		redis := testredis.StartCluster(t, 1, 0)
		p := startProxyOf(t, redis, nil)
		rightsHoldAtOnce(t, p, admin(t, redis.Servers[0]), dialWire(t, p.addr), nil) // FENCED refuses there what concerns all nodes
	})
}

// rightsHoldAtOnce has boss change alice's rights in all ways, also by what fence begins.
func rightsHoldAtOnce(t *testing.T, p *proxy, do func(...any) any, boss *wire, fence []string) {
	do("ACL", "SETUSER", "alice", "on", ">one", "~*", "&*", "+@all")
	alice := dialWire(t, p.addr)
	alice.expect("+OK\r\n", "AUTH", "alice", "one")
	lock := func(may bool) {
		t.Helper()
		got := alice.do("LOCK", "l")
		if may && got != "+OK\r\n" || !may && !strings.HasPrefix(got, "-NOPERM") {
			t.Errorf("LOCK: %q, may %v", got, may)
		}
		if got == "+OK\r\n" {
			alice.do("UNLOCK", "l")
		}
		got = alice.do("CLIENT", "ID")
		if may == strings.HasPrefix(got, "-NOPERM") {
			t.Errorf("CLIENT ID: %q, may %v", got, may)
		}
	}
	give, take := []string{"ACL", "SETUSER", "alice", "+@all"}, []string{"ACL", "SETUSER", "alice", "-@write", "-client|id"}
	for range 3 {
		lock(true)
		boss.expect("+OK\r\n", take...)
		lock(false)
		for _, change := range [][]string{give, take} {
			boss.expect("+OK\r\n", "MULTI")
			boss.expect("+QUEUED\r\n", change...)
			lock(slices.Equal(change, take))
			boss.expect("*1\r\n+OK\r\n", "EXEC")
			lock(slices.Equal(change, give))
		}
		boss.expect("+OK\r\n", give...)
		lock(true)
		boss.expect("+OK\r\n", "WATCH", "k") // and on a connection of its own
		boss.expect("+OK\r\n", take...)
		lock(false)
		boss.expect("+OK\r\n", "UNWATCH")
		boss.expect("+OK\r\n", give...)
		if fence != nil {
			lock(true)
			boss.expect("+OK\r\n", slices.Concat(fence, take)...)
			lock(false)
			boss.expect("+OK\r\n", slices.Concat(fence, give)...)
			lock(true)
		}
	}
}

// So it is when the transaction that changes them is queued once more, at the node of its first key.
func TestRightsChangedAheadOfTheFirstKey(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 2, 0)
	for _, s := range redis.Servers {
		s.Do(t, "ACL", "SETUSER", "alice", "on", ">one", "~*", "&*", "+@all")
	}
	p := startProxyOf(t, redis, nil)
	alice := dialWire(t, p.addr)
	alice.expect("+OK\r\n", "AUTH", "alice", "one")
	for range 4 { // at all nodes
		boss := dialWire(t, p.addr)
		for _, rights := range []string{"-@write", "+@all"} {
			boss.expect("+OK\r\n", "MULTI")
			boss.expect("+QUEUED\r\n", "ACL", "SETUSER", "alice", rights)
			boss.expect("+QUEUED\r\n", "EXISTS", "l")
			boss.expect("*2\r\n+OK\r\n:0\r\n", "EXEC")
			if got := alice.do("LOCK", "l"); strings.HasPrefix(got, "-NOPERM") != (rights == "-@write") {
				t.Errorf("%s: LOCK: %q", rights, got)
			}
		}
		alice.expect(":1\r\n", "UNLOCK", "l")
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
	boss.expect("+OK\r\n", "LOCK", "boss's")
	for _, change := range [][]string{
		{"CONFIG", "SET", "requirepass", "x"}, {"ACL", "SETUSER", "default", "off"}, {"ACL", "SETUSER", "default", "resetpass"},
		{"FENCED", "boss's", "CONFIG", "SET", "requirepass", "another"}, {"FENCED", "boss's", "ACL", "SETUSER", "default", "off"},
	} {
		boss.expect("+OK\r\n", "ACL", "SETUSER", "default", "on", "nopass")
		early := dialWire(t, p.addr)
		early.expect("+PONG\r\n", "PING")
		early.expect("*0\r\n", "KEYS", "none*")
		boss.expect("+OK\r\n", change...)
		for _, first := range [][]string{{"GET", "k"}, {"LOCK", "l"}, {"BLPOP", "q", "0.01"}} {
			dialWire(t, p.addr).expect("-NOAUTH Authentication required.\r\n", first...)
		}
		early.expect("$-1\r\n", "GET", "k")
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

// A change whose reply is lost may have been made: what was known of rights is forgotten.
func TestRightsChangedWithoutAReply(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"SETUSER", "EXEC"} {
		p, link, _, holder := lostLink(t, nil)
		holder.expect("+OK\r\n", "WATCH", "w")
		if last == "EXEC" {
			holder.expect("+OK\r\n", "MULTI")
			holder.expect("+QUEUED\r\n", "ACL", "SETUSER", "u", "on")
		}
		known := p.srv.access.rights.Load()
		var asked atomic.Bool
		link.Filter(func(toServer bool, b []byte) bool {
			switch {
			case toServer && bytes.Contains(b, []byte(last)):
				asked.Store(true)
			case !toServer && asked.Load():
				link.CutAll()
				return false
			}
			return true
		})
		if last == "EXEC" {
			holder.send("EXEC")
		} else {
			holder.send("ACL", "SETUSER", "u", "on")
		}
		if got := holder.frame(); got[0] != '-' {
			t.Fatalf("%s: %q", last, got)
		}
		if p.srv.access.rights.Load() == known {
			t.Errorf("%s: what was known of rights is kept", last)
		}
		link.Filter(nil)
	}
}

// Every run of commands is asked whether it changed rights: where it did not, that needs no memory.
func TestNoChangeOfRightsAllocatesNothing(t *testing.T) {
	s := &Server{}
	if n := testing.AllocsPerRun(100, func() { s.rightsChanged(backend.RightsChange{}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
