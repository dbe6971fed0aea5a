package session

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// waiters says how many sessions have a verb that waits.
func (p *proxy) waiters() (n int) {
	for _, c := range p.srv.clients.snapshot() {
		if c.activity.waiting.Load() != nil {
			n++
		}
	}
	return n
}

func TestWaitingVerbFlushesAndKeepsOrder(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	holder, waiter := dialWire(t, p.addr), dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l")
	waiter.raw([]byte("SET a 1\r\nLOCK l BLOCK 0\r\nSET a 2\r\nGET a\r\n"))
	if got := waiter.frame(); got != "+OK\r\n" {
		t.Fatalf("the reply before the wait: %q", got)
	}
	eventually(t, "it waits", func() bool { return p.waiters() == 1 })
	for i := range 200 { // pipelined while it waits
		waiter.send("SET", "b", strings.Repeat("b", i))
	}
	holder.expect("$1\r\n1\r\n", "GET", "a")
	holder.expect(":1\r\n", "UNLOCK", "l")
	if got := waiter.frame() + waiter.frame() + waiter.frame(); got != "+OK\r\n+OK\r\n$1\r\n2\r\n" {
		t.Fatalf("after the wait: %q", got)
	}
	for range 200 {
		if got := waiter.frame(); got != "+OK\r\n" {
			t.Fatalf("got %q", got)
		}
	}
	waiter.expect(":1\r\n", "UNLOCK", "l")
}

func TestEndOfAConnectionDecidesAboutItsLocks(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	admin := dialWire(t, p.addr)
	free := func() bool { return server.Do(t, "EXISTS", "l").(int64) == 0 }
	for name, c := range map[string]struct {
		end      func(w *wire)
		released bool
	}{
		"close": {func(w *wire) { w.conn.Close() }, true},
		"reset connection": {func(w *wire) {
			w.conn.(*net.TCPConn).SetLinger(0)
			w.conn.Close()
		}, true},
		"half close":     {func(w *wire) { w.conn.(*net.TCPConn).CloseWrite() }, true},
		"QUIT":           {func(w *wire) { w.expect("+OK\r\n", "QUIT") }, true},
		"RESET":          {func(w *wire) { w.expect("+RESET\r\n", "RESET") }, true},
		"killed":         {func(w *wire) { admin.expect(":1\r\n", "CLIENT", "KILL", "ADDR", w.conn.LocalAddr().String()) }, false},
		"killed itself":  {func(w *wire) { w.expect("+OK\r\n", "CLIENT", "KILL", w.conn.LocalAddr().String()) }, false},
		"protocol error": {func(w *wire) { w.raw([]byte("*x\r\n")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := dialWire(t, p.addr)
			w.expect("+OK\r\n", "LOCK", "l", "PX", "60000")
			c.end(w)
			if c.released {
				eventually(t, "the lock is released", free)
				return
			}
			eventually(t, "the connection has ended", func() bool { return p.srv.clients.n.Load() == 1 })
			time.Sleep(50 * time.Millisecond)
			if free() {
				t.Error("the lock was released, it should run out")
			}
			server.Do(t, "DEL", "l")
		})
	}
}

func TestWaitEndsWithItsClient(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	holder := dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l")
	for name, end := range map[string]func(w *wire){
		"gone":   func(w *wire) { w.conn.Close() },
		"killed": func(w *wire) { holder.expect(":1\r\n", "CLIENT", "KILL", "ADDR", w.conn.LocalAddr().String()) },
	} {
		w := dialWire(t, p.addr)
		w.raw(resp.AppendCommand(resp.AppendCommand(nil, "LOCK", "l", "BLOCK", "0"), "SET", "after", name))
		eventually(t, name+": it waits", func() bool { return p.waiters() == 1 })
		end(w)
		eventually(t, name+": its session has ended", func() bool { return p.srv.clients.n.Load() == 1 })
	}
	holder.expect(":1\r\n", "UNLOCK", "l")
	holder.expect("$-1\r\n", "GET", "after")
}

func TestLossIsPushedToRESP3Only(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	three, two := dialWire(t, p.addr), dialWire(t, p.addr)
	three.do("HELLO", "3")
	three.expect("+OK\r\n", "CLIENT", "CAPA", "redirect", "Lock-Lost")
	for _, w := range []*wire{three, two} {
		key := w.conn.LocalAddr().String()
		w.expect("+OK\r\n", "LOCK", key)
		server.Do(t, "DEL", key)
	}
	key := three.conn.LocalAddr().String()
	got, err := three.tryFrame(patience)
	if err != nil || !strings.HasPrefix(got, string(resp.AppendBulkString(resp.AppendBulkString(resp.AppendPush(nil, 3, 4), "lock-lost"), key))) {
		t.Fatalf("got %q, %v", got, err)
	}
	eventually(t, "both are lost", func() bool { return p.srv.o.Locks.Stats().Lost == 2 })
	two.expect("+PONG\r\n", "PING")
	three.expect("+PONG\r\n", "PING")
	if got := two.do("UNLOCK", two.conn.LocalAddr().String()); !strings.HasPrefix(got, "-LOCKLOST") {
		t.Fatalf("got %q", got)
	}
}

func TestWhoMayLockIsRedisWord(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass sekret", "--user app on >pw ~app:* +@read +@write")
	p := startProxy(t, server.URL(), nil)
	eventually(t, "the need of a password is known", p.srv.asksPassword)
	w := dialWire(t, p.addr)
	w.expect("-NOAUTH Authentication required.\r\n", "LOCK", "app:1")
	w.expect("+OK\r\n", "AUTH", "app", "pw")
	for range 3 { // the last ones out of the cache
		w.expect("+OK\r\n", "LOCK", "app:1")
		w.expect(":1\r\n", "UNLOCK", "app:1")
		if got := w.do("LOCK", "other"); !strings.HasPrefix(got, "-NOPERM") {
			t.Fatalf("got %q", got)
		}
	}
	if got := w.do("CLIENT", "LIST"); !strings.HasPrefix(got, "-NOPERM") {
		t.Fatalf("got %q", got)
	}
	w.expect("+RESET\r\n", "RESET")
	w.expect("-NOAUTH Authentication required.\r\n", "LOCK", "app:1")
}

func TestDrainWaitsForHolders(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	idle, holder, keeper := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	idle.expect("+PONG\r\n", "PING")
	holder.expect("+OK\r\n", "LOCK", "l", "PX", "60000")
	keeper.expect("+OK\r\n", "LOCK", "kept", "PX", "60000")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go p.shutdown(ctx, done)
	if got := idle.frame(); got != "<end>" {
		t.Fatalf("idle client: %q", got)
	}
	if got := holder.do("LOCK", "another"); !strings.HasPrefix(got, "-DRAINING") {
		t.Fatalf("got %q", got)
	}
	holder.expect("+OK\r\n", "SET", "k", "v")
	holder.expect(":1\r\n", "UNLOCK", "l")
	if got := holder.frame(); got != "<end>" {
		t.Fatalf("holder that released: %q", got)
	}
	keeper.expect("+PONG\r\n", "PING")
	cancel()
	if got := keeper.frame(); got != "<end>" {
		t.Fatalf("holder at the end of the drain: %q", got)
	}
	if err := <-done; err == nil {
		t.Error("Shutdown does not say that it had to close a holder")
	}
	p.stop()
	if server.Do(t, "EXISTS", "kept").(int64) != 1 {
		t.Error("a lock was released for its holder")
	}
}

// A drain whose time is over says who kept it waiting: not only those who hold locks do.
func TestDrainSaysWhomItWaitedFor(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	for name, holders := range map[string]int{"nobody holds a lock": 0, "one holds a lock": 1} {
		p := startProxy(t, server.URL(), nil)
		waits, multi, watch := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
		multi.expect("+OK\r\n", "MULTI")
		watch.expect("+OK\r\n", "WATCH", "k")
		waits.send("BLPOP", "q", "0")
		eventually(t, "it waits", p.sessionOf(waits).own.Blocked)
		for range holders {
			dialWire(t, p.addr).expect("+OK\r\n", "LOCK", "l", "PX", "60000")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := p.srv.Shutdown(ctx)
		cancel()
		want := fmt.Sprintf("clients that held locks: %d; others in the middle of a command, a wait or a transaction: 3", holders)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// It says so, too, when besides a command is never answered.
func TestDrainSaysWhoHeldLocksWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	holder := dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l", "PX", "60000")
	server.Stop()
	defer server.Cont()
	holder.send("GET", "k")
	c := p.sessionOf(holder)
	eventually(t, "it asks Redis", func() bool { said := c.activity.last.Load(); return said != nil && strings.EqualFold(*said, "GET") })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := p.srv.Shutdown(ctx)
	if err == nil {
		t.Fatal("Shutdown does not say that it was forced")
	}
	for _, want := range []string{"clients that held locks: 1; others", "some clients' last commands were never answered"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func (p *proxy) shutdown(ctx context.Context, done chan<- error) { done <- p.srv.Shutdown(ctx) }
