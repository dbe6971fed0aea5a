// Package checked stands between a connection to Redis and rueidis, and lets only replies through that it can take.
//
// rueidis believes a server. A length below zero makes it panic, as does a reply that nobody asked for, or one whose
// end it does not find where Redis meant it, in a goroutine of its own, which ends the process; a large number of
// elements has it take memory for all of them before one has come. So replies are given to rueidis whole, after a
// look at each, and a reply that Redis does not send ends the connection instead. Without this package
//
//	*-2\r\n      panic: runtime error: makeslice: len out of range (resp.go, readA)
//	+OK\r\n      panic: protocol bug, message handled out of order (pipe.go, _backgroundRead), if nothing was asked
//
// end the process; the tests have all that is known of. Where a reply ends is proto/resp's to say. What the check costs
// is a copy of what is read, and some 50 ns for each element of a reply (BenchmarkReplies).
package checked

import (
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	// maxBytes bounds a reply. Redis lets no value be longer than 512 MiB, and whoever may write to a lock's key can
	// have one there, of which the connection that all share must not end.
	maxBytes   = 513 << 20
	bufferSize = 16 << 10 // is kept for each connection
	readSize   = 4 << 10  // is read at once, or more
	headSize   = 64       // of a command is looked at: more than its verb and a short argument
)

// Conn is a connection whose replies are checked. One goroutine writes at a time, and one reads.
type Conn struct {
	net.Conn
	sent commands // Write's own
	// Read's own:
	buffer []byte       // is read into while a reply fits
	held   []byte       // what has come and was not given yet
	whole  int          // so many bytes of it are whole replies
	reply  resp.Scanner // stands at the end of held
	bad    error        // what was wrong with a reply; the connection cannot be read any more

	mu    sync.Mutex // guards asked, which Write and Read share
	asked account
}

// New returns conn with its replies checked.
func New(conn net.Conn) *Conn { return &Conn{Conn: conn, buffer: make([]byte, bufferSize)} }

// Write implements net.Conn. It notes the commands before they leave, since their replies may come before it returns.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.sent.takeWritten(p, &c.asked)
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Read implements net.Conn. Of what came before a bad reply all whole replies are given.
func (c *Conn) Read(p []byte) (int, error) {
	for c.whole == 0 {
		if c.bad != nil {
			return 0, c.bad
		}
		if len(c.held) == 0 {
			c.held = c.buffer[:0]
		}
		c.held = slices.Grow(c.held, readSize)
		n, err := c.Conn.Read(c.held[len(c.held):cap(c.held)])
		if n == 0 {
			return 0, err
		}
		if err := c.check(n); err != nil {
			c.bad = fmt.Errorf("protocol violation by Redis: %w", err)
		}
	}
	n := copy(p, c.held[:c.whole])
	c.held, c.whole = c.held[n:], c.whole-n
	return n, nil
}

// check looks at the next n bytes behind held.
func (c *Conn) check(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := len(c.held)
	c.held = c.held[:at+n]
	for at < len(c.held) {
		k, done, err := c.reply.Scan(c.held[at:])
		if err != nil {
			return err
		}
		if at += k; !done {
			break
		}
		if err := c.asked.noteAnswer(c.held[c.whole:at]); err != nil {
			return err
		}
		c.whole = at
	}
	if len(c.held)-c.whole > maxBytes {
		return errBytes
	}
	return nil
}

// commands finds the commands in what rueidis writes, in pieces of any size. They are not judged.
type commands struct {
	scan resp.Scanner
	head []byte // of the command that is coming
}

// takeWritten notes the commands that end in p.
func (s *commands) takeWritten(p []byte, asked *account) {
	for len(p) > 0 {
		n, done, err := s.scan.Scan(p)
		if err != nil {
			return
		}
		s.head = append(s.head, p[:min(n, headSize-len(s.head))]...)
		p = p[n:]
		if done {
			asked.noteAsked(s.head)
			s.head = s.head[:0]
		}
	}
}
