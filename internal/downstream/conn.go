package downstream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	progressWindow = 30 * time.Second // an unfinished command must grow by progressBytes in each, or end
	progressBytes  = 16 << 10
	pieceBytes     = 64 << 10 // of a reply, in one write
)

var (
	errOver = errors.New("downstream: connection is over")
	past    = time.Unix(1, 0)
)

// wokenError ends a read that somebody asked to end. resp.Reader takes it for a timeout, and goes on later.
type wokenError struct{}

func (wokenError) Error() string { return "downstream: read given up on request" }
func (wokenError) Timeout() bool { return true }

// Conn is a client's connection as redcon reads and writes it: only whole, bounded, well-formed commands go in, and
// only whole replies and pushes come out. It owns the deadlines, and remembers why the connection ended.
type Conn struct {
	net.Conn // the client's socket
	gate     *Gate
	client   Client
	in       *resp.Reader

	local       bool   // the client is on this machine
	addr, laddr string // as Redis writes them
	place       place  // given back by LeavePlace

	opened  time.Time
	came    bool      // a first whole command has come
	outside time.Time // since when the first command, or the authentication, has been waited for; zero: neither is

	attend atomic.Bool // Client.Attend is to be called
	read   readSide
	write  writeSide
	ending ending
}

// readSide is how a Conn reads: what ends the read in progress.
type readSide struct {
	mu       sync.Mutex // guards all below but for what is the reading goroutine's
	due      time.Time  // when the read in progress counts as too late; zero: never
	armed    time.Time  // the deadline the socket has now
	watching bool       // a verb waits: reads only look for the client's end
	waking   bool       // that look is to end now
	idling   bool       // due is the idle time-out, which does not end clients that may idle
	grown    int        // bytes of the unfinished command in this window
	window   time.Time  // the window's end; zero: no command is unfinished

	// The reading goroutine's.
	account account // in Gate.queries
	judged  *Bounds // whose limits of commands hold; nil: the first ones
	small   bool    // resp.UnauthenticatedLimits hold instead
}

// writeSide is how a Conn writes.
type writeSide struct {
	mu sync.Mutex // one writer at a time, for whole frames: see frames.go

	arm  sync.Mutex // guards all below but for account
	held int        // bytes that the write in progress, and those behind it, have yet to write; 0: nobody writes
	due  time.Time  // the write deadline the socket has now
	soft time.Time  // since when more is held than the soft limit allows; zero: it is not

	account        account     // in Gate.replies; used by the client's goroutine or, while that waits for a pipe, by the pipe's reader
	unacknowledged atomic.Bool // something was written since the last look at its acknowledgement
	dropped        atomic.Bool // over, and nothing more is to be written
}

// ending is how a Conn ended.
type ending struct {
	over  atomic.Bool
	mu    sync.Mutex // guards all below
	how   How
	why   string
	onEnd func() // cancels what the client waits for

	ctx  context.Context // of Context; nil: it has not been asked for
	stop context.CancelFunc
}

func newConn(e entrant, g *Gate) *Conn {
	c := &Conn{Conn: e.conn, gate: g, opened: e.since, outside: e.since, local: e.local(), place: e.place}
	c.in = resp.NewReader(source{c}, resp.Limits{})
	c.SetLimits(g.o.Limits())
	c.addr, c.laddr = ends(c.RemoteAddr(), c.LocalAddr())
	c.read.account = account{drop: c.drop, addr: c.addr}
	c.write.account = account{drop: c.drop, addr: c.addr}
	return c
}

// Read gives redcon the next commands. When the connection is over it ends the client first: every pending reply
// has come by then, because commands are worked off in redcon's own goroutine.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.ending.over.Load() {
		n, err := c.in.Read(p)
		if n > 0 {
			return n, nil
		}
		var bad *resp.ProtocolError
		if errors.As(err, &bad) {
			c.client.FlushReplies()
			c.Write(resp.AppendError(nil, "ERR "+bad.Error()))
			c.HangUp(Left, bad.Error())
		}
	}
	c.client.End()
	return 0, io.EOF
}

// source is the socket as resp.Reader sees it: each read with the deadline of the moment.
type source struct{ c *Conn }

func (s source) Read(p []byte) (int, error) {
	c := s.c
	for {
		if err := c.arm(); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if n > 0 {
			c.read.grown += n
			c.renewLimits()
			return n, nil
		}
		if err == nil || c.woken(err) {
			continue
		}
		c.HangUp(readEnd(err))
		return 0, err
	}
}

// arm sets the read deadline that applies now. An error says that there is to be no read.
func (c *Conn) arm() error {
	c.gate.queries.set(&c.read.account, c.in.Unfinished())
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	for !c.read.watching && c.attend.Load() && c.attend.Swap(false) {
		c.read.mu.Unlock()
		c.client.Attend()
		c.read.mu.Lock()
	}
	if c.ending.over.Load() { // under read.mu, so that drop's deadline is the last one
		return errOver
	}
	if c.read.watching {
		if c.read.waking {
			return wokenError{}
		}
		c.setReadDeadline(time.Time{})
		return nil
	}
	if c.gate.draining.Load() && c.in.Unfinished() == 0 && c.client.MayLeave() {
		c.HangUp(Left, "drained")
		return errOver
	}
	c.read.due = c.nextDue()
	c.setReadDeadline(c.read.due)
	return nil
}

// nextDue is the earliest of the hand-shake's, the idle, and the unfinished command's deadline. read.mu is held.
func (c *Conn) nextDue() (due time.Time) {
	c.read.idling = false
	due = c.handshakeDue()
	unfinished := c.in.Unfinished() > 0
	if !unfinished {
		c.read.window = time.Time{}
		if idle := c.gate.bounds.Load().IdleTimeout; idle > 0 {
			at := time.Now().Add(idle)
			c.read.idling = due.IsZero() || at.Before(due)
			due = earlier(due, at)
		}
		return due
	}
	if c.read.window.IsZero() || c.read.grown >= progressBytes {
		c.read.window, c.read.grown = time.Now().Add(progressWindow), 0
	}
	return earlier(due, c.read.window)
}

// handshakeDue is when the client must have sent its first whole command and, where Redis asks for a password, have
// authenticated; zero: it has, or there is no limit. A client that must authenticate anew, for example after RESET, has the
// whole time again.
func (c *Conn) handshakeDue() time.Time {
	switch { // also while there is no limit, because one may be set later
	case c.came && !c.client.MustAuthenticate():
		c.outside = time.Time{}
		return time.Time{}
	case c.outside.IsZero():
		c.outside = time.Now()
	}
	if limit := c.gate.bounds.Load().HandshakeTimeout; limit > 0 {
		return c.outside.Add(limit)
	}
	return time.Time{}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// woken says that a read ended only because the reader was to be woken, and no deadline has really passed.
func (c *Conn) woken(err error) bool {
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || errors.Is(err, syscall.ETIMEDOUT) {
		return false
	}
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	return c.read.watching || c.read.idling && c.client.MayIdle() || c.read.due.IsZero() || time.Now().Before(c.read.due)
}

// setReadDeadline is called with read.mu held.
func (c *Conn) setReadDeadline(t time.Time) {
	if t.Equal(c.read.armed) {
		return
	}
	c.read.armed = t
	c.Conn.SetReadDeadline(t)
}

// CommandCame notes that the client has sent a whole command: what it has begun since gets a window of its own.
func (c *Conn) CommandCame() {
	c.came = true
	c.read.mu.Lock()
	c.read.window = time.Time{}
	c.read.mu.Unlock()
}

// Wake makes the goroutine that waits for the client's next command check whether to go on, for example at the start of a drain.
func (c *Conn) Wake() {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	if !c.read.watching {
		c.setReadDeadline(past)
	}
}

// WakeToAttend makes the goroutine that reads call the client's Attend, as soon as it is between two reads. It never blocks.
func (c *Conn) WakeToAttend() {
	c.attend.Store(true)
	c.Wake()
}

// writeLocked writes p. behind is how many more bytes are held for the client, which count for the output limits. write.mu is
// held. It writes in pieces, each with its own deadline, so that a client that reads a long reply slowly is not taken for one
// that does not read.
func (c *Conn) writeLocked(p []byte, behind int) (written int, err error) {
	for written < len(p) && err == nil {
		if err = c.armWrite(len(p) - written + behind); err != nil {
			break
		}
		var n int
		c.noteUnacknowledged() // for a write that blocks
		n, err = c.Conn.Write(p[written:min(len(p), written+pieceBytes)])
		written += n
		c.noteUnacknowledged()
		if errors.Is(err, os.ErrDeadlineExceeded) && !c.write.dropped.Load() && (n > 0 || c.softIsOver()) {
			err = nil // armWrite sets the next deadline, or has the better reason
		}
	}
	c.writeOver(behind)
	if err != nil {
		c.Cut(writeEnd(err))
	}
	return written, err
}

func (c *Conn) noteUnacknowledged() {
	if !c.write.unacknowledged.Load() {
		c.write.unacknowledged.Store(true)
	}
}

// armWrite sets the deadline for the next piece while held bytes are not written.
func (c *Conn) armWrite(held int) error {
	c.write.arm.Lock()
	defer c.write.arm.Unlock()
	c.write.held = held
	due, err := c.writeDue(held, time.Now())
	if errors.Is(err, errOutput) && c.write.dropped.CompareAndSwap(false, true) {
		telemetry.OutputDropped.Add(1)
		return err
	}
	if err == nil && !due.Equal(c.write.due) {
		c.write.due = due
		c.Conn.SetWriteDeadline(due)
	}
	if c.write.dropped.Load() { // after the deadline was set: drop's is then the last one
		return errOver
	}
	return err
}

// HangUp notes the end of the connection, and wakes what the client waits for. Only the first call gives the
// reason. The socket stays open for replies already due.
func (c *Conn) HangUp(how How, why string) {
	c.ending.mu.Lock()
	defer c.ending.mu.Unlock()
	if c.ending.over.Load() {
		return
	}
	c.ending.how, c.ending.why = how, why
	c.ending.over.Store(true)
	if c.ending.ctx != nil {
		c.ending.stop()
	}
	if c.ending.onEnd != nil {
		c.ending.onEnd()
	}
}

// Cut ends the connection at once, whatever the client is doing.
func (c *Conn) Cut(how How, why string) {
	c.HangUp(how, why)
	closeNow(c.Conn)
}

// WhenOver makes the end of the connection call f, at once if it is over already; nil takes that back.
func (c *Conn) WhenOver(f func()) {
	c.ending.mu.Lock()
	defer c.ending.mu.Unlock()
	c.ending.onEnd = f
	if f != nil && c.ending.over.Load() {
		f()
	}
}

// Ending is how and why the connection ended.
func (c *Conn) Ending() (How, string) {
	c.ending.mu.Lock()
	defer c.ending.mu.Unlock()
	return c.ending.how, c.ending.why
}

// readEnd says from a read's error whether the client has gone or we have given it up, and why.
func readEnd(err error) (How, string) {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the latter within a TLS record
		return Gone, "end of stream"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Gone, "reset by the client"
	case errors.Is(err, syscall.ETIMEDOUT):
		return Left, "no sign of life"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return Left, "read timeout"
	}
	return Left, err.Error()
}

func writeEnd(err error) (How, string) {
	if how, why := readEnd(err); how == Gone {
		return how, why
	}
	return Left, "output not taken: " + err.Error()
}

// Context is the context that ends with the connection, or with parent, which is the same each time. It is made once: to make one for each
// command would cost more than the rest of that command's way to a node.
func (c *Conn) Context(parent context.Context) context.Context {
	c.ending.mu.Lock()
	defer c.ending.mu.Unlock()
	if c.ending.ctx == nil {
		c.ending.ctx, c.ending.stop = context.WithCancel(parent)
		if c.ending.over.Load() {
			c.ending.stop()
		}
	}
	return c.ending.ctx
}
