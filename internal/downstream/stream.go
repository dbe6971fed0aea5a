package downstream

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// stream is a client's socket. It remembers why the kernel has ended the connection.
//
// The kernel says that only once: to who reads or writes first. To the other one it looks as if the client had ended
// it: the end of the stream, or a broken pipe. So whoever hears the reason notes it within that call, and whoever does
// not looks for it, after the other one's call. That call ends at once, since nobody waits at a connection that has
// ended both ways.
type stream struct {
	net.Conn
	reading, writing sync.Mutex // held during a call of Read, and of Write

	mu    sync.Mutex // guards noted
	noted error      // the reason that the kernel has given
}

// Read implements net.Conn.
func (s *stream) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	n, err := s.Conn.Read(p)
	s.noteErrno(err)
	return n, err
}

// Write implements net.Conn.
func (s *stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	n, err := s.Conn.Write(p)
	s.noteErrno(err)
	return n, err
}

// noteErrno keeps the reason that the kernel gives in err, if it gives one.
func (s *stream) noteErrno(err error) {
	var reason syscall.Errno
	if err == nil || !errors.As(err, &reason) || reason == syscall.EPIPE {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noted == nil {
		s.noted = err
	}
}

// reason is what was noted by who was calling, else err.
func (s *stream) reason(calling *sync.Mutex, err error) error {
	calling.Lock() // after that call
	defer calling.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noted != nil {
		return s.noted
	}
	return err
}

// readEnd says from a read's error whether the client has gone or we have given it up, and why.
func (s *stream) readEnd(err error) (How, string) {
	if socket := socketOf(s.Conn); endOfStream(err) && socket != nil && endedBothWays(socket) {
		err = s.reason(&s.writing, err)
	}
	return howEnded(err)
}

// writeEnd is readEnd of a write's error.
func (s *stream) writeEnd(err error) (How, string) {
	if errors.Is(err, syscall.EPIPE) && tcpOf(s.Conn) != nil { // another kind of socket may still be read
		err = s.reason(&s.reading, err)
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

// tcpOf is the TCP connection that c is put around, nil if there is none.
func tcpOf(c net.Conn) *net.TCPConn {
	tcp, _ := socketOf(c).(*net.TCPConn)
	return tcp
}

// socketOf is the socket that c is put around, nil if there is none.
func socketOf(c net.Conn) syscall.Conn { return within[syscall.Conn](c) }

// closeWrite ends the stream to the peer of c.
func closeWrite(c net.Conn) {
	if half := within[interface{ CloseWrite() error }](c); half != nil {
		half.CloseWrite()
	}
}

// within is the first of c, and of what it is put around, that is a T; the zero T if there is none.
func within[T any](c net.Conn) (found T) {
	for {
		if t, is := c.(T); is {
			return t
		}
		around, is := c.(interface{ NetConn() net.Conn })
		if !is {
			return found
		}
		c = around.NetConn()
	}
}
