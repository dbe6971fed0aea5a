package session

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What clients are told for whom there is no place.
const (
	tooMany = "-ERR max number of clients reached\r\n"
)

// serveEntry has p serve a second listener, with an Entry, and returns its address.
func serveEntry(t *testing.T, p *proxy, e downstream.Entry) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, p, ln, e)
	return ln.Addr().String()
}

// serveOn has p serve ln, too, until the test ends.
func serveOn(t *testing.T, p *proxy, ln net.Listener, e downstream.Entry) {
	t.Helper()
	done := make(chan error, 1)
	go p.serve(ln, e, done)
	t.Cleanup(func() {
		p.stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (p *proxy) serve(ln net.Listener, e downstream.Entry, done chan<- error) {
	done <- p.srv.Serve(ln, e)
}

// tlsPair is a server's and a client's configuration that fit.
func tlsPair(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	a := testredis.NewAuthority(t)
	cert, key := a.Issue("127.0.0.1")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, &tls.Config{RootCAs: a.Pool, ServerName: "127.0.0.1"}
}

func dialTLS(t *testing.T, addr string, c *tls.Config) *wire {
	t.Helper()
	w := dialWire(t, addr)
	w.conn = tls.Client(w.conn, c)
	return w
}

func (w *wire) socket() net.Conn {
	if secure, ok := w.conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return w.conn
}

// rest reads to the end of the connection.
func (w *wire) rest() string {
	w.t.Helper()
	w.conn.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(w.conn)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		w.t.Fatalf("not closed after %q", b)
	}
	return string(b)
}

func TestTLSClients(t *testing.T) {
	t.Parallel()
	server, client := tlsPair(t)
	p := startProxy(t, startRedis(t).URL(), nil)
	addr := serveEntry(t, p, downstream.Entry{TLS: server})
	plain := dialWire(t, p.addr)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		conf := client.Clone()
		conf.MaxVersion = version
		w := dialTLS(t, addr, conf)
		big := strings.Repeat("x", 3<<20)
		w.expect("+OK\r\n", "SET", "big", big)
		w.expect(fmt.Sprintf("$%d\r\n%s\r\n", len(big), big), "GET", "big")
		w.expect("+OK\r\n", "CLIENT", "SETNAME", "safe")
		if list := plain.do("CLIENT", "LIST"); !strings.Contains(list, " addr="+w.conn.LocalAddr().String()+" laddr="+addr+" ") {
			t.Errorf("CLIENT LIST: %s", list)
		}
		if got := w.do("HELLO", "3"); got[0] != '%' {
			t.Errorf("HELLO: %q", got)
		}
		for what, end := range map[string]func(){
			"says so":       func() { w.conn.Close() },
			"just goes":     func() { w.socket().Close() },
			"resets":        func() { w.socket().(*net.TCPConn).SetLinger(0); w.socket().Close() },
			"in mid-record": func() { w.socket().Write([]byte{23, 3, 3, 1, 0, 42}); w.socket().Close() },
		} {
			w = dialTLS(t, addr, conf)
			w.expect("+OK\r\n", "LOCK", "held")
			end()
			eventually(t, "the lock of a client that "+what+" is free", func() bool { return plain.do("LOCK", "held") == "+OK\r\n" })
			plain.expect(":1\r\n", "UNLOCK", "held")
		}
	}
}

// What waits for a lock is given up as soon as the client goes, and what it pipelined meanwhile comes in order.
func TestTLSClientsThatWait(t *testing.T) {
	t.Parallel()
	server, client := tlsPair(t)
	p := startProxy(t, startRedis(t).URL(), nil)
	addr := serveEntry(t, p, downstream.Entry{TLS: server})
	holder := dialTLS(t, addr, client)
	holder.expect("+OK\r\n", "LOCK", "l")
	waiting := func(n int) func() bool {
		return func() bool {
			return strings.Contains(holder.do("INFO", "lockproxy"), fmt.Sprintf("locks_waiting:%d\r\n", n))
		}
	}
	gone := dialTLS(t, addr, client)
	gone.send("LOCK", "l", "BLOCK", "0")
	eventually(t, "it waits", waiting(1))
	gone.send("ECHO", "behind")
	gone.socket().Close()
	eventually(t, "it is given up", waiting(0))
	w := dialTLS(t, addr, client)
	w.send("LOCK", "l", "BLOCK", "0")
	eventually(t, "another waits", waiting(1))
	for i := range 3 {
		w.send("ECHO", fmt.Sprint(i))
		time.Sleep(10 * time.Millisecond)
	}
	holder.expect(":1\r\n", "UNLOCK", "l")
	for _, want := range []string{"+OK\r\n", "$1\r\n0\r\n", "$1\r\n1\r\n", "$1\r\n2\r\n"} {
		if got := w.frame(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	w.expect(":1\r\n", "UNLOCK", "l") // its connection has outlived the read that was broken off
}

func TestHandshakesTakePlacesAndTime(t *testing.T) {
	server, client := tlsPair(t)
	p := startProxy(t, startRedis(t).URL(), func(o *ServerOptions) { o.MaxClients, o.HandshakeTimeout = 5, 5*time.Second })
	addr := serveEntry(t, p, downstream.Entry{TLS: server})
	headers := serveEntry(t, p, downstream.Entry{ProxyHeader: true})
	failed := telemetry.EntriesFailed.Value()
	var stuck []*wire
	for _, c := range []struct{ addr, says string }{
		{addr, ""}, {addr, "\x16\x03"}, {addr, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"}, // silent, half a TLS header, half a hello
		{headers, ""}, {headers, "\r\n\r\n\x00\r\nQUI"}, // no PROXY header, half of one
	} {
		w := dialWire(t, c.addr)
		w.raw([]byte(c.says))
		stuck = append(stuck, w)
	}
	eventually(t, "all have their places", func() bool { return p.srv.gate.Places() == len(stuck) })
	if got := dialWire(t, p.addr).rest(); got != tooMany {
		t.Errorf("one more client got %q", got)
	}
	if got := dialWire(t, addr).rest(); got != "" {
		t.Errorf("one more client got %q without TLS", got)
	}
	for _, w := range stuck {
		w.rest()
	}
	eventually(t, "the places are free", func() bool { return p.srv.gate.Places() == 0 }) // a moment after the connections' ends
	dialTLS(t, addr, client).expect("+PONG\r\n", "PING")
	if n := telemetry.EntriesFailed.Value() - failed; n != int64(len(stuck)) {
		t.Errorf("%d are counted, want %d", n, len(stuck))
	}
}

// Any number of clients may be stuck in the hand-shake: others come in as ever.
func TestStalledHandshakesHoldNobodyUp(t *testing.T) {
	t.Parallel()
	server, client := tlsPair(t)
	p := startProxy(t, startRedis(t).URL(), nil)
	addr := serveEntry(t, p, downstream.Entry{TLS: server})
	for range 100 {
		dialWire(t, addr).raw([]byte("\x16\x03"))
	}
	for range 20 { // one after the other, the hundred would take far longer than a client here waits for its reply
		dialTLS(t, addr, client).expect("+PONG\r\n", "PING")
	}
}

func TestPlainBytesOnTheTLSPort(t *testing.T) {
	t.Parallel()
	server, _ := tlsPair(t)
	p := startProxy(t, startRedis(t).URL(), nil)
	addr := serveEntry(t, p, downstream.Entry{TLS: server})
	for began, told := time.Now(), false; !told; began = time.Now() {
		w := dialWire(t, addr)
		w.send("PING")
		got := w.rest()
		told = got == "-ERR this port wants TLS\r\n"
		if !told && (got != "" || time.Since(began) < 10*time.Second) { // when the machine stalls its time for the hand-shake is over
			t.Fatalf("got %q", got)
		}
	}
	dialWire(t, addr).conn.Close() // a look whether the port is open
	if got := dialWire(t, p.addr).do("PING"); got != "+PONG\r\n" {
		t.Errorf("got %q", got)
	}
}

// An open listener whose clients are in the hand-shake can be shut down at once.
func TestShutdownDuringHandshakes(t *testing.T) {
	t.Parallel()
	server, _ := tlsPair(t)
	p := startProxy(t, startRedis(t).URL(), nil)
	addr := serveEntry(t, p, downstream.Entry{TLS: server, ProxyHeader: true})
	w := dialWire(t, addr)
	w.raw([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n\x16\x03"))
	eventually(t, "it is in the hand-shake", func() bool { return p.srv.gate.Places() == 1 })
	p.stop()
	w.rest()
	eventually(t, "the place is free", func() bool { // its goroutine may outlive Shutdown by a moment; Accept waits for it
		return p.srv.gate.Places() == 0
	})
}

func header(t *testing.T, version byte, from, to string) []byte {
	t.Helper()
	h := proxyproto.HeaderProxyFromAddrs(version, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from)), net.TCPAddrFromAddrPort(netip.MustParseAddrPort(to)))
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	v2          = "\r\n\r\n\x00\r\nQUIT\n"
	localHeader = v2 + "\x20\x00\x00\x00"
)

func TestProxyHeaders(t *testing.T) {
	t.Parallel()
	server, client := tlsPair(t)
	p := startProxy(t, startRedis(t).URL(), nil)
	addr, safe := serveEntry(t, p, downstream.Entry{ProxyHeader: true}), serveEntry(t, p, downstream.Entry{ProxyHeader: true, TLS: server})
	withTLVs := []byte(v2 + "\x21\x11\x00\x10\xc0\x00\x02\x01\xc0\x00\x02\x02\x00\x01\x00\x02\x04\x00\x01\x00")
	for what, c := range map[string]struct {
		header      []byte
		addr, laddr string // "": the connection's own
	}{
		"v1":                 {header(t, 1, "192.0.2.1:1234", "192.0.2.2:6379"), "192.0.2.1:1234", "192.0.2.2:6379"},
		"v2":                 {header(t, 2, "192.0.2.1:1234", "192.0.2.2:6379"), "192.0.2.1:1234", "192.0.2.2:6379"},
		"v1, 6":              {header(t, 1, "[2001:db8::1]:1234", "[2001:db8::2]:6379"), "[2001:db8::1]:1234", "[2001:db8::2]:6379"},
		"v2, 6":              {header(t, 2, "[2001:db8::1]:1234", "[2001:db8::2]:6379"), "[2001:db8::1]:1234", "[2001:db8::2]:6379"},
		"v2 with more in it": {withTLVs, "192.0.2.1:1", "192.0.2.2:2"},
		"v2 local":           {[]byte(localHeader), "", ""},
		"v1 unknown":         {[]byte("PROXY UNKNOWN\r\n"), "", ""},
	} {
		for _, to := range []string{addr, safe} {
			w := dialWire(t, to)
			ping := []byte("*1\r\n$4\r\nPING\r\n")
			if to == safe {
				w.raw(c.header)
				w.conn = tls.Client(w.conn, client)
				w.raw(ping)
			} else {
				w.raw(append(bytes.Clone(c.header), ping...)) // in one packet
			}
			if got := w.frame(); got != "+PONG\r\n" {
				t.Errorf("%s: %q", what, got)
				continue
			}
			addr, laddr := c.addr, c.laddr
			if addr == "" {
				addr, laddr = w.conn.LocalAddr().String(), to
			}
			if got := w.do("CLIENT", "INFO"); !strings.Contains(got, " addr="+addr+" laddr="+laddr+" ") {
				t.Errorf("%s: %s", what, got)
			}
		}
	}
}

func TestBadProxyHeaders(t *testing.T) {
	t.Parallel()
	p := startProxy(t, startRedis(t).URL(), nil)
	addr := serveEntry(t, p, downstream.Entry{ProxyHeader: true})
	for what, b := range map[string]string{
		"a command":         "*1\r\n$4\r\nPING\r\n",
		"an inline command": "PING\r\n",
		"no such protocol":  "PROXY TCP9 1.2.3.4 1.2.3.4 1 2\r\n",
		"no address":        "PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n",
		"no port":           "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
		"no end":            "PROXY TCP4 " + strings.Repeat("1", 200),
		"version 3":         v2 + "\x31\x11\x00\x0c" + strings.Repeat("\x01", 12),
		"too short":         v2 + "\x21\x11\x00\x02\x01\x01",
		"a huge one":        v2 + "\x21\x11\xff\xff" + strings.Repeat("\x01", 70000),
		"no family":         v2 + "\x21\x00\x00\x00",
		"zeros":             strings.Repeat("\x00", 100),
		"TLS":               "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	} {
		w := dialWire(t, addr)
		if _, err := w.conn.Write([]byte(b + "*1\r\n$4\r\nPING\r\n")); err != nil {
			continue // closed before all of it was out
		}
		if got := w.rest(); got != "" {
			t.Errorf("%s: %q", what, got)
		}
	}
	w := dialWire(t, addr)
	w.raw(header(t, 1, "192.0.2.1:1234", "192.0.2.2:6379"))
	w.expect("+PONG\r\n", "PING")
}

func TestProxyHeadersFrom(t *testing.T) {
	t.Parallel()
	p := startProxy(t, startRedis(t).URL(), nil)
	nets := func(s string) []netip.Prefix {
		return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix(s)}
	}
	w := dialWire(t, serveEntry(t, p, downstream.Entry{ProxyHeader: true, ProxyFrom: nets("127.0.0.0/8")}))
	w.raw(header(t, 2, "192.0.2.1:1234", "192.0.2.2:6379"))
	w.expect("+PONG\r\n", "PING")
	if got := dialWire(t, serveEntry(t, p, downstream.Entry{ProxyHeader: true, ProxyFrom: nets("192.0.2.0/24")})).rest(); got != "" {
		t.Errorf("got %q", got)
	}
}
