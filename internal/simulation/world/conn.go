package world

import (
	"bytes"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// conn is a connection, seen from the proxy, and what the node knows of it.
//
// What the proxy writes in one instant is one message: goroutines write in the order in which the scheduler lets them. The scripts
// among it arrive sorted, since they are independent of each other, and their replies are put back in the order that was written.
type conn struct {
	w    *World
	link *Link

	// guarded by World.mu
	closed   bool     // by the proxy
	unsent   []byte   // the beginning of a command
	latest   *message // the last that was written
	trail    uint64   // follows from the verbs written so far, which tell the connections of a link apart
	sent     time.Time
	received time.Time // when the last message of each direction arrives, so that none overtakes another
	silent   bool      // something was swallowed
	served   *session  // what the node knows; nil once it is over
	pushed   []byte    // messages of subscriptions, of the command under way

	arrived   sync.Cond // on World.mu: bytes, err or the deadline
	in        []byte
	err       error // what Read says when all of in was read
	deadline  time.Time
	alarm     *time.Timer
	writesErr error
}

// session is a connection's state on the node.
type session struct {
	peer     *server.Peer
	out      bytes.Buffer
	channels [2]map[string]bool // subscriptions: classic, sharded
	asking   bool
	queues   bool // it is in a transaction
}

// connect makes a connection. mu is held.
func (l *Link) connect() *conn {
	c := &conn{w: l.w, link: l, served: newSession()}
	c.arrived.L = &l.w.mu
	l.conns[c] = struct{}{}
	l.node.conns[c] = struct{}{}
	return c
}

// end breaks the connection: at the proxy, and for the node. mu is held.
func (c *conn) end(err error) {
	if c.err == nil {
		c.err, c.writesErr = err, err
	}
	c.forget()
	c.arrived.Broadcast()
}

// forget is what the node does when a connection is over. mu is held.
func (c *conn) forget() {
	c.served = nil
	delete(c.link.conns, c)
	delete(c.link.node.conns, c)
}

// Write implements net.Conn. It never blocks.
func (c *conn) Write(p []byte) (int, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.writesErr != nil:
		return 0, c.writesErr
	}
	c.unsent = append(c.unsent, p...)
	now := time.Now()
	for {
		command, size := cutCommand(c.unsent)
		if size == 0 {
			return len(p), nil
		}
		if c.latest == nil || !c.latest.written.Equal(now) {
			c.send(now)
		}
		c.latest.commands = append(c.latest.commands, command)
		c.unsent = slices.Delete(c.unsent, 0, size)
	}
}

// message is what was written in one instant.
type message struct {
	from     *conn
	written  time.Time
	commands [][]string
}

// send begins a message, which is complete when it arrives: time goes on only when nobody has anything more to write.
func (c *conn) send(now time.Time) {
	m := &message{from: c, written: now}
	if c.latest != nil {
		c.trail = c.latest.verbs(c.trail)
	}
	c.latest = m
	at := now.Add(c.link.delay(now, "requests", c.trail))
	if !at.After(c.sent) {
		at = c.sent.Add(1)
	}
	c.sent = at
	c.w.plan(&event{at: at, content: m.content, happen: m.arrive})
}

func (m *message) content() string {
	var b strings.Builder
	for _, command := range m.sorted() {
		for _, word := range m.commands[command] {
			b.WriteString(word)
			b.WriteByte(0)
		}
	}
	return b.String()
}

// verbs is a trail, continued.
func (m *message) verbs(trail uint64) uint64 {
	for _, i := range m.sorted() {
		for _, letter := range []byte(m.commands[i][0]) {
			trail = mix(trail ^ uint64(letter))
		}
	}
	return trail
}

// sorted is the order in which the commands are carried out: of commands that need none among themselves that of their words.
// Everything else has the order in which it was written.
func (m *message) sorted() []int {
	order := make([]int, len(m.commands))
	for i := range order {
		order[i] = i
	}
	if len(order) < 2 || slices.ContainsFunc(m.commands, func(c []string) bool { return !apart[c[0]] }) {
		return order
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(m.commands[a], m.commands[b]) })
	return order
}

// apart are the commands that are about themselves only.
var apart = map[string]bool{"EVALSHA": true, "EVAL": true, "TIME": true, "PING": true, "HMGET": true, "GET": true}

// arrive has a message reach the node. mu is held.
func (m *message) arrive() {
	c := m.from
	switch {
	case c.served == nil:
	case c.link.mute&Requests != 0 || c.silent:
		c.silent = true
	case c.link.node.stopped:
		c.link.node.waiting = append(c.link.node.waiting, m)
	default:
		c.link.node.serve(m)
	}
}

// deliver sends bytes to the proxy. mu is held.
func (c *conn) deliver(b []byte, what string) {
	if len(b) == 0 {
		return
	}
	now := time.Now()
	at := now.Add(c.link.delay(now, what, c.trail))
	if !at.After(c.received) {
		at = c.received.Add(1)
	}
	c.received = at
	c.w.plan(&event{at: at, content: func() string { return string(b) }, happen: func() {
		switch {
		case c.err != nil || c.closed:
		case c.link.mute&Replies != 0 || c.silent:
			c.silent = true
		default:
			c.in = append(c.in, b...)
			c.arrived.Broadcast()
		}
	}})
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case len(c.in) > 0:
			n := copy(p, c.in)
			c.in = slices.Delete(c.in, 0, n)
			return n, nil
		case c.err != nil:
			return 0, c.err
		case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		c.arrived.Wait()
	}
}

// Close implements net.Conn. The node hears of it a trip later.
func (c *conn) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	if c.alarm != nil {
		c.alarm.Stop()
	}
	c.arrived.Broadcast()
	if c.served != nil && !c.w.closed {
		now := time.Now()
		at := now.Add(c.link.delay(now, "close", c.trail))
		if !at.After(c.sent) {
			at = c.sent.Add(1)
		}
		c.w.plan(&event{at: at, content: noContent, happen: func() {
			if c.served != nil && c.link.mute&Requests == 0 && !c.silent {
				c.forget()
			}
		}})
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn: writes never block.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.deadline = t
	if c.alarm != nil {
		c.alarm.Stop()
	}
	if !t.IsZero() {
		c.alarm = time.AfterFunc(time.Until(t), c.ring)
	}
	return nil
}

// ring runs on the deadline's timer.
func (c *conn) ring() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.arrived.Broadcast()
}

type address string

func (a address) Network() string { return "world" }
func (a address) String() string  { return string(a) }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address(c.link.name) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address(c.link.node.addr) }

func noContent() string { return "" }
