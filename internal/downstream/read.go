package downstream

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	progressWindow = 30 * time.Second // an unfinished command must grow by progressBytes in each, or end
	progressBytes  = 16 << 10
)

var past = time.Unix(1, 0)

// wokenError ends a read that somebody asked to end. resp.Reader takes it for a timeout, and goes on later.
type wokenError struct{}

func (wokenError) Error() string { return "downstream: read given up on request" }
func (wokenError) Timeout() bool { return true }

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
	account account     // in Gate.queries
	judged  *Bounds     // whose limits of commands hold; nil: the first ones
	small   atomic.Bool // resp.UnauthenticatedLimits hold instead; others may ask

	ahead   ahead
	calling sync.Mutex // held while the socket is read
}

// source is the socket as resp.Reader sees it, behind what was read ahead: each read with the deadline of the moment.
type source struct{ c *Conn }

func (s source) Read(p []byte) (int, error) {
	c := s.c
	for {
		if err := c.arm(); err != nil {
			return 0, err
		}
		n, err := c.readNext(p)
		if n > 0 {
			c.read.grown += n
			c.renewLimits()
			return n, nil
		}
		if err == nil || c.woken(err) {
			continue
		}
		c.HangUp(c.readEnd(err))
		return 0, err
	}
}

// arm sets the read deadline that applies now. An error says that there is to be no read.
func (c *Conn) arm() error {
	c.gate.queries.set(&c.read.account, c.in.Unfinished())
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	for {
		if c.read.ahead.done != nil {
			c.haltAhead()
		} else if !c.read.watching && c.attend.Load() && c.attend.Swap(false) {
			c.read.mu.Unlock()
			c.client.Attend()
			c.read.mu.Lock()
		} else {
			break
		}
	}
	if c.ending.over.Load() { // under read.mu, so that drop's deadline is the last one
		return errOver
	}
	if c.read.watching {
		if c.read.waking {
			return wokenError{}
		}
		c.beginRead(time.Time{})
		return nil
	}
	if c.gate.draining.Load() && c.in.Unfinished() == 0 && c.client.MayLeave() {
		c.HangUp(Left, "drained")
		return errOver
	}
	c.read.due = c.nextDue()
	c.beginRead(c.read.due)
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
