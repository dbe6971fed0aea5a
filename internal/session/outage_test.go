package session

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// While Redis is away a client without locks is closed by its first command that is for Redis, and so is one that has only named
// an owner, whose lease does not hang on the connection. One that holds a lock is told by an error, and stays.
func TestClientsOutliveRedis(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--appendonly yes", "--appendfsync always")
	p := startProxy(t, server.URL(), nil)
	forRedis := [][]string{{"GET", "k"}, {"SET", "k", "w"}, {"HELLO"}, {"INFO"}, {"SELECT", "1"}, {"BLPOP", "q", "0"}, {"SUBSCRIBE", "c"}, {"EVAL", "return 1", "0"}}
	first, holders, bare := dialWire(t, p.addr), make([]*wire, 10), make([]*wire, len(forRedis))
	first.expect("+OK\r\n", "LOCK", "first", "PX", "600000")
	for i := range holders {
		holders[i] = dialWire(t, p.addr)
		holders[i].expect("+OK\r\n", "LOCK", fmt.Sprint("held", i), "PX", "600000")
	}
	for i := range bare {
		bare[i] = dialWire(t, p.addr)
		bare[i].expect("+OK\r\n", "SET", "k", "v")
		bare[i].expect("$-1\r\n", "CLIENT", "GETNAME") // from now on Redis need not be asked who it is
		if i%2 == 0 {
			bare[i].expect("+OK\r\n", "LOCK", fmt.Sprint("owned", i), "OWNER", "o", "PX", "600000")
		}
	}
	server.Kill()
	// What is sent before the proxy has noticed that has an unknown outcome. The lock of its client would run out, and
	// could not be given back below.
	for _, args := range forRedis[:2] {
		eventually(t, "noticed", func() bool { return strings.HasPrefix(first.do(args...), "-ERR upstream unavailable: ") })
	}
	for _, w := range holders {
		for _, args := range append(forRedis, []string{"LOCK", "l"}) {
			if got := w.do(args...); !strings.HasPrefix(got, "-ERR upstream ") && (args[0] != "LOCK" || got[0] != '-') {
				t.Errorf("%q of a holder without Redis: %q", args, got)
			}
		}
		w.expect("+OK\r\n", "CLIENT", "SETNAME", "x")
	}
	for i, w := range bare {
		w.expect("+OK\r\n", "CLIENT", "SETNAME", "x")
		if got := w.do("LOCK", "l"); got == "<end>" || got[0] != '-' { // a verb says what is known
			t.Errorf("LOCK without Redis: %q", got)
		}
		if got := w.do(forRedis[i]...); got != "<end>" {
			t.Errorf("%q without Redis: %q", forRedis[i], got)
		}
	}
	for _, args := range [][]string{{"PING"}, {"HELLO", "3"}, {"AUTH", "p"}, {"CLIENT", "SETINFO", "lib-name", "x"}} { // as libraries begin
		if got := dialWire(t, p.addr).do(args...); got != "<end>" {
			t.Errorf("a newcomer's %q without Redis: %q", args, got)
		}
	}
	server.Restart()
	p.back()
	for i, w := range holders {
		// Writes have a connection of their own, which may be made again a moment after that of the reads.
		eventually(t, "written", func() bool { return w.do("SET", "k", "v") == "+OK\r\n" })
		eventually(t, "unlocked", func() bool { return w.do("UNLOCK", fmt.Sprint("held", i)) == ":1\r\n" })
	}
	again := dialWire(t, p.addr)
	for i := 0; i < len(bare); i += 2 {
		again.expect(":1\r\n", "UNLOCK", fmt.Sprint("owned", i), "OWNER", "o")
	}
}

// A reply that never comes is an error for each command of a holder that waits for one, and for no other. A client without
// locks gets the replies there are, and then the end of its connection.
func TestLostRepliesAreCounted(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	between := testredis.NewProxy(t, server.Addr())
	p := startProxy(t, "redis://"+between.Addr(), nil)
	holder := dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l", "PX", "600000")
	const rounds, depth = 10, 50
	pipeline := []byte(nil)
	for range depth {
		pipeline = resp.AppendCommand(pipeline, "INCR", "n")
	}
	pipeline = resp.AppendCommand(pipeline, "CLIENT", "GETNAME")
	lost, closed := 0, 0
	for range rounds {
		p.back()
		bare := dialWire(t, p.addr)
		bare.expect("+PONG\r\n", "PING")
		between.Latency(100 * time.Millisecond)
		holder.raw(pipeline)
		bare.raw(pipeline)
		time.Sleep(30 * time.Millisecond)
		between.CutAll()
		between.Clear()
		for range depth {
			switch got := holder.frame(); {
			case got == "-"+client.LostLine+"\r\n" || strings.HasPrefix(got, "-ERR upstream unavailable: "):
				lost++
			case got[0] != ':':
				t.Fatalf("got %q", got)
			}
		}
		if got := holder.frame(); got != "$-1\r\n" {
			t.Fatalf("the local command behind them: %q", got)
		}
		for n := 0; ; n++ {
			got := bare.frame()
			if got == "<end>" {
				closed++
				break
			}
			if got[0] != ':' && (n != depth || got != "$-1\r\n") {
				t.Fatalf("reply %d without a lock: %q", n, got)
			}
			if n == depth {
				break
			}
		}
	}
	if lost == 0 || closed == 0 {
		t.Errorf("%d replies were lost, %d clients closed: the test is void", lost, closed)
	}
	p.back()
	if got := holder.do("UNLOCK", "l"); !strings.HasPrefix(got, "-ERR not released: an earlier command of this connection may still take effect") {
		t.Errorf("UNLOCK: %q", got)
	}
}

// A reply half delivered cannot be ended properly: that client is closed.
func TestBigReplyCutOffInTheMiddle(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	between := testredis.NewProxy(t, server.Addr())
	p := startProxy(t, "redis://"+between.Addr(), nil)
	w := dialWire(t, p.addr)
	big := strings.Repeat("x", 64<<20)
	w.expect("+OK\r\n", "SET", "k", big)
	w.send("GET", "k")
	buf := make([]byte, 1<<20)
	if _, err := w.conn.Read(buf); err != nil {
		t.Fatal(err)
	}
	between.CutAll()
	total := 0
	for {
		w.conn.SetReadDeadline(time.Now().Add(patience))
		n, err := w.conn.Read(buf)
		total += n
		if err != nil {
			break
		}
	}
	if total >= len(big) {
		t.Skip("the whole reply had arrived before the cut")
	}
	p.back()
}

// What the client has sent and nobody has read when it is closed does not reset the connection: it could lose replies.
func TestClosedWithCommandsUnread(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	between := testredis.NewProxy(t, server.Addr())
	p := startProxy(t, "redis://"+between.Addr(), nil)
	for range 5 {
		p.back()
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "SET", "n", "0")
		w.expect("$1\r\n0\r\n", "GET", "n")
		between.Latency(200 * time.Millisecond)
		w.send("INCR", "n")
		time.Sleep(50 * time.Millisecond) // it is on its way, and nobody reads
		w.raw(bytes.Repeat(resp.AppendCommand(nil, "GET", "n"), 100))
		between.CutAll()
		between.Clear()
		w.conn.SetReadDeadline(time.Now().Add(patience))
		if all, err := io.ReadAll(w.conn); err != nil {
			t.Errorf("%q, and then %v", all, err)
		}
	}
}
