package session

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

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

func TestUnauthenticatedLimits(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass sekret")
	p := startProxy(t, server.URL(), nil)
	eventually(t, "the need of a password is known", p.srv.access.mustAuth.Load)
	w := dialWire(t, p.addr)
	w.raw([]byte("*11\r\n"))
	if got := w.frame(); got != "-ERR Protocol error: unauthenticated multibulk length\r\n" {
		t.Fatalf("got %q", got)
	}
	// What comes with AUTH is judged after it.
	w = dialWire(t, p.addr)
	w.raw([]byte("*2\r\n$4\r\nAUTH\r\n$6\r\nsekret\r\n*13\r\n$3\r\nDEL\r\n" + strings.Repeat("$1\r\nk\r\n", 12)))
	if got := w.frame() + w.frame(); got != "+OK\r\n:0\r\n" {
		t.Fatalf("got %q", got)
	}
}

func TestMaxClients(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *Options) { o.MaxClients = 2 })
	first := dialWire(t, p.addr)
	first.expect("+PONG\r\n", "PING")
	dialWire(t, p.addr).expect("+PONG\r\n", "PING")
	third := dialWire(t, p.addr)
	if got := third.frame() + third.frame(); got != tooMany+"<end>" {
		t.Fatalf("got %q", got)
	}
	first.conn.Close()
	eventually(t, "a place is free", func() bool { return p.srv.clients.n.Load() == 1 })
	dialWire(t, p.addr).expect("+PONG\r\n", "PING")
}

func TestSlowClientsAreClosed(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *Options) { o.HandshakeTimeout, o.IdleTimeout = 2*time.Second, 3*time.Second })
	silent, half := dialWire(t, p.addr), dialWire(t, p.addr)
	half.raw([]byte("*1\r\n$4\r\nPI"))
	for _, w := range []*wire{silent, half} {
		if got := w.frame(); got != "<end>" {
			t.Fatalf("got %q", got)
		}
	}
	idle := dialWire(t, p.addr)
	idle.expect("+PONG\r\n", "PING")
	if got := idle.frame(); got != "<end>" {
		t.Fatalf("got %q", got)
	}
	holder := dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l")
	time.Sleep(4 * time.Second)
	holder.expect(":1\r\n", "UNLOCK", "l")
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
	p.srv.facts.table.Store(&answers{Table: commandtable.New(nil, nil, []*commandtable.Command{boom}, nil), by: map[*commandtable.Command]answer{boom: panics}})
	other, w := dialWire(t, p.addr), dialWire(t, p.addr)
	w.send("BOOM")
	if got := w.frame(); got != "<end>" {
		t.Fatalf("got %q", got)
	}
	other.expect("+PONG\r\n", "PING")
}
