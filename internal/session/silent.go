package session

import (
	"net"
	"time"
)

// Keep-alive does not run while bytes are on their way to a client, and the kernel alone then gives a dead one up after a
// quarter of an hour. TCP_USER_TIMEOUT would be shorter, but also cuts off a living client that does not read for that long.
// So clients that owe an acknowledgement are looked at: the dead acknowledge nothing, not even a probe of their full window.
const (
	lifeSign  = 11 * time.Second // as keep-alive's 5 s + 3 × 2 s
	lookEvery = time.Second
	lookAfter = 4 * time.Second // whoever has sent a command since is alive
)

// lookLoop drops clients that have vanished without a word, until the server ends.
func (s *Server) lookLoop() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var owing []*Session
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		owing = s.owing(owing[:0])
		for _, c := range owing {
			c.guard.look()
		}
		clear(owing)
	}
}

// owing lists the silent clients to which something was written.
func (s *Server) owing(to []*Session) []*Session {
	before := time.Now().Add(-lookAfter).UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.sessions {
		if c.guard.owes.Load() && c.active.Load() < before {
			to = append(to, c)
		}
	}
	return to
}

// look drops the client if it shows no sign of life. A writer sets owes after each write, so that clearing it first
// forgets none.
func (g *guard) look() {
	g.owes.Store(false)
	owes, silent := acknowledged(tcpOf(g.Conn))
	if owes {
		g.owes.Store(true)
	}
	if owes && silent > lifeSign && !g.over.Load() {
		g.drop("no sign of life")
	}
}

// tcpOf is the TCP connection under c, nil if there is none.
func tcpOf(c net.Conn) *net.TCPConn {
	for {
		switch under := c.(type) {
		case *net.TCPConn:
			return under
		case interface{ NetConn() net.Conn }:
			c = under.NetConn()
		default:
			return nil
		}
	}
}
