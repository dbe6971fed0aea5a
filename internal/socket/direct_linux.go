//go:build !race

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// most is the longest read or write that the scheduler does not hear of: the kernel copies it in some 20 µs. Others would have to wait for a
// longer one.
const most = 64 << 10

// directConn is a socket whose short reads and writes are system calls that Go's scheduler does not hear of.
type directConn struct {
	net.Conn
	raw syscall.RawConn
	in  transfer
	out transfer
}

// transfer is one direction of a connection.
type transfer struct {
	mu    sync.Mutex // one at a time, as in package net
	call  uintptr    // the number of the system call
	whole bool       // it goes on until all bytes are through
	p     []byte
	n     int
	errno syscall.Errno
	step  func(fd uintptr) bool // of this transfer, so that it is made once
}

func direct(c net.Conn) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return c
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return c
	}
	d := &directConn{Conn: c, raw: raw}
	d.in.call, d.out.call, d.out.whole = syscall.SYS_READ, syscall.SYS_WRITE, true
	d.in.step, d.out.step = d.in.try, d.out.try
	return d
}

// NetConn is the connection of package net.
func (d *directConn) NetConn() net.Conn { return d.Conn }

func (d *directConn) plain() net.Conn { return d.Conn }

// CloseWrite ends the stream to the peer, as both kinds of socket do.
func (d *directConn) CloseWrite() error { return d.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// Read reads what has come, as net.Conn does.
func (d *directConn) Read(p []byte) (int, error) {
	if len(p) == 0 || len(p) > most {
		return d.Conn.Read(p)
	}
	n, err := d.in.transferAll(p, d.raw.Read)
	if err != nil {
		return n, d.named("read", err)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all of p, as net.Conn does.
func (d *directConn) Write(p []byte) (int, error) {
	if len(p) == 0 || len(p) > most {
		return d.Conn.Write(p)
	}
	n, err := d.out.transferAll(p, d.raw.Write)
	if err != nil {
		return n, d.named("write", err)
	}
	return n, nil
}

// named is an error as package net words it.
func (d *directConn) named(op string, err error) error {
	var of *net.OpError
	if errors.As(err, &of) {
		of.Op = op
		return of
	}
	return &net.OpError{Op: op, Net: d.LocalAddr().Network(), Source: d.LocalAddr(), Addr: d.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

// transferAll transfers p. wait calls step, and again whenever the socket is ready for more, until it returns true.
func (t *transfer) transferAll(p []byte, wait func(func(fd uintptr) bool) error) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p, t.n, t.errno = p, 0, 0
	err := wait(t.step)
	if t.p = nil; err == nil && t.errno != 0 {
		err = t.errno
	}
	return t.n, err
}

// try makes the system call, and returns false if the socket is not ready for more.
func (t *transfer) try(fd uintptr) bool {
	for {
		rest := t.p[t.n:]
		n, _, errno := syscall.RawSyscall(t.call, fd, uintptr(unsafe.Pointer(&rest[0])), uintptr(len(rest)))
		switch errno {
		case 0:
			t.n += int(n)
			if !t.whole || t.n == len(t.p) {
				return true
			}
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			t.errno = errno
			return true
		}
	}
}
