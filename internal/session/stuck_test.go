package session

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestDepartedClientsLeaveAHungRedis: clients that go while Redis says nothing give their places back, also those whose
// pipelines are long; replies to what they asked reach nobody else.
func TestDepartedClientsLeaveAHungRedis(t *testing.T) {
	t.Parallel()
	if late := 2*stuckAfter + stuckEvery; late > 2500*time.Millisecond { // an idle proxy looks every stuckAfter
		t.Errorf("a place may be given back after %v, and docs/OPERATIONS.md says 2.5 s", late)
	}
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.MaxClients = 12 })
	stays := dialWire(t, p.addr)
	stays.expect("+OK\r\n", "SET", "k", "v")
	server.Stop()
	defer server.Cont()
	for range 10 {
		w := dialWire(t, p.addr)
		for range 200 {
			w.send("ECHO", "not yours")
		}
		w.conn.Close()
	}
	stays.send("GET", "k")
	eventually(t, "they give their places back", func() bool { return p.srv.clients.n.Load() == 1 })
	server.Cont()
	stays.want("$1\r\nv\r\n")
	stays.expect("+PONG\r\n", "PING")
}

// TestDepartedWaitersLeaveAHungRedis: so does one whose command, which may wait, Redis does not even take.
func TestDepartedWaitersLeaveAHungRedis(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w := dialWire(t, p.addr)
	w.expect("*-1\r\n", "BLPOP", "q", "0.001")
	server.Stop()
	defer server.Cont()
	w.send("BLPOP", strings.Repeat("q", 64<<20), "0")
	w.conn.Close()
	left := time.Now()
	eventually(t, "it gives its place back", func() bool { return p.srv.clients.n.Load() == 0 })
	if took := time.Since(left); took > 15*time.Second { // the kernel gives up such a connection after 30 s
		t.Errorf("it gave its place back after %v", took)
	}
}

// stuckFor is a time-out in which a Redis that is not stuck answers, also when the machine stalls.
const stuckFor = 4 * time.Second

// TestUpstreamTimeout: a command without an answer gets an error, its late reply reaches nobody, and the client goes on.
func TestUpstreamTimeout(t *testing.T) {
	const limit = 30 * time.Second
	inBubble(t, func(o *ServerOptions) { o.UpstreamTimeout = limit }, func(t *testing.T, b *bubble) {
		w := b.dial(t)
		w.expect("+OK\r\n", "SET", "k", "v")
		b.redis.Stop()
		from := time.Now()
		w.raw(append(resp.AppendCommand(nil, "GET", "k"), resp.AppendCommand(nil, "INCR", "n")...))
		w.want("-" + client.TimeoutLine + "\r\n")
		w.want("-" + client.TimeoutLine + "\r\n")
		if took := time.Since(from); took < limit || took > limit+stuckAfter {
			t.Errorf("a limit of %v has held for %v", limit, took)
		}
		b.redis.Cont()
		eventually(t, "Redis answers again", func() bool { return w.do("ECHO", "mine") == "$4\r\nmine\r\n" })
		w.expect("$1\r\n1\r\n", "GET", "n")
	})
}

// TestUpstreamTimeoutOfQuestions: so it is with what the proxy asks Redis for a command, as for SELECT of the client's own
// database.
func TestUpstreamTimeoutOfQuestions(t *testing.T) {
	const limit = 2 * time.Second
	inBubble(t, func(o *ServerOptions) { o.UpstreamTimeout = limit }, func(t *testing.T, b *bubble) {
		commands := [][]string{{"SELECT", "0"}, {"INFO"}, {"HELLO", "2"}}
		all := make([]*wire, len(commands))
		for i := range all {
			all[i] = b.dial(t)
			all[i].expect("+OK\r\n", "SET", "k", "v")
		}
		b.redis.Stop()
		from := time.Now()
		for i, w := range all {
			w.send(commands[i]...)
		}
		for i, w := range all {
			if got := w.frame(); got[0] != '-' || time.Since(from) > limit+stuckAfter {
				t.Errorf("%q: %q after %v", commands[i], got, time.Since(from))
			}
		}
		b.redis.Cont()
		for _, w := range all {
			eventually(t, "Redis answers again", func() bool { return w.do("GET", "k") == "$1\r\nv\r\n" })
		}
	})
}

// TestUpstreamTimeoutOfDedicatedConnections: so it is on a connection of a client's own. What waits by itself has its own time besides,
// and what waits for ever may.
func TestUpstreamTimeoutOfDedicatedConnections(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.UpstreamTimeout = stuckFor })
	watching, multi, executing, pops, waits, asks := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	for _, w := range []*wire{watching, multi, executing, asks, pops} {
		w.expect("+OK\r\n", "WATCH", "k")
	}
	for _, w := range []*wire{multi, executing} {
		w.expect("+OK\r\n", "MULTI")
		w.expect("+QUEUED\r\n", "INCR", "n")
	}
	waits.send("BLPOP", "q", "0")
	eventually(t, "it waits", func() bool { return p.sessionOf(waits).own.View.Blocked.Load() })
	server.Stop()
	defer server.Cont()
	began := time.Now()
	watching.send("GET", "k")
	multi.send("INCR", "n")
	executing.send("EXEC")
	pops.send("BLPOP", "q", "2")
	asks.send("SELECT", "1")
	for _, w := range []*wire{watching, multi, executing} {
		w.want("-" + client.TimeoutLine + "\r\n")
	}
	if got := asks.frame(); got[0] != '-' {
		t.Errorf("SELECT: %q", got)
	}
	pops.want("-" + client.TimeoutLine + "\r\n")
	if took := time.Since(began); took < 2*time.Second+stuckFor {
		t.Errorf("BLPOP with a time of 2 s was ended, besides the time-out, after %v", took)
	}
	if got, err := waits.tryFrame(stuckFor); err == nil {
		t.Errorf("BLPOP without an end was answered %q", got)
	}
	server.Cont()
	multi.expect("-ERR upstream timeout: the transaction is discarded, EXEC or DISCARD ends it\r\n", "GET", "k")
	multi.expect("-EXECABORT Transaction discarded because of: upstream timeout\r\n", "EXEC")
	executing.expect("-ERR EXEC without MULTI\r\n", "EXEC")
	watching.expect("+OK\r\n", "MULTI")
	watching.expect("-EXECABORT Transaction discarded because of: upstream timeout\r\n", "EXEC")
	multi.expect(":1\r\n", "RPUSH", "q", "v")
	waits.want("*2\r\n$1\r\nq\r\n$1\r\nv\r\n")
}

// TestUpstreamTimeoutWhileWriting: so it is when Redis does not even take the command.
func TestUpstreamTimeoutWhileWriting(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.UpstreamTimeout = stuckFor })
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "MULTI")
	server.Stop()
	defer server.Cont()
	w.send("SET", "k", strings.Repeat("x", 64<<20))
	w.want("-" + client.TimeoutLine + "\r\n")
}

// TestUpstreamTimeoutWithinAReply: the time-out is for Redis, not for a client that reads a long reply slowly; it holds in the middle of a
// reply, too.
func TestUpstreamTimeoutWithinAReply(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.UpstreamTimeout = stuckFor })
	long := strings.Repeat("x", 40<<20) // more than all kernels' buffers on the way hold
	server.Do(t, "SET", "long", long)
	w := slowWire(t, p.addr)
	dialWire(t, p.addr).do("GET", "long") // from now on it goes over connections of their own
	w.send("GET", "long")
	begun := w.some(1 << 20)
	time.Sleep(3 * stuckFor)
	w.left = append(begun, w.left...)
	if got := w.frame(); got != "$41943040\r\n"+long+"\r\n" {
		t.Fatalf("of a long reply that was read slowly %d bytes came", len(got))
	}
	w.expect("+PONG\r\n", "PING")
	w.send("GET", "long")
	w.some(1 << 20)
	server.Stop()
	defer server.Cont()
	if got := w.frame(); got != "<end>" {
		t.Errorf("of a Redis that has stopped %d bytes came: %.20q", len(got), got)
	}
}

// TestDepartedGreetersLeaveAHungRedis: so do those whose HELLO waits for a new connection, however long that may take.
func TestDepartedGreetersLeaveAHungRedis(t *testing.T) {
	server := testredis.Start(t)
	where, err := upstream.ParseURL(server.URL())
	target := where.Target()
	if err != nil {
		t.Fatal(err)
	}
	node := upstream.NewNode(target, upstream.NodeOptions{DialTimeout: 10 * patience, Logger: testLog()})
	t.Cleanup(node.Close)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.Node = node })
	server.Stop()
	defer server.Cont()
	for _, args := range [][]string{{"HELLO", "3"}, {"AUTH", "nobody", "pw"}, {"HELLO", "3", "AUTH", "nobody", "pw"}} {
		w := dialWire(t, p.addr)
		w.send(args...)
		w.conn.Close()
	}
	eventually(t, "they give their places back", func() bool { return p.srv.clients.n.Load() == 0 })
}
