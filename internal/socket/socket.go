// Package socket reads and writes sockets without telling Go's scheduler of each system call.
//
// A socket of Go's never makes a system call wait, because it is non-blocking. Go tells its scheduler nevertheless before each read and write, and
// a watching thread of the runtime (sysmon), which would take the processor away from a call that lasts, wakes every 20 µs as long as it finds
// such calls. For a proxy, which does little else than read and write, that was a fifth of its CPU time.
package socket

import (
	"io"
	"net"
	"syscall"
)

// Direct is c with reads and writes that the scheduler does not hear of, if c is a TCP or Unix socket and the system is one for which that is
// written; else c itself. What else is asked of the socket goes to c, which NetConn returns.
func Direct(c net.Conn) net.Conn { return direct(c) }

// Plain is the socket that Direct was given, if w comes from there: net.Buffers does a single writev on sockets of package net only.
func Plain(w io.Writer) io.Writer {
	if d, ok := w.(interface{ plain() net.Conn }); ok {
		return d.plain()
	}
	return w
}

// Silent says that nothing has come on a connection, neither a byte nor its end. It takes nothing from there, and may be
// asked while somebody reads. It is true of what is no socket of the system's.
func Silent(c net.Conn) bool {
	for {
		around, is := c.(interface{ NetConn() net.Conn })
		if !is {
			break
		}
		c = around.NetConn()
	}
	of, is := c.(syscall.Conn)
	if !is {
		return true
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	raw.Control(func(fd uintptr) { silent = nothingCame(fd) }) // after an error the connection is not silent
	return silent
}
