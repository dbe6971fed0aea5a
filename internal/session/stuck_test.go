package session

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// TestDepartedClientsLeaveAHungRedis: clients that go while Redis says nothing give their places back, also those whose
// pipelines are long; replies to what they asked reach nobody else.
func TestDepartedClientsLeaveAHungRedis(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *Options) { o.MaxClients = 12 })
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
	eventually(t, "they give their places back", func() bool { return p.srv.sessionN.Load() == 1 })
	server.Cont()
	stays.want("$1\r\nv\r\n")
	stays.expect("+PONG\r\n", "PING")
}

// TestUpstreamTimeout: a command without an answer gets an error, its late reply reaches nobody, and the client goes on.
func TestUpstreamTimeout(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *Options) { o.UpstreamTimeout = 100 * time.Millisecond })
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "SET", "k", "v")
	server.Stop()
	defer server.Cont()
	w.raw(append(resp.AppendCommand(nil, "GET", "k"), resp.AppendCommand(nil, "INCR", "n")...))
	w.want("-" + timeoutLine + "\r\n")
	w.want("-" + timeoutLine + "\r\n")
	server.Cont()
	eventually(t, "Redis answers again", func() bool { return w.do("ECHO", "mine") == "$4\r\nmine\r\n" })
	w.expect("$1\r\n1\r\n", "GET", "n")
}
