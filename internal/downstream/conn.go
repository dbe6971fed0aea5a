package downstream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const pieceBytes = 64 << 10 // of a reply, in one write

var errOver = errors.New("downstream: connection is over")

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

// writeSide is how a Conn writes.
type writeSide struct {
	mu sync.Mutex // one writer at a time, for whole frames: see frames.go

	arm   sync.Mutex // guards all below but for account
	held  int        // bytes that the write in progress, and those behind it, have yet to write; 0: nobody writes
	since time.Time  // when the piece that is being written was begun
	ahead bool       // the client may be read ahead until the write is over
	due   time.Time  // the write deadline the socket has now
	soft  time.Time  // since when more is held than the soft limit allows; zero: it is not

	account        account     // in Gate.replies; used by the client's goroutine or, while that waits for a pipe, by the pipe's reader
	unacknowledged atomic.Bool // something was written since the last look at its acknowledgement
	dropped        atomic.Bool // over, and nothing more is to be written
	calling        sync.Mutex  // held while the socket is written to
}

// ending is how a Conn ended.
type ending struct {
	over  atomic.Bool
	mu    sync.Mutex // guards all below
	how   How
	why   string
	onEnd func() // cancels what the client waits for
	noted error  // the reason that the kernel has given

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
	c.read.ahead.account = account{drop: c.drop, addr: c.addr}
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
		n, err = c.writeSocket(p[written:min(len(p), written+pieceBytes)])
		written += n
		c.noteUnacknowledged()
		if errors.Is(err, os.ErrDeadlineExceeded) && !c.write.dropped.Load() && (n > 0 || c.softIsOver()) {
			err = nil // armWrite sets the next deadline, or has the better reason
		}
	}
	c.writeOver(behind)
	if err != nil {
		c.Cut(c.writeEnd(err))
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
	now := time.Now()
	c.write.held, c.write.since = held, now
	due, err := c.writeDue(held, now)
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
