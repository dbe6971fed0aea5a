package upstream

import (
	"slices"
	"sync"
	"time"
)

// idleFor is how long a connection that serves one client at a time waits for its next one.
const idleFor = 30 * time.Second

// mostIdle is how many of a node's pipes, and of its dedicated connections, wait for their next client, over all identities.
const mostIdle = 64

// dedicatedPool are a node's dedicated connections.
type dedicatedPool struct {
	node *Node

	mu     sync.Mutex
	closed bool
	all    map[*Dedicated]struct{}
	idle   []*Dedicated // oldest first
}

// pop returns the idle connection of id that was used most recently, or nil.
func (s *dedicatedPool) pop(id Identity) *Dedicated {
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

// put keeps p for its next client, and closes the oldest when there are too many.
func (s *dedicatedPool) put(p *Dedicated) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.all[p]; !known || s.closed {
		return false
	}
	if len(s.idle) == mostIdle {
		s.idle[0].conn.Close()
		s.idle = slices.Delete(s.idle, 0, 1)
	}
	s.idle = append(s.idle, p)
	p.unused.Reset(idleFor)
	return true
}

// closeIdle closes the idle connections for which which is true, the oldest first and so many at most, and says how
// many they were.
func (s *dedicatedPool) closeIdle(most int, which func(*Dedicated) bool) (closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = slices.DeleteFunc(s.idle, func(p *Dedicated) bool {
		if closed == most || !which(p) {
			return false
		}
		closed++
		p.conn.Close()
		p.share.give()
		return true
	})
	return closed
}

// closeOldest closes the connection of a user, or for "" of any user, that has been idle for longest, and says whether
// there was one.
func (s *dedicatedPool) closeOldest(user string) bool {
	return s.closeIdle(1, func(p *Dedicated) bool { return user == "" || p.share.user == user }) > 0
}

// renew ends the idle connections of the identities concerned.
func (s *dedicatedPool) renew(concerned func(Identity) bool) {
	s.closeIdle(mostIdle, func(p *Dedicated) bool { return concerned(p.Identity) })
}

// closeUnused closes p if it is idle, unless another could not be had.
func (s *dedicatedPool) closeUnused(p *Dedicated) {
	s.closeIdle(1, func(other *Dedicated) bool {
		if other != p {
			return false
		}
		needed := p.spare && s.node.loggedIn(p.Identity)
		if needed {
			p.unused.Reset(idleFor)
		}
		return !needed
	})
}

// begin counts a new connection in; false: the node is closed.
func (s *dedicatedPool) begin(p *Dedicated) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.all[p] = struct{}{}
	p.unused = time.AfterFunc(idleFor, func() { s.closeUnused(p) })
	s.node.running.Add(1)
	return true
}

// end forgets a connection that is over.
func (s *dedicatedPool) end(p *Dedicated) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.unused.Stop()
	delete(s.all, p)
	if i := slices.Index(s.idle, p); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
}

// close ends all connections, those in use too; their goroutines then end.
func (s *dedicatedPool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.idle = nil
	for p := range s.all {
		p.conn.Close()
	}
}

// DedicatedCount counts the connections that serve one client each: those in use and those that wait for the next. It
// is for tests of packages above this one.
func (n *Node) DedicatedCount() (used, idle int) {
	n.dedicated.mu.Lock()
	defer n.dedicated.mu.Unlock()
	return len(n.dedicated.all) - len(n.dedicated.idle), len(n.dedicated.idle)
}
