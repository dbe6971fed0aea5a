package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
)

const (
	drainPoll = 20 * time.Millisecond // how often a drain looks for clients that hold nothing any more
	lastCall  = 5 * time.Second       // for commands still unanswered upstream when the drain's time is over
)

// Shutdown drains: no client is let in, no new lock is given, clients that hold nothing are closed once they are
// between commands, the others as soon as they have released. At ctx's end all that are left are closed and their
// locks run out. It returns when every session has ended; an error says how it had to be forced.
func (s *Server) Shutdown(ctx context.Context) error {
	s.gate.Drain()
	if s.o.Locks != nil {
		s.o.Locks.Drain()
	}
	err := s.drain(ctx)
	s.loops.cancel()
	if err != nil {
		for _, c := range s.snapshot() {
			c.guard.Cut(downstream.Left, "drain timeout")
		}
		if !s.waitEmpty(lastCall) {
			err = errors.New("session: some clients' last commands were never answered")
		}
	}
	s.gate.Finish()
	if s.clients.n.Load() == 0 {
		s.clients.running.Wait()
	}
	s.loops.running.Wait()
	return err
}

// drain asks idle clients to leave until none is left or ctx ends.
func (s *Server) drain(ctx context.Context) error {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		left := s.snapshot()
		if len(left) == 0 {
			return nil
		}
		for _, c := range left {
			if c.held() == 0 { // a holder looks by itself when it has released
				c.guard.Wake()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Server) waitEmpty(within time.Duration) bool {
	over := time.NewTimer(within)
	defer over.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for s.clients.n.Load() > 0 {
		select {
		case <-look.C:
		case <-over.C:
			return s.clients.n.Load() == 0
		}
	}
	return true
}

// snapshot lists the sessions of the moment, oldest first.
func (s *Server) snapshot() []*Session {
	s.clients.mu.Lock()
	all := make([]*Session, 0, len(s.clients.sessions))
	for _, c := range s.clients.sessions {
		all = append(all, c)
	}
	s.clients.mu.Unlock()
	slices.SortFunc(all, func(a, b *Session) int { return int(a.peer.id - b.peer.id) })
	return all
}
