package session

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const overBound = "-ERR max number of upstream connections reached for this user\r\n"

// budgeted serves a proxy whose clients may have so many connections to themselves, of a Budget that is four times that.
func budgeted(t *testing.T, server *testredis.Server, alone int) (*proxy, *upstream.Budget) {
	t.Helper()
	b := upstream.NewBudget(4*alone, alone)
	where, err := upstream.ParseURL(server.URL())
	target := where.Target()
	if err != nil {
		t.Fatal(err)
	}
	node := upstream.NewNode(target, upstream.NodeOptions{Logger: testLog(), Budget: b, DialTimeout: dialTime})
	t.Cleanup(node.Close)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.Node, o.Budget = node, b })
	return p, b
}

// TestUpstreamConnectionsAreBounded: over the bound a command that needs a connection of its own gets an error, and nothing
// else changes; a place that is given back serves the next.
func TestUpstreamConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	p, b := budgeted(t, testredis.Start(t), 4)
	inUse := func(n int) { // a client has its reply a moment before its connection is given back
		t.Helper()
		eventually(t, strconv.Itoa(n)+" connections serve one client each", func() bool { used, _ := p.srv.o.Node.DedicatedCount(); return used == n })
	}
	var subscribers []*wire
	for range 4 {
		w := dialWire(t, p.addr)
		w.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
		subscribers = append(subscribers, w)
	}
	w := dialWire(t, p.addr)
	w.expect(overBound, "SUBSCRIBE", "c")
	w.expect(overBound, "BLPOP", "list", "1")
	w.expect("+OK\r\n", "SET", "k", "v")
	w.expect("+OK\r\n", "LOCK", "lock", "EX", "600")
	w.expect("+OK\r\n", "SET", "big", strings.Repeat("x", resp.Long+1)) // over the shared one then
	w.expect("$1\r\nv\r\n", "GET", "k")
	if info := w.do("INFO", "lockproxy"); !strings.Contains(info, "\r\nlockproxy_upstream_connections:6\r\n") ||
		!strings.Contains(info, "\r\nlockproxy_upstream_connections_max:16\r\n") {
		t.Errorf("INFO: %s", info)
	}
	subscribers[0].expect("*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n", "UNSUBSCRIBE", "c")
	inUse(3)
	w.expect("*-1\r\n", "BLPOP", "list", "0.01")
	inUse(3)
	other := dialWire(t, p.addr)
	other.expect("+OK\r\n", "MULTI")
	w.expect("+OK\r\n", "MULTI") // what follows is not to be run without
	w.expect("-ERR max number of upstream connections reached for this user: the transaction is discarded, EXEC or DISCARD ends it\r\n", "SET", "k", "w")
	w.expect("-EXECABORT Transaction discarded because of: max number of upstream connections reached for this user\r\n", "EXEC")
	w.expect("$1\r\nv\r\n", "GET", "k")
	if used, _ := b.Used(); used > 6 {
		t.Errorf("%d connections", used)
	}
}

// TestUpstreamConnectionsToAClusterAreBounded: over all of its nodes together.
func TestUpstreamConnectionsToAClusterAreBounded(t *testing.T) {
	b := upstream.NewBudget(24, 4)
	p := startProxyOf(t, testredis.StartCluster(t, 3, 0), func(o *ServerOptions) { o.Budget = b }, b)
	var others []*wire
	for i := range 4 {
		w := dialWire(t, p.addr)
		if i%2 == 0 {
			w.do("SUBSCRIBE", "c")
		} else {
			w.expect("+OK\r\n", "WATCH", "k"+strconv.Itoa(i))
		}
		others = append(others, w)
	}
	w := dialWire(t, p.addr)
	w.expect(overBound, "SUBSCRIBE", "c")
	w.expect(overBound, "BLPOP", "list", "1")
	w.expect("+OK\r\n", "MULTI")
	w.expect("-ERR max number of upstream connections reached for this user: the transaction is discarded, EXEC or DISCARD ends it\r\n", "SET", "k", "w")
	w.expect("-EXECABORT Transaction discarded because of: max number of upstream connections reached for this user\r\n", "EXEC")
	for i := range 20 { // at every node
		w.expect("+OK\r\n", "SET", "k"+strconv.Itoa(i), "v")
	}
	w.expect("+OK\r\n", "SET", "big", strings.Repeat("x", resp.Long+1))
	w.expect("+OK\r\n", "LOCK", "lock", "EX", "600")
	w.expect(":1\r\n", "UNLOCK", "lock")
	for i, other := range others {
		if i%2 == 0 {
			other.do("UNSUBSCRIBE", "c")
		} else {
			other.expect("+OK\r\n", "UNWATCH")
		}
	}
	eventually(t, "there is room again", func() bool { return w.do("BLPOP", "list", "0.01") == "*-1\r\n" })
	w.expect("+OK\r\n", "MULTI")
	w.expect("+QUEUED\r\n", "GET", "k")
	w.expect("*1\r\n$-1\r\n", "EXEC")
	if used, total := b.Used(); used > 8+3 || total != 24 {
		t.Errorf("%d connections of %d", used, total)
	}
}

// TestLoginMovesAConnectionToItsUser: a client's own connection counts for the user as whom the client has logged in since, however it was
// made; a login is never refused for that.
func TestLoginMovesAConnectionToItsUser(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--user", "ann", "on", ">pw", "~*", "&*", "+@all")
	p, _ := budgeted(t, server, 2)
	var in []*wire
	for i := range 3 {
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "WATCH", "k")
		if i%2 == 0 {
			w.expect("+OK\r\n", "AUTH", "ann", "pw")
		} else {
			w.do("HELLO", "3", "AUTH", "ann", "pw")
		}
		in = append(in, w)
	}
	ann, nobody := dialWire(t, p.addr), dialWire(t, p.addr)
	ann.expect("+OK\r\n", "AUTH", "ann", "pw")
	ann.expect(overBound, "WATCH", "k")
	nobody.expect("+OK\r\n", "WATCH", "k")
	nobody.expect("+OK\r\n", "UNWATCH")
	in[0].conn.Close()
	in[1].conn.Close()
	eventually(t, "ann has room again", func() bool { return ann.do("WATCH", "k") == "+OK\r\n" })
}

// TestStrangersHaveNoConnectionsOfTheirOwn: who has yet to log in is refused by Redis, over what is shared.
func TestStrangersHaveNoConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass", "pw")
	p := startProxy(t, "redis://:pw@"+server.Addr(), nil)
	w := dialWire(t, p.addr)
	for _, args := range [][]string{
		{"BLPOP", "x", "0"}, {"SUBSCRIBE", "c"}, {"MULTI"}, {"WATCH", "k"}, {"WAIT", "0", "0"}, {"CLIENT", "TRACKING", "ON"},
		{"EVAL", "return 1", "0"}, {"SCRIPT", "KILL"}, {"XREAD", "BLOCK", "0", "STREAMS", "s", "$"},
	} {
		if got := w.do(args...); !strings.HasPrefix(got, "-NOAUTH ") {
			t.Errorf("%v by a stranger: %q", args, got)
		}
	}
	if used, idle := p.srv.o.Node.DedicatedCount(); used+idle != 0 {
		t.Errorf("%d connections were made for a stranger", used+idle)
	}
	w.expect("+OK\r\n", "AUTH", "pw")
	w.expect("*-1\r\n", "BLPOP", "x", "0.01")
}

// TestBigTrafficsConnectionIsGivenBack with the reply: the next client takes it, and whoever must have one of its own has its place.
func TestBigTrafficsConnectionIsGivenBack(t *testing.T) {
	t.Parallel()
	p, b := budgeted(t, testredis.Start(t), 1)
	big := strings.Repeat("x", resp.Long+1)
	first := dialWire(t, p.addr)
	first.expect("+OK\r\n", "SET", "k", "v")
	before, _ := b.Used()
	for range 3 {
		dialWire(t, p.addr).expect("+OK\r\n", "SET", "big", big)
	}
	if used, _ := b.Used(); used != before+1 {
		t.Errorf("%d connections after three clients' long commands, %d before", used, before)
	}
	first.expect("+OK\r\n", "WATCH", "k")
	if used, _ := b.Used(); used != before+1 {
		t.Errorf("%d connections with one that watches", used)
	}
}

// TestRedirectionKeepsAConnectionForItsTimeOnly: a client whose connection another one has named keeps it until that one
// tracks no more, or has gone.
func TestRedirectionKeepsAConnectionForItsTimeOnly(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testredis.Start(t).URL(), nil)
	target := dialWire(t, p.addr)
	target.expect("+PONG\r\n", "PING")
	id := p.idOf(target)
	kept := func() bool {
		n, _ := strconv.ParseInt(id, 10, 64)
		return p.srv.clients.session(n).own.View.RedisID.Load() != 0
	}
	for _, end := range []func(*wire){
		func(w *wire) { w.expect("+OK\r\n", "CLIENT", "TRACKING", "OFF") },
		func(w *wire) { w.expect("+RESET\r\n", "RESET") },
		func(w *wire) { w.conn.Close() },
	} {
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "CLIENT", "TRACKING", "ON", "REDIRECT", id)
		w.expect("+OK\r\n", "CLIENT", "TRACKING", "ON", "REDIRECT", id)
		if !kept() {
			t.Error("the client that was named has no connection")
		}
		end(w)
		eventually(t, "its connection is given back", func() bool { return !kept() })
	}
	target.expect("+PONG\r\n", "PING")
}
