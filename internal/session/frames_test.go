package session

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Whatever a client is sent, in whatever way it comes, and whatever else is pushed to it: each frame comes whole.
func TestPushesComeBetweenFrames(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) {
		server := testredis.Start(t)
		p := startProxy(t, server.URL(), nil)
		framesStayWhole(t, p, false)
	})
	t.Run("cluster", func(t *testing.T) {
		p := startProxyOf(t, testredis.StartCluster(t, 3, 0), nil)
		framesStayWhole(t, p, true)
	})
}

// lostPush is what the flood consists of.
var lostPush = ">4\r\n$9\r\nlock-lost\r\n$5\r\nflood\r\n$5\r\nplain\r\n$4\r\ntest\r\n"

func framesStayWhole(t *testing.T, p *proxy, cluster bool) {
	other := dialWire(t, p.addr)
	value := func(c string, n int) string { return strings.Repeat(c+lostPush[:10], n/11) }
	// Gathered from a shared connection in pieces, streamed over a private one, and small.
	values := map[string]string{"gathered": value("g", 9<<20), "streamed": value("s", 3<<20), "small": "v"}
	for key, v := range values {
		other.expect("+OK\r\n", "SET", key, v)
	}
	w := slowWire(t, p.addr)
	w.do("HELLO", "3")
	w.expect("+OK\r\n", "CLIENT", "CAPA", commands.LossPush)
	stop := flood(p, w)
	defer stop()
	get := func(key string) {
		t.Helper()
		w.send("GET", key)
		w.wantReply(bulk(values[key]))
	}
	for range 2 {
		get("gathered")
		get("streamed")
		get("small")
		w.send("GET", "small", "one too many")
		w.wantReply("-ERR wrong number of arguments for 'get' command\r\n")
		w.send("MULTI")
		w.wantReply("+OK\r\n")
		w.send("GET", "streamed")
		w.wantReply("+QUEUED\r\n")
		w.send("EXEC")
		w.wantReply("*1\r\n" + bulk(values["streamed"]))
		for _, words := range [][]string{{"CLIENT", "REPLY", "OFF"}, {"GET", "gathered"}, {"CLIENT", "REPLY", "ON"}, {"CLIENT", "REPLY", "SKIP"}, {"GET", "streamed"}} {
			w.send(words...)
		}
		w.wantReply("+OK\r\n")
		get("small")
		if cluster { // merged from all nodes
			w.send("MGET", "gathered", "small", "streamed")
			w.wantReply("*3\r\n" + bulk(values["gathered"]) + bulk("v") + bulk(values["streamed"]))
		}
	}
	w.send("SUBSCRIBE", "news")
	w.wantReply(">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
	message := value("m", 4<<20)
	other.do("PUBLISH", "news", message)
	other.do("PUBLISH", "news", "end")
	w.wantReply(">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n" + bulk(message))
	w.wantReply(">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\nend\r\n")
	get("streamed")
	if w.pushes == 0 {
		t.Error("no push came: nothing was tried")
	}
}

// slowWire has a client with a small window, so that long replies are written in many parts.
func slowWire(t *testing.T, addr string) *framed {
	w := &framed{wire: dialWire(t, addr)}
	w.conn.(*net.TCPConn).SetReadBuffer(32 << 10)
	return w
}

// framed is a client that takes nothing but whole frames.
type framed struct {
	*wire
	pushes int
}

// next is the next frame that is no push of the flood.
func (w *framed) next() string {
	w.t.Helper()
	for {
		f, err := w.tryFrame(patience)
		if err != nil {
			w.t.Fatalf("not a whole frame: %v, after %d pushes", err, w.pushes)
		}
		if f != lostPush {
			return f
		}
		w.pushes++
	}
}

// some reads at least n bytes.
func (w *framed) some(n int) []byte {
	w.t.Helper()
	got := make([]byte, n)
	w.conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(w.conn, got); err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *framed) wantReply(want string) {
	w.t.Helper()
	if got := w.next(); got != want {
		w.t.Fatalf("a reply of %d bytes is not as it should be, from byte %d on: %.80q; wanted are %d: %.80q", len(got), differ(got, want), got, len(want), want)
	}
}

func differ(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// flood pushes to w's session all the time, until stop is called.
func flood(p *proxy, w *framed) (stop func()) {
	s := p.sessionOf(w.wire)
	done := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		for {
			s.pushes.queueLoss(lock.Loss{Key: "flood", Reason: "test"})
			select {
			case <-done:
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		over.Wait()
	})
}

// sessionOf is the session that serves w, as soon as it has been let in.
func (p *proxy) sessionOf(w *wire) (c *Session) {
	p.t.Helper()
	eventually(p.t, "it is let in", func() bool { c = p.findSession(w); return c != nil })
	return c
}

// findSession is sessionOf of a client that may not have been let in yet; nil: it has not.
func (p *proxy) findSession(w *wire) *Session {
	all := p.srv.clients.snapshot()
	if i := slices.IndexFunc(all, func(c *Session) bool { return c.client.Peer.Addr == w.conn.LocalAddr().String() }); i >= 0 {
		return all[i]
	}
	return nil
}

// A client that goes back to RESP2 gets no push behind the reply that says so, and one that begins with RESP3 none before.
func TestNoPushToRESP2(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w := slowWire(t, p.addr)
	w.expect("+OK\r\n", "CLIENT", "CAPA", commands.LossPush)
	s := p.sessionOf(w.wire)
	w.do("HELLO", "3")
	busy := s.client.Writer.Passage() // has the push wait until the client is at RESP2
	busy.Write([]byte("+so"), true)
	s.pushes.queueLoss(lock.Loss{Key: "flood", Reason: "test"})
	w.send("HELLO", "2")
	eventually(t, "it is at RESP2", func() bool {
		return s.client.IdentityNow().Proto == 2
	})
	busy.Write([]byte(" far\r\n"), false)
	w.want("+so far\r\n")
	if got := w.frame(); got[0] != '*' {
		t.Fatalf("HELLO 2: %.80q", got)
	}
	w.expect("+PONG\r\n", "PING")
	defer flood(p, w)()
	for range 50 {
		w.send("HELLO", "3")
		if got := w.frame(); got[0] != '%' {
			t.Fatalf("HELLO 3: %.80q", got)
		}
		w.send("PING")
		w.wantReply("+PONG\r\n")
		w.send("HELLO", "2")
		if got := w.next(); got[0] != '*' {
			t.Fatalf("HELLO 2: %.80q", got)
		}
		w.expect("+PONG\r\n", "PING")
	}
}

// RESET ends a subscription while a message is half written: the message comes whole, then the reply.
func TestResetWithinMessage(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	other := dialWire(t, p.addr)
	message := strings.Repeat("m", 8<<20)
	for proto, mark := range map[string]string{"2": "*", "3": ">"} {
		w := slowWire(t, p.addr)
		w.do("HELLO", proto)
		w.expect(mark+"3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
		other.expect(":1\r\n", "PUBLISH", "c", message)
		w.left = w.some(1)
		w.send("RESET")
		w.wantReply(mark + "3\r\n$7\r\nmessage\r\n$1\r\nc\r\n" + bulk(message))
		w.wantReply("+RESET\r\n")
		w.expect("+PONG\r\n", "PING")
	}
}

// A reply whose rest Redis does not send ends the connection: no push completes it.
func TestCutReplyIsNotCompleted(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	between := testredis.NewProxy(t, server.Addr())
	p := startProxy(t, "redis://"+between.Addr(), nil)
	past := dialWire(t, server.Addr())
	past.expect("+OK\r\n", "SET", "k", strings.Repeat("x", 16<<20))
	for name, say := range map[string]string{"streamed": "GET k\r\n", "relayed": "MULTI\r\nGET k\r\nEXEC\r\n"} {
		w := slowWire(t, p.addr)
		eventually(t, "Redis is back", func() bool { // clients in RESP3 have a connection of their own there
			if w.do("HELLO", "3")[0] == '%' && w.do("PING") == "+PONG\r\n" {
				return true
			}
			w = slowWire(t, p.addr)
			return false
		})
		w.expect("+OK\r\n", "CLIENT", "CAPA", commands.LossPush)
		w.do("GET", "k") // so that what follows is streamed
		stop := flood(p, w)
		w.raw([]byte(say))
		got := w.some(200 << 10)
		between.CutAll()
		w.conn.SetReadDeadline(time.Now().Add(patience))
		rest, _ := io.ReadAll(w.conn)
		stop()
		got = append(got, rest...)
		value := got[bytes.Index(got, []byte("xxxx")):]
		if behind := bytes.TrimLeft(value, "x"); len(value) == 16<<20 || len(behind) > 0 {
			t.Errorf("%s: behind %d bytes of the reply stands %.60q", name, len(value)-len(behind), behind)
		}
	}
}
