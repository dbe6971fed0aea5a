package session

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// journal is a log that a test reads while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(what string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), what)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// dialFrom connects to a listener that wants PROXY headers, as a client with that address.
func dialFrom(t *testing.T, to, ip string) *wire {
	t.Helper()
	w := dialWire(t, to)
	fmt.Fprintf(w.conn, "PROXY TCP4 %s 192.0.2.1 1000 6379\r\n", ip)
	return w
}

const deniedReply = "-" + deniedLine + "\r\n"

// Redis itself would refuse these clients; the connections through which it serves ours come from this machine.
func TestProtectedMode(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	var log journal
	p := startProxy(t, redis.URL(), func(o *ServerOptions) { o.Protected, o.Logger = true, log.logger() })
	addr := serveEntry(t, p, downstream.Entry{ProxyHeader: true})
	server, client := tlsPair(t)
	secret := serveEntry(t, p, downstream.Entry{ProxyHeader: true, TLS: server})
	eventually(t, "the log says it", func() bool { return log.count("protected mode: Redis asks for no password") > 0 })
	if got := dialFrom(t, addr, "192.0.2.7").rest(); got != deniedReply {
		t.Errorf("from another machine: %q", got)
	}
	w := dialFrom(t, secret, "192.0.2.7")
	w.conn = tls.Client(w.conn, client)
	if got := w.rest(); got != deniedReply {
		t.Errorf("by TLS: %q", got)
	}
	eventually(t, "those refused have left their places", func() bool { return p.srv.gate.Places() == 0 })
	here := dialFrom(t, addr, "127.0.0.1")
	here.expect("+OK\r\n", "SET", "k", "v")
	dialWire(t, p.addr).expect("$1\r\nv\r\n", "GET", "k")

	here.expect("+OK\r\n", "CONFIG", "SET", "requirepass", "secret")
	eventually(t, "the password is known to be asked for", p.srv.asksPassword)
	far := dialFrom(t, addr, "192.0.2.7")
	far.expect("-NOAUTH Authentication required.\r\n", "GET", "k")
	far.expect("+OK\r\n", "AUTH", "secret")
	silent := dialFrom(t, addr, "192.0.2.8")
	eventually(t, "one is there that has said nothing", func() bool { return p.srv.clients.n.Load() == 4 })
	far.expect("+OK\r\n", "CONFIG", "SET", "requirepass", "")
	if got := silent.rest(); got != deniedReply {
		t.Errorf("one that has come in the meantime: %q", got)
	}
	far.expect("$1\r\nv\r\n", "GET", "k") // as in Redis, who is in stays
	if got := dialFrom(t, addr, "192.0.2.7").rest(); got != deniedReply {
		t.Errorf("a newcomer: %q", got)
	}
	if n := log.count("protected mode: Redis asks for no password"); n < 2 { // more when an answer is overtaken by a later one
		t.Errorf("the log says it %d times", n)
	}
}

// What counts as this machine is what counts for Redis' protected mode.
func TestLocalAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true,
		"192.0.2.1:1": false, "[fe80::1%eth0]:1": false, "0.0.0.0:1": false, "[::]:1": false} {
		if got := downstream.IsLocal(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if !downstream.IsLocal(&net.UnixAddr{Name: "@", Net: "unix"}) {
		t.Error("a unix socket")
	}
}

func TestProtectedModeNo(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	var log journal
	p := startProxy(t, redis.URL(), func(o *ServerOptions) { o.Logger = log.logger() })
	dialFrom(t, serveEntry(t, p, downstream.Entry{ProxyHeader: true}), "192.0.2.7").expect("+PONG\r\n", "PING")
	eventually(t, "the log says it", func() bool { return log.count("whoever can connect is served") == 1 })
}

// Where a password is asked for, any command is not enough to stay.
func TestHandshakeTimeoutEndsWithThePassword(t *testing.T) {
	t.Parallel()
	redis := startRedis(t, "--requirepass sekret")
	const limit = 3 * time.Second
	p := startProxy(t, redis.URL(), func(o *ServerOptions) { o.HandshakeTimeout = limit })
	eventually(t, "the need of a password is known", p.srv.asksPassword)
	in := dialWire(t, p.addr)
	in.expect("+OK\r\n", "AUTH", "sekret")
	var wg sync.WaitGroup
	for _, command := range [][]string{{"PING"}, {"AUTH", "wrong"}, {"HELLO", "3"}, {"HELLO", "3", "AUTH", "default", "wrong"}, {"LOCK", "l"}} {
		w := dialWire(t, p.addr)
		wg.Go(func() {
			for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
				if _, err := w.conn.Write(resp.AppendCommand(nil, command...)); err != nil {
					return
				}
				if _, err := w.tryFrame(patience); err != nil {
					return
				}
				if time.Now().After(end) {
					t.Errorf("%q for ever: still connected", command)
					return
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(limit) // for the one that is in
	in.expect("+PONG\r\n", "PING")
	in.expect("+RESET\r\n", "RESET") // it has all of the time again
	in.expect("+OK\r\n", "AUTH", "sekret")
	in.expect("+RESET\r\n", "RESET")
	if got := in.frame(); got != "<end>" {
		t.Errorf("silent after RESET: %q", got)
	}
}

// One that has not been served when the password comes has the time from then on.
func TestHandshakeTimeoutBeginsWithThePassword(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	p := startProxy(t, redis.URL(), func(o *ServerOptions) { o.HandshakeTimeout = 3 * time.Second })
	idle, holder := dialWire(t, p.addr), dialWire(t, p.addr)
	idle.expect("+RESET\r\n", "RESET") // for which Redis is not asked
	holder.expect("+OK\r\n", "LOCK", "l")
	redis.Do(t, "CONFIG", "SET", "requirepass", "secret")
	if got := idle.frame(); got != "<end>" {
		t.Errorf("one that has not authenticated: %q", got)
	}
	holder.expect("$-1\r\n", "GET", "k")
	holder.expect("+OK\r\n", "AUTH", "secret")
	holder.expect("$-1\r\n", "GET", "k")
}

func TestNodeOfAClusterIsNoticed(t *testing.T) {
	t.Parallel()
	redis := startRedis(t, "--cluster-enabled yes")
	var log journal
	p := startProxy(t, redis.URL(), func(o *ServerOptions) { o.Logger = log.logger() })
	eventually(t, "the log says it", func() bool { return log.count("Name the upstream redis-cluster://") == 1 })
	p.srv.process.LearnAgain()
	alone := startRedis(t)
	var quiet journal
	q := startProxy(t, alone.URL(), func(o *ServerOptions) { o.Logger = quiet.logger() })
	eventually(t, "all is learned", q.srv.needKnown)
	if quiet.count("redis-cluster://") > 0 {
		t.Error("said of a Redis alone")
	}
}
