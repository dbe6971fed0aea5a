package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Redis hangs while clients are in every state: they can leave, be killed, and the proxy can end.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	killer := dialWire(t, p.addr)
	killer.expect("+PONG\r\n", "PING")
	var all []*wire
	for i, line := range []string{"BLPOP q 0", "SUBSCRIBE c", "WATCH k", "MULTI", "PING", "BLPOP q 0", "SUBSCRIBE c", "MULTI"} {
		w := dialWire(t, p.addr)
		w.send(strings.Fields(line)...)
		if i != 0 && i != 5 {
			w.frame()
		}
		all = append(all, w)
	}
	eventually(t, "each has one", func() bool { return p.dedicatedCount() == 7 })
	server.Stop()
	defer server.Cont()
	for _, w := range all {
		w.pipeline("ECHO x", "CLIENT GETNAME") // waits for the reply before
	}
	time.Sleep(50 * time.Millisecond)
	for _, w := range all[:4] {
		w.conn.Close()
	}
	for _, c := range p.srv.clients.snapshot() {
		if c.client.Peer.Addr != killer.conn.LocalAddr().String() {
			c.client.End.Cut(downstream.Left, "test")
		}
	}
	// Those who wait for a reply on the shared connection wait on; all others are gone, if not at once.
	eventually(t, "they are gone", func() bool { return p.srv.clients.n.Load() <= 2 })
}

// A Redis that hangs and takes no more of what a client sends does not keep that client from being killed.
func TestRedisTakesNothing(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "MULTI")
	server.Stop()
	defer server.Cont()
	piece := resp.AppendCommand(nil, "SET", "k", strings.Repeat("x", 1<<20))
	for sent := 0; ; sent++ {
		w.conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := w.conn.Write(piece); err != nil {
			break
		}
		if sent > 200 {
			t.Fatal("no bound")
		}
	}
	p.srv.clients.snapshot()[0].client.End.Cut(downstream.Left, "test")
	eventually(t, "it is gone", func() bool { return p.srv.clients.n.Load() == 0 })
}

// One who subscribes and does not read holds up nobody else, and can be killed; one who half closes as well leaves.
func TestSubscriberDoesNotRead(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil, "--client-output-buffer-limit", "pubsub 0 0 0")
	other := dialWire(t, p.addr)
	for _, how := range []string{"kill", "half", "close"} {
		w := dialWire(t, p.addr)
		w.do("HELLO", "3")
		w.expect("+OK\r\n", "LOCK", "l"+how)
		w.do("SUBSCRIBE", "c")
		piece := strings.Repeat("x", 1<<20)
		for range 20 {
			other.expect(":1\r\n", "PUBLISH", "c", piece)
		}
		switch how {
		case "kill":
			other.expect(":1\r\n", "CLIENT", "KILL", "ID", p.idOf(w))
		case "half":
			w.conn.(*net.TCPConn).CloseWrite()
			other.expect("+OK\r\n", "LOCK", "lhalf", "BLOCK", "60000")
		case "close":
			w.conn.Close()
			other.expect("+OK\r\n", "LOCK", "lclose", "BLOCK", "60000")
		}
		eventually(t, how+": it is gone", func() bool { return p.srv.clients.n.Load() == 1 })
		eventually(t, how+": so is its connection", func() bool { used, _ := p.srv.o.Node.DedicatedCount(); return used == 0 })
	}
}

// What a client sends behind a command that waits is bounded here, and its end seen.
func TestPipelineBehindAWait(t *testing.T) {
	_, p := startBoth(t, nil)
	w, other := dialWire(t, p.addr), dialWire(t, p.addr)
	w.send("BLPOP", "q", "0")
	text := strings.Repeat("x", 100)
	echos := bytes.Repeat(resp.AppendCommand(nil, "ECHO", text), 1000)
	sent := 0
	for ; ; sent += 1000 {
		w.conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
		if n, err := w.conn.Write(echos); err != nil {
			echos = echos[n:]
			break
		}
		if sent > 1_000_000 {
			t.Fatal("no bound")
		}
	}
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	t.Logf("%d commands taken, heap %d MiB", sent, mem.HeapAlloc>>20)
	if mem.HeapAlloc > 200<<20 {
		t.Errorf("%d MiB", mem.HeapAlloc>>20)
	}
	other.expect(":1\r\n", "RPUSH", "q", "x")
	w.conn.SetWriteDeadline(time.Time{})
	w.want("*2\r\n$1\r\nq\r\n$1\r\nx\r\n")
	go w.conn.Write(echos) // the rest of the last thousand
	all, one := (sent+1000)*len(bulk(text)), bulk(text)
	got := append(make([]byte, 0, all), w.left...)
	w.conn.SetReadDeadline(time.Now().Add(patience))
	for piece := make([]byte, 1<<16); len(got) < all; {
		n, err := w.conn.Read(piece)
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", len(got), all, err)
		}
		got = append(got, piece[:n]...)
	}
	if !bytes.Equal(got, bytes.Repeat([]byte(one), sent+1000)) {
		t.Error("other replies")
	}
}

// A long reply of EXEC, with a change of database in it, comes whole and is understood.
func TestLongExec(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	for _, n := range []int{10, 100_000} {
		w := dialWire(t, p.addr)
		lines := []string{"MULTI"}
		for i := range n {
			lines = append(lines, "ECHO "+strconv.Itoa(i))
		}
		lines = append(lines, "SELECT 3", "EXEC", "CLIENT INFO")
		go w.pipeline(lines...)
		w.want("+OK\r\n")
		for range n + 1 {
			if got := w.frame(); got != "+QUEUED\r\n" {
				t.Fatalf("got %q", got)
			}
		}
		var want []string
		for i := range n {
			want = append(want, bulk(strconv.Itoa(i)))
		}
		w.want(list(append(want, "+OK\r\n")...))
		if got := w.frame(); !strings.Contains(got, " db=3 ") {
			t.Errorf("got %q", got)
		}
		eventually(t, "it was given back", func() bool { return p.dedicatedCount() == 0 })
	}
}

// Drained: a subscriber is closed at once, an open transaction may end, one that waits is let wait until time is up.
func TestDrainDedicated(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	open, sub, blocked := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	open.expect("+OK\r\n", "MULTI")
	sub.do("SUBSCRIBE", "c")
	blocked.send("BLPOP", "q", "0")
	eventually(t, "each has one", func() bool { return p.dedicatedCount() == 3 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go p.shutdown(ctx, done)
	sub.want("<end>")
	open.expect("+QUEUED\r\n", "SET", "k", "v")
	open.expect("*1\r\n+OK\r\n", "EXEC")
	open.want("<end>")
	if _, err := blocked.tryFrame(300 * time.Millisecond); err == nil || err == io.EOF {
		t.Errorf("the one that waits: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	blocked.want("<end>")
}

var monitorLine = regexp.MustCompile(`^\+\d+\.\d{6} \[`)

// MONITOR's lines are told from replies, however they are mixed.
func TestMonitorMixed(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, func(o *ServerOptions) { o.Allow = []string{"monitor"} })
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "MONITOR")
	for i := range 200 {
		v := fmt.Sprint("v", i)
		w.pipeline("PING", "ECHO "+v, "CLIENT GETNAME", "GET k") // Redis takes one that monitors for a replica
		for _, want := range []string{"+PONG\r\n", bulk(v), "$-1\r\n", "-ERR Replica can't interact with the keyspace\r\n"} {
			for {
				f := w.frame()
				if monitorLine.MatchString(f) {
					continue
				}
				if f != want {
					t.Fatalf("got %q, want %q", f, want)
				}
				break
			}
		}
	}
	w.send("RESET")
	for f := w.frame(); f != "+RESET\r\n"; f = w.frame() {
		if !monitorLine.MatchString(f) {
			t.Fatalf("got %q", f)
		}
	}
	w.expect("$-1\r\n", "GET", "k")
}

// A client that never authenticated keeps its own connection, made before Redis wanted a password. Nobody gets it who came later.
func TestDedicatedFromBeforeThePassword(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	admin := server.Dial(t)
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "MULTI")
	if _, err := admin.Do("CONFIG", "SET", "requirepass", "secret"); err != nil {
		t.Fatal(err)
	}
	w.expect("+QUEUED\r\n", "SET", "k", "v")
	w.expect("*1\r\n+OK\r\n", "EXEC")
	eventually(t, "it was let go", func() bool { return p.dedicatedCount() == 0 })
	late := dialWire(t, p.addr)
	late.expect("-NOAUTH Authentication required.\r\n", "BLPOP", "q", "0.01")
	late.expect("-NOAUTH Authentication required.\r\n", "MULTI")
}
