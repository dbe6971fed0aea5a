package session

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

func TestClientsOutliveRedis(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	clients := make([]*wire, 20)
	for i := range clients {
		clients[i] = dialWire(t, p.addr)
		clients[i].expect("+OK\r\n", "SET", "k", "v")
		clients[i].expect("$-1\r\n", "CLIENT", "GETNAME") // from now on Redis need not be asked who it is
	}
	server.Kill()
	for _, w := range clients {
		for _, args := range [][]string{{"GET", "k"}, {"SET", "k", "w"}, {"LOCK", "l"}, {"HELLO"}, {"INFO"}} {
			got := w.do(args...)
			if !strings.HasPrefix(got, "-ERR upstream") && !(args[0] == "LOCK" && got[0] == '-') {
				t.Fatalf("%q without Redis: %q", args, got)
			}
		}
		w.expect("+OK\r\n", "CLIENT", "SETNAME", "x")
	}
	server.Restart()
	start := time.Now()
	for _, w := range clients {
		eventually(t, "works again", func() bool { return w.do("SET", "k", "v") == "+OK\r\n" })
	}
	t.Logf("20 clients worked again after %v", time.Since(start))
}

// A reply that never comes is an error for each command that waits for one, and for no other.
func TestLostRepliesAreCounted(t *testing.T) {
	server := testredis.Start(t)
	between := testredis.NewProxy(t, server.Addr())
	p := startProxy(t, "redis://"+between.Addr(), nil)
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "SET", "n", "0")
	const rounds, depth = 10, 50
	lost := 0
	for range rounds {
		between.Latency(100 * time.Millisecond)
		var out []byte
		for range depth {
			out = resp.AppendCommand(out, "INCR", "n")
		}
		w.raw(resp.AppendCommand(out, "CLIENT", "GETNAME"))
		time.Sleep(30 * time.Millisecond)
		between.CutAll()
		between.Clear()
		for range depth {
			switch got := w.frame(); {
			case got == "-"+lostLine+"\r\n" || strings.HasPrefix(got, "-ERR upstream unavailable: "):
				lost++
			case got[0] != ':':
				t.Fatalf("got %q", got)
			}
		}
		if got := w.frame(); got != "$-1\r\n" {
			t.Fatalf("the local command behind them: %q", got)
		}
	}
	if lost == 0 {
		t.Error("no reply was lost: the test is void")
	}
	eventually(t, "works again", func() bool { return w.do("PING") == "+PONG\r\n" })
}

// A reply half delivered cannot be ended properly: that client is closed.
func TestBigReplyCutOffInTheMiddle(t *testing.T) {
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
	dialWire(t, p.addr).expect("+PONG\r\n", "PING")
}
