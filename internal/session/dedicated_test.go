package session

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// dedicatedCount says how many sessions have a connection of their own.
func (p *proxy) dedicatedCount() (n int) {
	for _, c := range p.srv.clients.snapshot() {
		if c.own.View.RedisID.Load() != 0 {
			n++
		}
	}
	return n
}

// idOf is the CLIENT ID of w, which may be waiting.
func (p *proxy) idOf(w *wire) string { return fmt.Sprint(p.sessionOf(w).client.Number) }

func TestDedicatedKinds(t *testing.T) {
	t.Parallel()
	tab := newAnswers([]string{"monitor"}, nil, nil)
	for line, want := range map[string]commandtable.ConnKind{
		"multi": commandtable.ConnMulti, "EXEC": commandtable.ConnExec, "get k": commandtable.ConnNone, "Blpop a 0": commandtable.ConnBlock, "client tracking on": commandtable.ConnTracking,
		"client id": commandtable.ConnNone, "xread count 1 streams a 0": commandtable.ConnNone, "xread block 0 streams a 0": commandtable.ConnBlock,
		"XREADGROUP group block c count 1 noack Block 5 streams a >": commandtable.ConnBlock, "XREADGROUP group block c streams a >": commandtable.ConnNone,
		"xreadgroup group g c claim 5 block 0 streams a >": commandtable.ConnBlock, "monitor": commandtable.ConnMonitor, "debug sleep 0": commandtable.ConnNone,
	} {
		got := commandtable.ConnNone
		if c, _ := tab.findRow(words(line)); c != nil {
			got = c.Conn
		}
		if got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}

func TestTransactionIsGivenBack(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	for _, proto := range []string{"2", "3"} {
		w := dialWire(t, p.addr)
		w.do("HELLO", proto)
		w.expect("+OK\r\n", "WATCH", "k")
		w.expect("+OK\r\n", "MULTI")
		w.expect("+QUEUED\r\n", "SET", "k", "v")
		w.expect("+QUEUED\r\n", "GET", "k")
		w.expect("-ERR MULTI calls can not be nested\r\n", "MULTI")
		w.expect("*2\r\n+OK\r\n$1\r\nv\r\n", "EXEC")
		eventually(t, "the connection was given back", func() bool { return p.dedicatedCount() == 0 })
		w.expect("-ERR EXEC without MULTI\r\n", "EXEC")
		w.expect("-ERR DISCARD without MULTI\r\n", "DISCARD")
		w.expect("+OK\r\n", "UNWATCH")
	}
}

func TestLockInTransactionIsRefused(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	w := dialWire(t, p.addr)
	for _, verb := range [][]string{{"LOCK", "l"}, {"LOCK"}, {"AUTH", "x"}, {"HELLO", "3"}, {"SYNC"}, {"CLIENT", "REPLY", "OFF"}} {
		w.expect("+OK\r\n", "MULTI")
		w.expect("-"+notInMulti+"\r\n", verb...)
		w.expect("+QUEUED\r\n", "SET", "k", "v")
		w.expect("-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
	}
	w.expect(":0\r\n", "EXISTS", "k")
	w.expect("+OK\r\n", "WATCH", "k")
	w.expect("+OK\r\n", "LOCK", "l") // a watched key does not hinder
	w.expect(":1\r\n", "UNLOCK", "l")
}

func TestSelectInTransaction(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "MULTI")
	w.expect("+QUEUED\r\n", "SELECT", "5")
	w.expect("+QUEUED\r\n", "SET", "k", "five")
	w.expect("*2\r\n+OK\r\n+OK\r\n", "EXEC")
	w.expect("$4\r\nfive\r\n", "GET", "k")
	w.expect("+OK\r\n", "WATCH", "k")
	w.expect("+OK\r\n", "SELECT", "6")
	w.expect("+OK\r\n", "UNWATCH")
	w.expect("$-1\r\n", "GET", "k")
	dialWire(t, p.addr).expect("$-1\r\n", "GET", "k")
}

func TestSubscriber(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	pub := dialWire(t, p.addr)
	for proto, mark := range map[string]string{"2": "*", "3": ">"} {
		w := dialWire(t, p.addr)
		w.do("HELLO", proto)
		w.expect(mark+"3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", "SUBSCRIBE", "a", "b")
		w.want(mark + "3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n")
		pub.expect(":1\r\n", "PUBLISH", "a", "hi")
		w.want(mark + "3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n")
		if proto == "2" {
			w.expect("*2\r\n$4\r\npong\r\n$0\r\n\r\n", "PING")
			for _, verb := range []string{"lock", "get", "client"} {
				args := []string{verb, "id"}
				if verb == "client" {
					verb = "client|id"
				}
				w.expect("-ERR Can't execute '"+verb+"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n", args...)
			}
		} else {
			w.expect("+PONG\r\n", "PING")
			w.expect("+OK\r\n", "LOCK", "l")
			w.expect(":1\r\n", "UNLOCK", "l")
		}
		w.expect(mark+"3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n", "UNSUBSCRIBE", "a")
		w.expect(mark+"3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n", "UNSUBSCRIBE")
		eventually(t, "the connection was given back", func() bool { return p.dedicatedCount() == 0 })
		w.expect("+PONG\r\n", "PING")
	}
}

func TestBlockingPop(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	w, other := dialWire(t, p.addr), dialWire(t, p.addr)
	w.send("BLPOP", "q", "0")
	w.send("PING")
	w.send("CLIENT", "GETNAME")
	eventually(t, "it waits", func() bool { return p.dedicatedCount() == 1 })
	other.expect(":1\r\n", "RPUSH", "q", "x")
	w.want("*2\r\n$1\r\nq\r\n$1\r\nx\r\n")
	w.want("+PONG\r\n")
	w.want("$-1\r\n")
	w.send("BLPOP", "q", "0")
	eventually(t, "it waits", func() bool { return other.do("CLIENT", "UNBLOCK", p.idOf(w), "ERROR") == ":1\r\n" })
	w.want("-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")
	w.send("LOCK", "l2", "BLOCK", "0")
	w.want("+OK\r\n")
	other.send("LOCK", "l2", "BLOCK", "0")
	eventually(t, "it waits", func() bool { return w.do("CLIENT", "UNBLOCK", p.idOf(other)) == ":1\r\n" })
	other.want("$-1\r\n")
}

// An element pushed after a blocked client has gone must not be popped for it.
func TestBlockedClientGoes(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	other := dialWire(t, p.addr)
	for i := range 20 {
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "LOCK", "held")
		w.send("BLPOP", "q", "0")
		eventually(t, "it waits", func() bool { return p.dedicatedCount() == 1 })
		w.conn.Close()
		eventually(t, "it is gone", func() bool { return p.srv.clients.n.Load() == 1 })
		eventually(t, "its lock is free", func() bool { return other.do("LOCK", "held", "BLOCK", "1000") == "+OK\r\n" })
		other.expect(":1\r\n", "UNLOCK", "held")
		other.expect(":1\r\n", "RPUSH", "q", fmt.Sprint(i))
		other.expect(fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i), "LPOP", "q")
	}
}

func TestClientReply(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	w, other := dialWire(t, p.addr), dialWire(t, p.addr)
	for range 2 {
		w.send("SET", "k", "1")
		w.send("CLIENT", "REPLY", "OFF")
		w.send("SET", "k", "2")
		w.send("LOCK", "l")
		w.send("MULTI")
		w.send("GET", "k")
		w.send("EXEC")
		w.send("CLIENT", "REPLY", "ON")
		w.send("GET", "k")
		w.send("CLIENT", "REPLY", "SKIP")
		w.send("GET", "k")
		w.send("PING")
		w.send("UNLOCK", "l")
		for _, want := range []string{"+OK\r\n", "+OK\r\n", "$1\r\n2\r\n", "+PONG\r\n", ":1\r\n"} {
			w.want(want)
		}
		other.expect("$1\r\n2\r\n", "GET", "k")
	}
}

// Redis dies under clients with connections of their own. They are closed, but for those that hold a lock and hear no
// messages: they get an error in place of each reply, and go on.
func TestDedicatedLost(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil, "--appendonly yes", "--appendfsync always")
	blocked, deep, open, plain := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	holder, owner := dialWire(t, p.addr), dialWire(t, p.addr)
	// The leases last until Redis is back, however long a busy machine takes for that.
	holder.expect("+OK\r\n", "LOCK", "l", "PX", "600000")
	owner.expect("+OK\r\n", "LOCK", "m", "OWNER", "o", "PX", "600000")
	plain.expect("+PONG\r\n", "PING")
	open.expect("+OK\r\n", "WATCH", "k")
	hearer := dialWire(t, p.addr)
	hearer.expect("+OK\r\n", "LOCK", "n", "PX", "600000")
	hearer.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
	for _, w := range []*wire{blocked, holder, owner} {
		w.send("BLPOP", "q", "0")
	}
	deep.send("RPUSH", "other", "v")
	deep.send("BLPOP", "other", "q", "0")
	deep.send("BLPOP", "q", "0")
	deep.send("CLIENT", "GETNAME")
	for _, want := range []string{":1\r\n", "*2\r\n$5\r\nother\r\n$1\r\nv\r\n"} {
		deep.want(want)
	}
	eventually(t, "all have one", func() bool { return p.dedicatedCount() == 6 })
	server.Kill()
	for _, w := range []*wire{blocked, deep, open, owner, hearer} { // the owner's lock is a lease: nothing of it ends with the connection
		w.want("<end>")
	}
	holder.want("-" + client.LostLine + "\r\n")
	server.Restart()
	p.back()
	plain.expect("+PONG\r\n", "PING")
	holder.expect("+OK\r\n", "MULTI")
	holder.expect("*0\r\n", "EXEC")
	if got := holder.do("UNLOCK", "l"); !strings.HasPrefix(got, "-ERR not released: an earlier command of this connection may still take effect") {
		t.Errorf("UNLOCK: %q", got)
	}
}

// Before a cluster nothing is left of a command that no node knows: what follows goes to the node of its keys.
func TestUnlistedBeforeABlockingCommand(t *testing.T) {
	t.Parallel()
	p := startProxyOf(t, testredis.StartCluster(t, 3, 0), nil)
	w := dialWire(t, p.addr)
	for i := range 12 { // at every node
		got := w.batchOf([]string{"NOSUCH", "x"}, []string{"BLPOP", "list" + strconv.Itoa(i), "0.01"})
		if !strings.HasPrefix(got[0], "-ERR unknown command") || got[1] != "*-1\r\n" {
			t.Fatalf("%q", got)
		}
	}
}
