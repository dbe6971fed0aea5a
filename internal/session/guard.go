package session

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	progressWindow = 30 * time.Second // an unfinished command must grow by progressBytes in each, or end
	progressBytes  = 16 << 10
)

var (
	errOver = errors.New("session: connection is over")
	past    = time.Unix(1, 0)
)

// wokenError ends a read ahead on request: a timeout to resp.Reader, which goes on later.
type wokenError struct{}

func (wokenError) Error() string { return "session: read given up on request" }
func (wokenError) Timeout() bool { return true }

// guard is the connection redcon reads and writes: whole, bounded, well-formed commands only go in, whole replies
// and pushes only come out. It owns the deadlines, and remembers why the connection ended.
type guard struct {
	net.Conn // the client's socket
	srv      *Server
	sess     *Session
	in       *resp.Reader

	opened time.Time
	ready  bool // a first whole command has come

	rmu      sync.Mutex // the read side's deadline and mode
	due      time.Time  // when the read in progress counts as too late; zero: never
	armed    time.Time  // the deadline the socket has now
	watching bool       // a verb waits: reads only look for the client's end
	waking   bool       // that look is to end now
	idling   bool       // due is about idleness: when it has come, those who may idle are only looked at again
	grown    int        // bytes of the unfinished command in this window
	window   time.Time  // the window's end; zero: no command is unfinished

	wmu  sync.Mutex // one writer at a time
	wdue time.Time  // the write deadline the socket has now
	soft time.Time  // since when more is held than the soft limit allows; zero: it is not

	query   account     // in srv.queries, the reading goroutine's
	reply   account     // in srv.replies, the session's or while that waits for a pipe, its reader's
	owes    atomic.Bool // something was written since the last look at its acknowledgement
	dropped atomic.Bool // over, and nothing more is to be written

	over  atomic.Bool
	endMu sync.Mutex // guards how it ended
	how   lock.CloseHow
	why   string
	onEnd func() // cancels what the session waits for
}

func newGuard(raw net.Conn, s *Server) *guard {
	g := &guard{Conn: raw, srv: s, opened: time.Now()}
	g.in = resp.NewReader(source{g}, s.limitsFor(false))
	return g
}

// Read gives redcon the next commands. When the connection is over it ends the session first: every reply owed is
// in by then, because the session works in redcon's own goroutine.
func (g *guard) Read(p []byte) (int, error) {
	if !g.over.Load() {
		n, err := g.in.Read(p)
		if n > 0 {
			return n, nil
		}
		var bad *resp.ProtocolError
		if errors.As(err, &bad) {
			g.sess.lastWord()
			g.Write(resp.AppendError(nil, "ERR "+bad.Error()))
			g.hangUp(lock.Left, bad.Error())
		}
	}
	g.sess.end()
	return 0, io.EOF
}

// source is the socket as resp.Reader sees it: each read with the deadline of the moment.
type source struct{ g *guard }

func (s source) Read(p []byte) (int, error) {
	g := s.g
	for {
		if err := g.arm(); err != nil {
			return 0, err
		}
		n, err := g.Conn.Read(p)
		if n > 0 {
			g.grown += n
			return n, nil
		}
		if err == nil || g.woken(err) {
			continue
		}
		g.hangUp(readEnd(err))
		return 0, err
	}
}

// arm sets the read deadline that fits, and says when there is nothing to read for any more.
func (g *guard) arm() error {
	g.srv.queries.set(&g.query, g.in.Unfinished())
	g.rmu.Lock()
	defer g.rmu.Unlock()
	for !g.watching && g.sess.wish.Load() != nil {
		g.rmu.Unlock()
		g.sess.grantWish()
		g.rmu.Lock()
	}
	if g.over.Load() { // under rmu, so that drop's deadline is the last one
		return errOver
	}
	if g.watching {
		if g.waking {
			return wokenError{}
		}
		g.setReadDeadline(time.Time{})
		return nil
	}
	if g.srv.draining.Load() && g.in.Unfinished() == 0 && g.sess.held() == 0 && !g.sess.view.busy() {
		g.hangUp(lock.Left, "drained")
		return errOver
	}
	g.due = g.nextDue()
	g.setReadDeadline(g.due)
	return nil
}

// nextDue is the earliest of the hand-shake's, the idle, and the unfinished command's deadline. rmu is held.
func (g *guard) nextDue() (due time.Time) {
	g.idling = false
	if !g.ready && g.srv.o.HandshakeTimeout > 0 {
		due = g.opened.Add(g.srv.o.HandshakeTimeout)
	}
	unfinished := g.in.Unfinished() > 0
	if !unfinished {
		g.window = time.Time{}
		if idle := g.srv.o.IdleTimeout; idle > 0 {
			g.idling = true
			due = earlier(due, time.Now().Add(idle))
		}
		return due
	}
	if g.window.IsZero() || g.grown >= progressBytes {
		g.window, g.grown = time.Now().Add(progressWindow), 0
	}
	return earlier(due, g.window)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// woken tells a deadline set to wake the reader from one that has really passed.
func (g *guard) woken(err error) bool {
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || errors.Is(err, syscall.ETIMEDOUT) {
		return false
	}
	g.rmu.Lock()
	defer g.rmu.Unlock()
	return g.watching || g.idling && g.mayIdle() || g.due.IsZero() || time.Now().Before(g.due)
}

// setReadDeadline is called with rmu held.
func (g *guard) setReadDeadline(t time.Time) {
	if t.Equal(g.armed) {
		return
	}
	g.armed = t
	g.Conn.SetReadDeadline(t)
}

// commandCame notes that the client has sent a whole command: what it has begun since gets a window of its own.
func (g *guard) commandCame() {
	g.ready = true
	g.rmu.Lock()
	g.window = time.Time{}
	g.rmu.Unlock()
}

// poke makes a session that waits for its client's next command look around, as at the start of a drain.
func (g *guard) poke() {
	g.rmu.Lock()
	defer g.rmu.Unlock()
	if !g.watching {
		g.setReadDeadline(past)
	}
}

// Write sends whole replies. It swallows redcon's empty flushes.
func (g *guard) Write(p []byte) (int, error) { return g.write(p, 0) }

// write is Write of what has behind more bytes held behind it.
func (g *guard) write(p []byte, behind int) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	g.wmu.Lock()
	defer g.wmu.Unlock()
	return g.writeLocked(p, behind)
}

// writeLocked is write for a caller that holds wmu over the pieces of one reply. It writes in pieces, each with its own
// deadline, so that a client that reads a long reply slowly is not taken for one that does not read.
func (g *guard) writeLocked(p []byte, behind int) (written int, err error) {
	for written < len(p) && err == nil {
		if err = g.armWrite(len(p) - written + behind); err != nil {
			break
		}
		var n int
		g.noteOwes() // for a write that blocks
		n, err = g.Conn.Write(p[written:min(len(p), written+flushAt)])
		written += n
		g.noteOwes()
		if errors.Is(err, os.ErrDeadlineExceeded) && !g.dropped.Load() && (n > 0 || g.softIsOver()) {
			err = nil // armWrite goes on, or has the better reason
		}
	}
	if behind == 0 {
		g.soft = time.Time{}
	}
	if err != nil {
		g.cut(writeEnd(err))
	}
	return written, err
}

func (g *guard) noteOwes() {
	if !g.owes.Load() {
		g.owes.Store(true)
	}
}

// armWrite sets the deadline for the next piece while held bytes are not written.
func (g *guard) armWrite(held int) error {
	due, err := g.writeDue(held, time.Now())
	if errors.Is(err, errOutput) && g.dropped.CompareAndSwap(false, true) {
		telemetry.OutputDropped.Add(1)
		return err
	}
	if err == nil && !due.Equal(g.wdue) {
		g.wdue = due
		g.Conn.SetWriteDeadline(due)
	}
	if g.dropped.Load() { // after the deadline was set: drop's is then the last one
		return errOver
	}
	return err
}

// hangUp notes the end of the connection, whose reason is the first one given, and wakes what the session waits
// for. The socket stays open for replies already due.
func (g *guard) hangUp(how lock.CloseHow, why string) {
	g.endMu.Lock()
	defer g.endMu.Unlock()
	if g.over.Load() {
		return
	}
	g.how, g.why = how, why
	g.over.Store(true)
	if g.onEnd != nil {
		g.onEnd()
	}
}

// cut ends the connection at once, whatever the session is doing.
func (g *guard) cut(how lock.CloseHow, why string) {
	g.hangUp(how, why)
	closeNow(g.Conn)
}

// whenOver has f called at the end of the connection, at once if it is over already; nil takes the call back.
func (g *guard) whenOver(f func()) {
	g.endMu.Lock()
	defer g.endMu.Unlock()
	g.onEnd = f
	if f != nil && g.over.Load() {
		f()
	}
}

func (g *guard) ending() (lock.CloseHow, string) {
	g.endMu.Lock()
	defer g.endMu.Unlock()
	return g.how, g.why
}

// readEnd sorts what ended the reading: has the client gone, or have we given it up?
func readEnd(err error) (lock.CloseHow, string) {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the latter within a TLS record
		return lock.Gone, "end of stream"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return lock.Gone, "reset by the client"
	case errors.Is(err, syscall.ETIMEDOUT):
		return lock.Left, "no sign of life"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return lock.Left, "read timeout"
	}
	return lock.Left, err.Error()
}

func writeEnd(err error) (lock.CloseHow, string) {
	if how, why := readEnd(err); how == lock.Gone {
		return how, why
	}
	return lock.Left, "output not taken: " + err.Error()
}
