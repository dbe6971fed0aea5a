package testredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/rs/zerolog"
)

// Proxy is a TCP proxy before one address that can delay and cut. Toxiproxy's
// links carry the bytes; the listener and the connections are ours, because
// toxiproxy's own can not reset them, and strand goroutines and, with them, its
// locks when a connection is cut with bytes on the way.
type Proxy struct {
	t      testing.TB
	addr   string
	links  *toxiproxy.Proxy // never started: it only keeps the toxics
	server *toxiproxy.ApiServer
	filter atomic.Pointer[func(toServer bool, b []byte) bool]

	mu       sync.Mutex
	upstream string
	ln       net.Listener // nil while disabled
	conns    map[net.Conn]struct{}
	serial   int
	toxics   []string
	wg       sync.WaitGroup // accept loops, dials and links
}

// NewProxy listens on a free loopback port and passes connections on to the TCP
// address upstream. It ends with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p := &Proxy{
		t:        t,
		upstream: upstream,
		addr:     net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t))),
		server:   toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		conns:    make(map[net.Conn]struct{}),
	}
	p.links = toxiproxy.NewProxy(p.server, "testredis", p.addr, upstream)
	t.Cleanup(p.cleanup)
	p.Enable()
	return p
}

// Addr is the host:port to connect to instead of the upstream address.
func (p *Proxy) Addr() string { return p.addr }

// Upstream is the address that connections are passed on to.
func (p *Proxy) Upstream() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream
}

// Latency delays every byte by d (whole milliseconds) in each direction, on
// present and new connections. It replaces an earlier latency or black hole.
func (p *Proxy) Latency(d time.Duration) {
	p.t.Helper()
	p.toxic(fmt.Sprintf(`"latency","attributes":{"latency":%d}`, d.Milliseconds()), "upstream", "downstream")
}

// BlackHole swallows every byte in both directions, on present and new connections, which are served all the same.
func (p *Proxy) BlackHole() {
	p.t.Helper()
	p.toxic(`"timeout","attributes":{"timeout":0}`, "upstream", "downstream")
}

// Filter has pass see all bytes from now on, and swallow those of which it says false, and what follows them in that direction of the
// connection, as TCP never leaves a gap; nil ends it. It is called by the connections' goroutines, and may call CutAll.
func (p *Proxy) Filter(pass func(toServer bool, b []byte) bool) {
	if pass == nil {
		p.filter.Store(nil)
		return
	}
	p.filter.Store(&pass)
}

// toxic puts one toxic into each of the directions, instead of the present ones.
func (p *Proxy) toxic(kind string, directions ...string) {
	p.t.Helper()
	p.Clear()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, direction := range directions {
		toxic, err := p.links.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type":%s,"stream":%q}`, kind, direction)))
		if err != nil {
			p.t.Fatalf("testredis: %s: %v", kind, err)
		}
		p.toxics = append(p.toxics, toxic.Name)
	}
}

// Clear ends Latency: bytes on the way arrive at once and in order; and BlackHole: the connections from then are closed.
func (p *Proxy) Clear() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.toxics {
		if err := p.links.Toxics.RemoveToxic(context.Background(), name); err != nil {
			p.t.Fatalf("testredis: clear %s: %v", name, err)
		}
	}
	p.toxics = nil
}

// CutAll closes all present connections on both sides; bytes on the way are
// lost. New connections are served.
func (p *Proxy) CutAll() { p.cut(false) }

// ResetAll is CutAll with a TCP reset on both sides.
func (p *Proxy) ResetAll() { p.cut(true) }

// Disable closes the port and all present connections: dialling is refused.
func (p *Proxy) Disable() {
	p.mu.Lock()
	if p.ln != nil {
		syscall.ForkLock.RLock() // a server that is forked just now has the port open, too, until it has become redis-server
		_ = p.ln.Close()
		syscall.ForkLock.RUnlock()
		p.ln = nil
	}
	p.mu.Unlock()
	p.CutAll()
}

// Redirect has new connections passed on to another address.
func (p *Proxy) Redirect(upstream string) {
	p.mu.Lock()
	p.upstream = upstream
	p.mu.Unlock()
}

// Enable opens the port again.
func (p *Proxy) Enable() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil {
		return
	}
	// A server that a test forks at the moment of Disable has the former listener, too, until it has become redis-server.
	ln, err := net.Listen("tcp", p.addr)
	for end := time.Now().Add(readyTimeout); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		select {
		case <-time.After(time.Millisecond):
		case <-p.t.Context().Done():
		}
		ln, err = net.Listen("tcp", p.addr)
	}
	if err != nil {
		p.t.Fatalf("testredis: proxy: %v", err)
	}
	p.ln = ln
	p.wg.Add(1)
	go p.accept(ln)
}

func (p *Proxy) cleanup() {
	p.Disable()
	p.wg.Wait()
}

func (p *Proxy) accept(ln net.Listener) {
	defer p.wg.Done()
	for {
		client, err := ln.Accept()
		if err != nil {
			return // closed by Disable
		}
		p.wg.Add(1)
		go p.connect(ln, client)
	}
}

// connect joins client with a new upstream connection by two links.
func (p *Proxy) connect(ln net.Listener, client net.Conn) {
	defer p.wg.Done()
	p.mu.Lock()
	to := p.upstream
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", to, dialTimeout)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != ln { // disabled meanwhile
		_ = client.Close()
		_ = server.Close()
		return
	}
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.serial++
	p.wg.Add(2)
	p.links.Toxics.StartLink(p.server, fmt.Sprint(p.serial, "up"), client, &sink{p: p, to: server, from: client, toServer: true}, stream.Upstream)
	p.links.Toxics.StartLink(p.server, fmt.Sprint(p.serial, "down"), server, &sink{p: p, to: client, from: server}, stream.Downstream)
}

func (p *Proxy) cut(reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// All are made ready first: the end of one makes its link close the other,
	// which would then end in peace.
	for c := range p.conns {
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	}
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// sink is where one link writes to. It takes bytes even when the connection is
// gone, so that a link always runs dry and ends.
type sink struct {
	p        *Proxy
	to, from net.Conn
	toServer bool
	gap      bool // bytes were swallowed
}

// Write passes b on, or ends the link's source when the destination is gone.
func (s *sink) Write(b []byte) (int, error) {
	if pass := s.p.filter.Load(); pass != nil && !(*pass)(s.toServer, b) {
		s.gap = true
	}
	if s.gap {
		return len(b), nil
	}
	if _, err := s.to.Write(b); err != nil {
		_ = s.from.Close()
	}
	return len(b), nil
}

// Close is called by the link once, at its end.
func (s *sink) Close() error {
	defer s.p.wg.Done()
	err := s.to.Close()
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	delete(s.p.conns, s.to)
	return err
}

var _ io.WriteCloser = (*sink)(nil)
