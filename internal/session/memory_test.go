package session

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// EXEC's reply is passed on as it comes, also when commands within did something to the connection.
func TestReplyOfExecIsNotGathered(t *testing.T) {
	server := testredis.Start(t, "--client-output-buffer-limit pubsub 0 0 0")
	p := startProxy(t, server.URL(), nil)
	w := slowWire(t, p.addr)
	const size, gets = 4 << 20, 10
	w.expect("+OK\r\n", "SET", "big", strings.Repeat("x", size))
	before := heap()
	for _, line := range []string{"MULTI", "SELECT 0", "SUBSCRIBE a b"} {
		w.raw([]byte(line + "\r\n"))
	}
	for range gets {
		w.send("GET", "big")
	}
	w.raw([]byte("UNSUBSCRIBE\r\nSELECT 3\r\nCLIENT SETNAME me\r\nEXEC\r\n"))
	w.want("+OK\r\n")
	for range gets + 5 {
		w.want("+QUEUED\r\n")
	}
	w.left = append(w.left, w.some(1<<20)...)
	if grown := heap() - before; grown > 12<<20 {
		t.Errorf("of a reply of %d MB that nobody reads %d MB are held", gets*size>>20, grown>>20)
	}
	want := fmt.Sprintf("*%d\r\n+OK\r\n%s%s%s", gets+5, subscribed("subscribe", "a", 1), subscribed("subscribe", "b", 2), strings.Repeat(bulk(strings.Repeat("x", size)), gets))
	want += subscribed("unsubscribe", "a", 1) + subscribed("unsubscribe", "b", 0)
	got := make([]byte, len(want)-len(w.left))
	w.conn.SetReadDeadline(time.Now().Add(patience))
	n, err := io.ReadFull(w.conn, got)
	if got = append(w.left, got[:n]...); err != nil || !sameButOrder(got, want) {
		t.Fatalf("%v, %d bytes of %d, from %d on not as they should be", err, len(got), len(want), differ(string(got), want))
	}
	w.left = nil
	// Redis counts two confirmations as one element: the rest comes behind.
	w.want("+OK\r\n")
	w.want("+OK\r\n")
	w.expect("$2\r\nme\r\n", "CLIENT", "GETNAME")
	w.expect("$-1\r\n", "GET", "big") // it is in another database now
	eventually(t, "the connection was given back", func() bool { return p.dedicatedCount() == 0 })
}

func subscribed(verb, channel string, n int) string {
	return fmt.Sprintf("*3\r\n%s%s:%d\r\n", bulk(verb), bulk(channel), n)
}

// sameButOrder leaves it to Redis in which order it ends subscriptions.
func sameButOrder(got []byte, want string) bool {
	other := strings.Replace(strings.Replace(want, subscribed("unsubscribe", "a", 1), subscribed("unsubscribe", "b", 1), 1), subscribed("unsubscribe", "b", 0), subscribed("unsubscribe", "a", 0), 1)
	return string(got) == want || string(got) == other
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Behind a command that waits no more than some is read from a client, and all of it is answered in the end.
func TestPipelineBehindBlockedCommand(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	const n = 50000
	for _, waits := range []string{"BLPOP q 0", "XREAD BLOCK 0 STREAMS s $", "LOCK l BLOCK 0"} {
		other, w := dialWire(t, p.addr), dialWire(t, p.addr)
		other.expect("+OK\r\n", "LOCK", "l")
		s := p.sessionOf(w)
		w.raw([]byte(waits + "\r\n" + strings.Repeat("PING\r\n", n)))
		eventually(t, "it waits", func() bool { return s.own.View.Blocked.Load() || s.activity.waiting.Load() != nil })
		if waits[0] != 'L' {
			eventually(t, "it waits at Redis", func() bool {
				return strings.Contains(text(server.Do(t, "INFO", "clients")), "\r\nblocked_clients:1\r\n")
			})
		}
		switch waits[0] {
		case 'B':
			other.expect(":1\r\n", "RPUSH", "q", "x")
			w.want("*2\r\n$1\r\nq\r\n$1\r\nx\r\n")
		case 'X':
			other.do("XADD", "s", "1-1", "f", "v")
			w.want("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n")
		}
		other.expect(":1\r\n", "UNLOCK", "l")
		if waits[0] == 'L' {
			w.want("+OK\r\n")
		}
		pongs := make([]byte, len("+PONG\r\n")*n)
		w.conn.SetReadDeadline(time.Now().Add(patience))
		k := copy(pongs, w.left)
		if _, err := io.ReadFull(w.conn, pongs[k:]); err != nil || !bytes.Equal(pongs, []byte(strings.Repeat("+PONG\r\n", n))) {
			t.Fatalf("%s: the replies behind it: %v, %.80q", waits, err, pongs)
		}
		w.conn.Close()
		other.conn.Close()
	}
}

// What a transaction has this process keep counts for the bounds: who has the most is dropped, the others go on.
func TestQueuedTransactionsAreBounded(t *testing.T) {
	server := testredis.Start(t)
	t.Run("what commands do to the connection", func(t *testing.T) {
		p := startProxy(t, server.URL(), func(o *ServerOptions) { o.MaxReplyMemory = 1 << 20 })
		queuesTooMuch(t, p, telemetry.ReplyBytes, "SELECT", "1")
	})
	t.Run("commands before the first key, before a cluster", func(t *testing.T) {
		p := startProxyOf(t, testredis.StartCluster(t, 1, 0), func(o *ServerOptions) { o.MaxQueryMemory = 3 << 18 })
		queuesTooMuch(t, p, telemetry.QueryBytes, "ECHO", strings.Repeat("v", 1000))
	})
}

// So does what is kept of long calls that are queued.
func TestLongCallsAreBounded(t *testing.T) {
	p := startProxy(t, testredis.Start(t).URL(), func(o *ServerOptions) { o.MaxReplyMemory = 1 << 20 })
	long := strings.Repeat("x", 64<<10)
	for _, c := range []struct {
		first string
		words []string
	}{
		{"MULTI", []string{"CLIENT", "SETNAME", long[:4096]}},
	} {
		t.Run(c.words[1]+" behind "+c.first, func(t *testing.T) {
			w := dialWire(t, p.addr)
			call := resp.AppendCommand(nil, c.words...)
			calls := 4 << 20 / len(call)
			go w.conn.Write(append([]byte(c.first+"\r\n"), bytes.Repeat(call, calls)...))
			for replies := 0; ; replies++ {
				if got := w.frame(); got == "<end>" {
					break
				} else if got != "+OK\r\n" && got != "+QUEUED\r\n" || replies == calls {
					t.Fatalf("of %d calls %d have replies, the last one is %q", calls, replies, got)
				}
			}
			eventually(t, "nothing counts any more", func() bool { return telemetry.ReplyBytes.Value() == 0 })
		})
	}
}

func queuesTooMuch(t *testing.T, p *proxy, bytes *telemetry.Gauge, words ...string) {
	small, large := dialWire(t, p.addr), dialWire(t, p.addr)
	for _, w := range []*wire{small, large} {
		w.expect("+OK\r\n", "MULTI")
	}
	small.expect("+QUEUED\r\n", words...)
	queue := func(w *wire, n int) {
		for range n {
			w.expect("+QUEUED\r\n", words...)
		}
	}
	queue(large, 500)
	if bytes.Value() == 0 {
		t.Error("500 queued commands count for nothing")
	}
	large.expect("+OK\r\n", "DISCARD")
	large.expect("+PONG\r\n", "PING")
	eventually(t, "after DISCARD nothing counts", func() bool { return bytes.Value() == 0 })
	large.expect("+OK\r\n", "MULTI")
	queue(large, 500)
	if got := large.do("EXEC"); !strings.HasPrefix(got, "*500\r\n") {
		t.Errorf("EXEC: %.80q", got)
	}
	large.expect("+PONG\r\n", "PING")
	eventually(t, "after EXEC nothing counts", func() bool { return bytes.Value() == 0 })
	large.expect("+OK\r\n", "MULTI")
	large.raw(resp.AppendCommand(nil, words...))
	for got := large.frame(); got != "<end>"; got = large.frame() {
		if got != "+QUEUED\r\n" {
			t.Fatalf("got %q", got)
		}
		if _, err := large.conn.Write(resp.AppendCommand(nil, words...)); err != nil {
			break
		}
	}
	eventually(t, "nothing counts any more", func() bool { return bytes.Value() == 0 })
	if got := small.do("EXEC"); !strings.HasPrefix(got, "*1\r\n") {
		t.Errorf("EXEC: %.80q", got)
	}
}
