package session

import (
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// What a session's connection to its client asks of it.
var _ downstream.Client = (*Session)(nil)

// closeHow is what the end of a connection is to the lock engine.
func closeHow(how downstream.How) lock.CloseHow {
	if how == downstream.Gone {
		return lock.Gone
	}
	return lock.Left
}

// Attend does what other sessions ask of this one, and gives back what it has not needed for a while.
func (s *Session) Attend() {
	s.refuseStranger()
	s.serveDedicatedRequest()
	if s.own.dedicated != nil || s.own.restore.Load() != nil { // others may have needed it, and do no more
		s.currentDedicated()
		s.release()
	}
	s.returnOwn()
}

// MayLeave says that it holds no locks and is within nothing.
func (s *Session) MayLeave() bool { return s.held() == 0 && !s.own.view.Busy() }

// MayIdle says whether the client may be silent for as long as it likes, as those that wait for something may in Redis.
func (s *Session) MayIdle() bool {
	v := &s.own.view
	return v.Subscribed() || v.Monitor.Load() || v.Pending.Load() || s.held() > 0
}

// Subscribed says that it waits for messages.
func (s *Session) Subscribed() bool { return s.own.view.Subscribed() }

// Ahead looks for a QUIT or RESET directly behind the lock verb that waits, and ends its wait.
func (s *Session) Ahead(begun []byte) {
	if !s.activity.leaves.Load() && isLeave(begun) {
		s.activity.leaves.Store(true)
		s.wake(lock.ErrNotAcquired)
	}
}

// lookLoop has clients dropped that have vanished without a word, until the server ends.
func (s *Server) lookLoop() { downstream.DropDeadPeers(s.ctx, s.unacknowledged) }

// unacknowledged lists the clients that have sent nothing since before, and to which something was written.
func (s *Server) unacknowledged(before int64, to []*downstream.Conn) []*downstream.Conn {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	for _, c := range s.clients.sessions {
		if c.guard.Unacknowledged() && c.activity.active.Load() < before {
			to = append(to, c.guard)
		}
	}
	return to
}

// MayHold implements cluster.Holder: n bytes of replies are to lie here beside those gathered before.
func (s *Session) MayHold(n int) bool {
	if b := s.batch; b != nil {
		n += b.fullSize + len(b.out)
	}
	return s.guard.MayGather(n)
}
