package upstream

import (
	"errors"
	"net"
	"sync/atomic"
)

// unsentError proves that a call never left: it comes from a connection that
// was not made, or carried nothing but its own handshake. Its cause is not
// unwrapped: rueidis would take a time-out inside it for the end of the
// caller's ctx, and replace it by an error that proves nothing.
type unsentError struct{ cause error }

func (e *unsentError) Error() string { return e.cause.Error() }

// NotSent says that err, from a call on a client of a Control, proves that no
// byte of the call was handed to the kernel.
//
// What rueidis v1.0.79 does, and why this is a proof. A client whose attempt to
// connect fails answers the waiting calls from a stand-in (mux.go, dead) with
// the very error of its dial function, or of the handshake; it has nothing to
// write to. Our dial function marks its own errors, and the connection it
// returns marks those that come before its second write: the first is the
// handshake, and after a marked error no write succeeds (controlConn).
//
// Everything else proves nothing. ErrClosing, io errors and time-outs go alike
// to calls that were written and calls that were not (pipe.go, _background);
// a context's error may come before or after the write. An error that Redis
// answered, the refusal of a handshake included, is no case of NotSent: it is
// an answer.
func NotSent(err error) bool {
	var unsent *unsentError
	return errors.As(err, &unsent)
}

// The states of a controlConn only go up.
const (
	fresh       int32 = iota // nothing written
	greeted                  // the handshake was written
	used                     // calls may have been written
	failedEarly              // ended before it was used: writes fail from here on
)

// controlConn marks errors before the first call as unsentError.
type controlConn struct {
	net.Conn
	of    *termConn
	state atomic.Int32
}

// errEarly answers writes after a marked error.
var errEarly = error(&unsentError{cause: errors.New("connection to Redis ended before its first use")})

// Write implements net.Conn. rueidis has one writer at a time.
func (c *controlConn) Write(p []byte) (int, error) {
	handshake := c.state.CompareAndSwap(fresh, greeted)
	if !handshake && !c.state.CompareAndSwap(greeted, used) && c.state.Load() == failedEarly {
		return 0, errEarly
	}
	n, err := c.Conn.Write(p)
	if handshake {
		err = c.mark(err)
	}
	return n, err
}

// Read implements net.Conn.
func (c *controlConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.of.lookAt(p[:n])
	return n, c.mark(err)
}

func (c *controlConn) mark(err error) error {
	if err == nil {
		return nil
	}
	for {
		now := c.state.Load()
		if now == used {
			return err
		}
		if c.state.CompareAndSwap(now, failedEarly) {
			return &unsentError{cause: err}
		}
	}
}
