package downstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Entry is what the clients of a listener go through before their first command. The zero Entry is nothing.
type Entry struct {
	TLS *tls.Config // nil: plain
	// ProxyHeader wants a header of the PROXY protocol, version 1 or 2, from each client of a TCP listener, and
	// believes the address in it. Clients without a header are closed, and so are those whose own address is not in
	// ProxyFrom, unless that is empty.
	ProxyHeader bool
	ProxyFrom   []netip.Prefix
	// Operators: who may connect is an operator, has one of a few places beside all others, and is let in until a drain is
	// over.
	Operators bool
}

// entryTime is for header and TLS hand-shake together; --handshake-timeout may make it shorter.
const entryTime = 10 * time.Second

const (
	headerBuffer = 512 // what is read at once while a header may come; longer ones are read in parts
	notTLS       = "-ERR this port wants TLS\r\n"
)

var (
	errSilent  = errors.New("closed before it said anything")
	errNotFrom = errors.New("its address is not one of --proxy-protocol-from")
)

// entrant is a client that may begin to speak RESP.
type entrant struct {
	conn  net.Conn
	from  net.Addr // of the connection itself, whatever a PROXY header says
	place *Place
	since time.Time // of its accept
	entry *Entry
}

// local says that the client is on this machine. A balancer on another machine has no clients here.
func (e *entrant) local() bool { return IsLocal(e.from) && IsLocal(e.conn.RemoteAddr()) }

func (g *Gate) entryTime() time.Duration {
	if d := g.bounds.Load().HandshakeTimeout; d > 0 {
		return min(d, entryTime)
	}
	return entryTime
}

// enterGate takes one client through the listener's Entry, in a goroutine of its own, for which Accept waits.
func (l *listener) enterGate(e entrant) {
	defer l.entering.Done()
	raw := e.conn
	stop := context.AfterFunc(l.ctx, func() { raw.Close() })
	raw.SetDeadline(e.since.Add(l.gate.entryTime()))
	err := l.prepare(&e)
	stop()
	if err == nil {
		raw.SetDeadline(time.Time{})
		select {
		case l.entered <- e:
			return
		case <-l.ctx.Done():
		}
	} else if l.ctx.Err() == nil {
		l.gate.notEntered(e.conn.RemoteAddr(), err)
	}
	raw.Close()
	e.place.Leave()
}

// prepare replaces e.conn by one that speaks RESP.
func (l *listener) prepare(e *entrant) error {
	c := &proxiedConn{Conn: e.conn}
	e.conn = c
	first := bufio.NewReaderSize(c.Conn, headerBuffer)
	switch _, err := first.Peek(1); {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return errSilent
	case err != nil:
		return err
	}
	if l.wantsHeader() {
		if err := readHeader(first, c); err != nil {
			return err
		}
	}
	if n := first.Buffered(); n > 0 {
		c.rest, _ = first.Peek(n)
	}
	if l.entry.TLS == nil {
		return nil
	}
	secure := tls.Server(&deadlineRenewer{Conn: c}, l.entry.TLS)
	e.conn = secure
	if err := secure.HandshakeContext(l.ctx); err != nil {
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil {
			c.Write([]byte(notTLS)) // best effort
		}
		return fmt.Errorf("TLS: %w", err)
	}
	return nil
}

// wantsHeader exempts unix sockets: who may connect there is up to the file system.
func (l *listener) wantsHeader() bool {
	return l.entry.ProxyHeader && l.Addr().Network() == "tcp"
}

// readHeader reads the PROXY header, and takes over the addresses in it.
func readHeader(in *bufio.Reader, c *proxiedConn) error {
	h, err := proxyproto.Read(in)
	if err != nil {
		return err
	}
	remote, local, ok := h.TCPAddrs()
	if ok && !h.Command.IsLocal() { // else it is the balancer's own connection, a health check for example
		c.remote, c.local = remote, local
	}
	return nil
}

// trusted says whether a header from this address would be believed.
func (l *listener) trusted(a net.Addr) bool {
	if !l.wantsHeader() || len(l.entry.ProxyFrom) == 0 {
		return true
	}
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	for _, p := range l.entry.ProxyFrom {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// notEntered counts and logs a client that did not get as far as its first command.
func (g *Gate) notEntered(from net.Addr, err error) {
	if errors.Is(err, errSilent) {
		return // somebody checks whether the port is open
	}
	telemetry.EntriesFailed.Add(1)
	g.log.Warn("client closed before its first command", "client", from.String(), "error", err)
	g.o.Events.Add(events.Event{At: time.Now(), Kind: events.Refusal, Client: events.Client{Addr: from.String()}, Reason: err.Error()})
}

// proxiedConn is a connection whose first bytes have been read, and whose addresses a balancer told.
type proxiedConn struct {
	net.Conn
	rest          []byte
	remote, local net.Addr // nil: the connection's own
}

func (c *proxiedConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil // and the buffer it is in
	}
	return n, nil
}

func (c *proxiedConn) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

func (c *proxiedConn) LocalAddr() net.Addr {
	if c.local != nil {
		return c.local
	}
	return c.Conn.LocalAddr()
}

// writeTimeout is for writes that TLS makes by itself.
const writeTimeout = 30 * time.Second

// deadlineRenewer renews a write deadline that has passed. TLS writes by itself while it reads, to answer a change of
// keys, long after Conn's last write and its deadline; one such failure would be the end of the connection.
type deadlineRenewer struct {
	net.Conn
	due atomic.Int64 // the write deadline in unix nanoseconds; 0: none
}

func (c *deadlineRenewer) Write(p []byte) (int, error) {
	if due := c.due.Load(); due != 0 && due < time.Now().UnixNano() {
		c.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	return c.Conn.Write(p)
}

func (c *deadlineRenewer) SetWriteDeadline(t time.Time) error {
	due := int64(0)
	if !t.IsZero() {
		due = t.UnixNano()
	}
	c.due.Store(due)
	return c.Conn.SetWriteDeadline(t)
}

// NetConn is for tcpOf.
func (c *proxiedConn) NetConn() net.Conn { return c.Conn }

// NetConn is for tcpOf.
func (c *deadlineRenewer) NetConn() net.Conn { return c.Conn }

// closeNow closes the connection without TLS' close_notify: a client that does not read could make the caller wait for
// it.
func closeNow(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	c.Close()
}
