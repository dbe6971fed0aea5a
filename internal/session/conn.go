package session

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/own"
)

// The connection to the client asks this of its session.
var _ downstream.Client = (*Session)(nil)

// closeHow says to the lock engine how a connection has ended.
func closeHow(how downstream.How) lock.CloseHow {
	if how == downstream.Gone {
		return lock.Gone
	}
	return lock.Left
}

// Attend does what other sessions ask of this one, and gives back what it has not needed for a while.
func (s *Session) Attend() {
	s.refuseStranger()
	if s.own.Requested() {
		s.own.ServeRequest(s.refused())
	}
	s.own.Attend()
	s.pipes.ReturnOwn()
}

// MayIdle says whether the client may be silent for as long as it likes, as those that wait for something may in Redis.
func (s *Session) MayIdle() bool {
	v := &s.own.View
	return v.Subscribed() || v.Monitor.Load() || v.Pending.Load() > 0 || s.own.Waits.Pending.Load() > 0 || s.client.Held() > 0
}

// Subscribed says that the client waits for messages.
func (s *Session) Subscribed() bool { return s.own.View.Subscribed() }

// FlushReplies implements downstream.Client.
func (s *Session) FlushReplies() { s.own.FlushReplies() }

// Ahead looks for a QUIT or RESET directly behind the lock verb that waits, and ends its wait.
func (s *Session) Ahead(begun []byte) {
	if len(s.batch.next) == 0 && !s.activity.leaves.Load() && isLeave(begun) {
		s.activity.leaves.Store(true)
		s.wake(lock.ErrNotAcquired)
	}
}

// lookLoop drops clients that have vanished without closing their connections, until the server ends.
func (s *Server) lookLoop() { downstream.DropDeadPeers(s.ctx, s.unacknowledged) }

// unacknowledged lists the clients that have sent nothing since before, and to which something was written.
func (s *Server) unacknowledged(before int64, to []*downstream.Conn) []*downstream.Conn {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	for _, c := range s.clients.sessions {
		if c.client.Unacknowledged() && c.activity.active.Load() < before {
			to = append(to, c.client.Conn)
		}
	}
	return to
}

// aheadLoop reads ahead of clients that do not read their replies, until the server ends.
func (s *Server) aheadLoop() { downstream.ReadAhead(s.ctx, s.guards) }

// guards lists the connections of all clients.
func (s *Server) guards(to []*downstream.Conn) []*downstream.Conn {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	for _, c := range s.clients.sessions {
		to = append(to, c.client.Conn)
	}
	return to
}

// wake ends the wait of a lock verb, if there is one.
func (s *Session) wake(cause error) bool {
	cancel := s.activity.waiting.Load()
	if cancel != nil {
		(*cancel)(cause)
	}
	return cancel != nil
}

// session finds a client by its number.
func (s *Server) session(id int64) *Session {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	return s.clients.sessions[id]
}

// connectionsOf finds a client's own connections by its number; nil: it has gone.
func (s *Server) connectionsOf(number int64) *own.Connections {
	if c := s.session(number); c != nil {
		return c.own
	}
	return nil
}

// Wait flushes the replies so far and runs run with a context that ends when the client goes away, is killed, or is
// cut off by a drain. While it runs, what the client pipelines is kept for later.
//
// CLIENT UNBLOCK ends that context too: its cause is then what the verb answers. So does a QUIT or RESET sent directly
// behind the verb.
func (s *Session) Wait(run func(ctx context.Context)) {
	s.activity.leaves.Store(false)
	s.client.Watch(func(ctx context.Context) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		s.activity.waiting.Store(&cancel)
		defer s.activity.waiting.Store(nil)
		if s.activity.leaves.Load() || len(s.batch.next) > 0 && isLeave(s.batch.next[0].Raw) {
			cancel(lock.ErrNotAcquired)
		}
		run(ctx)
	})
}

// isLeave recognises a QUIT or RESET, as clients send it, at the beginning of b.
func isLeave(b []byte) bool {
	for _, line := range []string{"*1\r\n$4\r\nQUIT\r\n", "*1\r\n$5\r\nRESET\r\n", "QUIT\r\n", "RESET\r\n", "QUIT\n", "RESET\n"} {
		if len(b) >= len(line) && equalFold(b[:len(line)], line) {
			return true
		}
	}
	return false
}
