package downstream

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// The kernel says only once why it has ended a connection: to who reads or writes first. To the other one it looks as if the client had ended
// it: the end of the stream, or a broken pipe. So whoever hears the reason notes it within that call, and whoever does not looks for it, after
// the other one's call. That call ends at once, since nobody waits at a connection that has ended both ways.

// readSocket reads from the client.
func (c *Conn) readSocket(p []byte) (int, error) {
	c.read.calling.Lock()
	defer c.read.calling.Unlock()
	n, err := c.Conn.Read(p)
	c.ending.note(err)
	return n, err
}

// writeSocket writes to the client.
func (c *Conn) writeSocket(p []byte) (int, error) {
	c.write.calling.Lock()
	defer c.write.calling.Unlock()
	n, err := c.Conn.Write(p)
	c.ending.note(err)
	return n, err
}

// note keeps the reason that the kernel gives in err, if it gives one.
func (e *ending) note(err error) {
	var reason syscall.Errno
	if err == nil || !errors.As(err, &reason) || reason == syscall.EPIPE {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.noted == nil {
		e.noted = err
	}
}

// reason is what was noted by who was calling, else err.
func (e *ending) reason(calling *sync.Mutex, err error) error {
	calling.Lock() // after that call
	defer calling.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.noted != nil {
		return e.noted
	}
	return err
}

// readEnd says from a read's error whether the client has gone or we have given it up, and why.
func (c *Conn) readEnd(err error) (How, string) {
	if socket := socketOf(c.Conn); endOfStream(err) && socket != nil && endedBothWays(socket) {
		err = c.ending.reason(&c.write.calling, err)
	}
	return howEnded(err)
}

// writeEnd is readEnd of a write's error.
func (c *Conn) writeEnd(err error) (How, string) {
	if errors.Is(err, syscall.EPIPE) && tcpOf(c.Conn) != nil { // another kind of socket may still be read
		err = c.ending.reason(&c.read.calling, err)
	}
	if how, why := howEnded(err); how == Gone || errors.Is(err, syscall.ETIMEDOUT) {
		return how, why
	}
	return Left, "output not taken: " + err.Error()
}

func endOfStream(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) // the latter within a TLS record
}

func howEnded(err error) (How, string) {
	switch {
	case endOfStream(err):
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
