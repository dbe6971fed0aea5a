package session

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Bytes that kill, hang or fill redcon alone: the client that sends them is told so and closed, nobody else notices.
func TestAttacksHitTheirSenderOnly(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	other := dialWire(t, p.addr)
	other.expect("+OK\r\n", "SET", "k", "v")
	for _, attack := range []string{
		"*1\r\n$9223372036854775807\r\n", "*9223372036854775807\r\n", "*2147483648\r\n", "*1\r\n$-7\r\n", "*1\r\n:1\r\n",
		"*1\r\n$536870913\r\n", "*1000001\r\n$999999999\r\n", "\"unbalanced\r\n", strings.Repeat("x", 70<<10),
		"$5\r\nworld\r\n*1\r\n$zz\r\n",
	} {
		w := dialWire(t, p.addr)
		w.raw(append([]byte("*1\r\n$4\r\nPING\r\n"), attack...))
		if got := w.frame(); got != "+PONG\r\n" {
			t.Errorf("%.30q: the command before is answered %q", attack, got)
		}
		last := w.frame()
		for ; strings.HasPrefix(last, "-ERR unknown command"); last = w.frame() {
		}
		if !strings.HasPrefix(last, "-ERR Protocol error: ") {
			t.Errorf("%.30q: %q", attack, last)
		}
		if got := w.frame(); got != "<end>" {
			t.Errorf("%.30q: then %q", attack, got)
		}
		other.expect("$1\r\nv\r\n", "GET", "k")
	}
}

// A client that does not read its replies costs a bounded part of memory, and others nothing.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	other := dialWire(t, p.addr)
	other.expect("+OK\r\n", "SET", "k", strings.Repeat("x", 2<<20))
	deaf := dialWire(t, p.addr)
	get := bytes.Repeat([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), 200)
	deaf.raw(get)
	for range 50 {
		other.expect("+PONG\r\n", "PING")
	}
	deaf.conn.(*net.TCPConn).SetLinger(0)
	deaf.conn.Close()
	eventually(t, "the deaf client is gone", func() bool { return p.srv.clients.n.Load() == 1 })
}

func TestPanicClosesItsClientOnly(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	boom := &commandtable.Command{Name: "boom", Open: true, Here: true}
	panics := func(*Session, [][]byte) { panic("boom") }
	ping := &commandtable.Command{Name: "ping"}
	p.srv.facts.table.Store(&answers{Table: commandtable.New(nil, nil, []*commandtable.Command{boom}, []*commandtable.Command{ping}), by: map[*commandtable.Command]answer{boom: panics}})
	other, w := dialWire(t, p.addr), dialWire(t, p.addr)
	w.send("BOOM")
	if got := w.frame(); got != "<end>" {
		t.Fatalf("got %q", got)
	}
	other.expect("+PONG\r\n", "PING")
}
