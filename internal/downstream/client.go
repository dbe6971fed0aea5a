package downstream

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// Client is the session behind a connection, as far as the connection must know it. The goroutine that reads calls its methods;
// Subscribed and MayIdle may be called by any goroutine that writes, too.
type Client interface {
	FlushReplies()          // a protocol error ends the connection: replies that are pending are to be written now
	End()                   // the connection is over
	Attend()                // WakeToAttend was called, and no command is at work
	MustAuthenticate() bool // Redis asks for a password, and this client has not sent one
	MayLeave() bool         // a drain may close it
	MayIdle() bool          // it may be silent for as long as it likes
	Subscribed() bool       // its class of output limit is that of subscribers
	Ahead(begun []byte)     // begun is what the client has sent after the present command, while it is watched
}

// Client is the session that Admit made for the connection.
func (c *Conn) Client() Client { return c.client }

// Addr is the client's address as Redis writes it.
func (c *Conn) Addr() string { return c.addr }

// CertificateName is the common name in the client's certificate, which has been verified; "": there is no certificate, or not
// exactly one name.
func (c *Conn) CertificateName() string {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return ""
	}
	if state := secure.ConnectionState(); len(state.VerifiedChains) > 0 {
		return onlyName(state.VerifiedChains[0][0].Subject)
	}
	return ""
}

// onlyName is the common name of a subject that has exactly one: of several, each program would take another one.
func onlyName(subject pkix.Name) (name string) {
	names := 0
	for _, part := range subject.Names {
		if part.Type.Equal(commonName) {
			names++
		}
	}
	if names == 1 {
		return subject.CommonName
	}
	return ""
}

var commonName = asn1.ObjectIdentifier{2, 5, 4, 3}

// LocalName is the address that the client has connected to, as Redis writes it.
func (c *Conn) LocalName() string { return c.laddr }

// Unix says that the client came by a unix socket.
func (c *Conn) Unix() bool { return c.LocalAddr().Network() == "unix" }

// Local says that the client is on this machine, as Redis' protected mode sees it: it came by a unix socket or from a loopback
// address, and so did the balancer that named the address.
func (c *Conn) Local() bool { return c.local }

// IsLocal says that addr is a unix socket's or a loopback address.
func IsLocal(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.AddrPort().Addr().Unmap().IsLoopback()
}

// Opened is when the connection was accepted.
func (c *Conn) Opened() time.Time { return c.opened }

// Over says that the connection has ended.
func (c *Conn) Over() bool { return c.ending.over.Load() }

// SetLimits bounds the commands that come from now on. The goroutine that reads calls it.
func (c *Conn) SetLimits(l resp.Limits) {
	c.read.small.Store(l == resp.UnauthenticatedLimits)
	c.in.SetLimits(l)
}

// renewLimits puts the gate's limits of commands in force if they may have changed. Who reads calls it, before the Reader looks at what
// it has read.
func (c *Conn) renewLimits() {
	if b := c.gate.bounds.Load(); b != c.read.judged && !c.read.small.Load() {
		c.read.judged = b
		c.in.SetLimits(b.Commands)
	}
}

// CloseNow closes the socket without waiting for anything.
func (c *Conn) CloseNow() { closeNow(c.Conn) }

// unreadWait is how long Finish reads on.
const unreadWait = 10 * time.Millisecond

// Finish ends the stream to the client, and reads what it has sent meanwhile: a socket that is closed with bytes unread is
// reset, and the client may then lose replies it has not read yet. The goroutine that reads calls it, before Close.
func (c *Conn) Finish() {
	c.dropAhead()
	closeWrite(c.Conn)
	c.Conn.SetReadDeadline(time.Now().Add(unreadWait)) // it also ends the reading from a client that never stops sending
	var err error
	for rest := make([]byte, 4<<10); err == nil; {
		_, err = c.Conn.Read(rest)
	}
}

// CloseAccounts gives back what a client that has gone had drawn from the budgets. The connection is closed.
func (c *Conn) CloseAccounts() {
	c.dropAhead()
	c.gate.queries.set(&c.read.account, 0)
	c.gate.replies.set(&c.write.account, 0)
}

// LeavePlace makes room for another client.
func (c *Conn) LeavePlace() { c.gate.leavePlace(c.place) }

// ends names both ends of a connection as Redis does: a unix socket's are its path with port 0.
func ends(remote, local net.Addr) (addr, laddr string) {
	if local.Network() == "unix" {
		path := local.String() + ":0"
		return path, path
	}
	return remote.String(), local.String()
}
