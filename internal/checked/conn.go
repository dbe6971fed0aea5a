// Package checked stands between a connection to Redis and rueidis, and lets only replies through that rueidis can take.
//
// rueidis believes a server. A length below zero makes it panic, and so does a reply that nobody asked for, in a goroutine of its own, which
// ends the process; a large number of elements has it take memory for all of them before one has come. So every byte is looked at before
// rueidis reads it, and a reply that Redis does not send ends the connection instead.
//
// proto/resp's Scanner judges less: it looks for the end of a reply, whose bytes are copied, and builds nothing of them.
package checked

import (
	"fmt"
	"net"
	"sync"
)

// Conn is a connection whose replies are checked. One goroutine writes at a time, and one reads.
type Conn struct {
	net.Conn
	sent  requests // Write's own
	reply frame    // Read's own
	bad   error    // Read's own: what was wrong with a reply; the connection cannot be read any more

	mu    sync.Mutex // guards asked, which Write and Read share
	asked account
}

// New returns conn with its replies checked.
func New(conn net.Conn) *Conn { return &Conn{Conn: conn} }

// Write implements net.Conn. It notes the commands before they leave, since their replies may come before it returns.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.sent.take(p, &c.asked)
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Read implements net.Conn. Of what came before a bad reply all whole replies are given.
func (c *Conn) Read(p []byte) (int, error) {
	if c.bad != nil {
		return 0, c.bad
	}
	n, err := c.Conn.Read(p)
	whole, bad := c.check(p[:n])
	if bad == nil {
		return n, err
	}
	if c.bad = fmt.Errorf("protocol violation by Redis: %w", bad); whole == 0 {
		return 0, c.bad
	}
	return whole, nil
}

// check looks at bytes that came. Up to whole they are, with those before them, whole replies.
func (c *Conn) check(p []byte) (whole int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := 0; at < len(p); {
		if c.reply.size == 0 && !c.asked.expects(p[at]) {
			return whole, errUnasked
		}
		n, done, err := c.reply.take(p[at:])
		if err != nil {
			return whole, err
		}
		if at += n; !done {
			continue
		}
		if err := c.asked.answer(&c.reply); err != nil {
			return whole, err
		}
		c.reply.reset()
		whole = at
	}
	return whole, nil
}
