package upstream

import (
	"slices"
	"sync"
	"time"
)

// The pinned connections that wait for their next client.
const (
	maxIdlePins = 64 // over all identities
	idlePin     = 30 * time.Second
	sweepPins   = 5 * time.Second
)

// pins are a node's pinned connections.
type pins struct {
	node *Node

	mu     sync.Mutex
	closed bool
	all    map[*Pinned]struct{}
	idle   []*Pinned // oldest first
	timer  *time.Timer
}

// take returns the idle connection of id used last, or nil.
func (s *pins) take(id Identity) *Pinned {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.idle) - 1; i >= 0; i-- {
		if p := s.idle[i]; p.Identity == id {
			s.idle = slices.Delete(s.idle, i, i+1)
			return p
		}
	}
	return nil
}

// put keeps p for its next client, and lets the oldest go when there are too many.
func (s *pins) put(p *Pinned) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.all[p]; !known || s.closed || p.shut.Load() {
		return false
	}
	p.since = time.Now()
	if len(s.idle) == maxIdlePins {
		s.idle[0].conn.Close()
		s.idle = slices.Delete(s.idle, 0, 1)
	}
	s.idle = append(s.idle, p)
	if s.timer == nil {
		s.timer = time.AfterFunc(sweepPins, s.sweep)
	}
	return true
}

// closeOldest closes the idle connection of a user, or for "" of anybody, that nobody has needed for longest, and says
// whether there was one.
func (s *pins) closeOldest(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.idle {
		if user == "" || p.share.user == user {
			s.idle = slices.Delete(s.idle, i, i+1)
			p.conn.Close()
			p.share.give()
			return true
		}
	}
	return false
}

// sweep closes what nobody has needed for idlePin, and comes again while something is idle.
func (s *pins) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := 0
	for old < len(s.idle) && time.Since(s.idle[old].since) > idlePin {
		s.idle[old].conn.Close()
		old++
	}
	s.idle = slices.Delete(s.idle, 0, old)
	if s.timer = nil; len(s.idle) > 0 && !s.closed {
		s.timer = time.AfterFunc(sweepPins, s.sweep)
	}
}

// begin counts a new connection in; false: the node is closed.
func (s *pins) begin(p *Pinned) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.all[p] = struct{}{}
	s.node.running.Add(1)
	return true
}

// end forgets a connection that is over.
func (s *pins) end(p *Pinned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, p)
	if i := slices.Index(s.idle, p); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
}

// shut ends the open connections, those in use too.
func (s *pins) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.all {
		if p.open.Load() {
			p.shut.Store(true)
			p.conn.Close()
		}
	}
	s.idle = slices.DeleteFunc(s.idle, func(p *Pinned) bool { return p.shut.Load() })
}

// renew ends the idle connections of the identities concerned.
func (s *pins) renew(concerned func(Identity) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = slices.DeleteFunc(s.idle, func(p *Pinned) bool {
		if concerned(p.Identity) {
			p.conn.Close()
			return true
		}
		return false
	})
}

// close ends all connections, those in use too; their goroutines then end.
func (s *pins) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.idle = nil
	if s.timer != nil {
		s.timer.Stop()
	}
	for p := range s.all {
		p.conn.Close()
	}
}

// Pinned counts the connections that serve one client each: those in use and those that wait for the next.
func (n *Node) Pinned() (used, idle int) {
	n.pins.mu.Lock()
	defer n.pins.mu.Unlock()
	return len(n.pins.all) - len(n.pins.idle), len(n.pins.idle)
}
