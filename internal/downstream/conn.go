package downstream

import (
	"errors"
	"io"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// Client is the session behind a connection, as far as the connection must know it. The goroutine that reads calls its
// methods; Subscribed and MayIdle may be called by any goroutine that writes, too.
type Client interface {
	End()               // the connection is over
	Notified()          // Notify was called, and no command is at work
	MayLeave() bool     // a drain may close it
	MayIdle() bool      // it may be silent for as long as it likes
	Subscribed() bool   // its class of output limit is that of subscribers
	Ahead(begun []byte) // begun is what the client has sent after the present command, while it is watched
}

// Conn is a client's connection as redcon reads and writes it: only whole, bounded, well-formed commands go in, and
// only whole replies and pushes come out. It joins its parts, of which each caller uses the one it means.
type Conn struct {
	stream
	Peer   Peer
	Place  *Place
	Reader Reader
	Writer Writer
	End    End
}

// newConn makes the connection of a client that is let in, and its session.
func newConn(e entrant, g *Gate) *Conn {
	c := &Conn{stream: stream{Conn: e.conn}, Peer: newPeer(e), Place: e.place}
	account := func(of *budget) Account { return Account{of: of, drop: c.dropFor, addr: c.Peer.Addr} }
	c.End.of = &c.stream
	c.Writer.to, c.Writer.end, c.Writer.bounds, c.Writer.drop = &c.stream, &c.End, &g.bounds, c.dropFor
	c.Writer.gathered = account(g.budgets.replies)
	c.Reader.from, c.Reader.end, c.Reader.out, c.Reader.gate = &c.stream, &c.End, &c.Writer, g
	c.Reader.unfinished, c.Reader.ahead.kept.account = account(g.budgets.queries), account(g.budgets.ahead)
	c.Reader.silence.outside = c.Peer.Opened
	c.Reader.guard = resp.NewReader(source{&c.Reader}, resp.Limits{})
	c.Reader.client = g.o.Admit(c)
	c.Writer.client = c.Reader.client
	return c
}

// Client is the session that Admit made for the connection.
func (c *Conn) Client() Client { return c.Reader.client }

// Read gives redcon the next commands. When the connection is over it ends the client first: every pending reply
// has come by then, because commands are worked off in redcon's own goroutine.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.End.Over() {
		n, err := c.Reader.guard.Read(p)
		if n > 0 {
			return c.Reader.keepRest(p[:n]), nil
		}
		var bad *resp.ProtocolError
		if errors.As(err, &bad) {
			c.Writer.Write(resp.AppendError(nil, "ERR "+bad.Error()))
			c.End.HangUp(Left, bad.Error())
		}
	}
	c.Client().End()
	return 0, io.EOF
}

// Write sends whole replies.
func (c *Conn) Write(p []byte) (int, error) { return c.Writer.Write(p) }

// BoundsChanged has the gate's present bounds hold for a read and a write that wait. It may be called by any goroutine,
// and never blocks.
func (c *Conn) BoundsChanged() {
	c.Reader.Wake()
	c.Writer.renewDeadline()
}

// dropFor ends the connection from another goroutine without waiting for anything, not even for TLS' close_notify: the
// client's own goroutine, woken if it reads or writes, closes it. What it gathers is thrown away.
func (c *Conn) dropFor(why string) {
	c.End.HangUp(Left, why)
	c.Reader.interrupt()
	c.Writer.stop()
}

// unreadWait is how long Finish reads on.
const unreadWait = 10 * time.Millisecond

// Finish ends the stream to the client, and reads what it has sent meanwhile: a socket that is closed with bytes unread
// is reset, and the client may then lose replies it has not read yet. The goroutine that reads calls it, before Close.
func (c *Conn) Finish() {
	c.Reader.dropAhead()
	closeWrite(c.Conn)
	c.SetReadDeadline(time.Now().Add(unreadWait)) // it also ends the reading from a client that never stops sending
	var err error
	for rest := make([]byte, 4<<10); err == nil; {
		_, err = c.Conn.Read(rest)
	}
}

// CloseAccounts gives back what a client that has gone had of the bounds for all clients. The connection is closed.
func (c *Conn) CloseAccounts() {
	c.Reader.dropAhead()
	c.Reader.unfinished.Set(0)
	c.Writer.gathered.Set(0)
}
