package session

import (
	"context"
	"time"
)

// wishWait is how long a session waits for another that is at work, before it gives up.
const wishWait = time.Second

// wishFor has another session take a connection of its own, to which invalidations may be redirected, and returns that
// connection's number at Redis. It is taken by that session's own goroutine, where it reads its client's next command;
// 0: it is not there in time, or has no such connection.
func (s *Session) wishFor(ctx context.Context) int64 {
	answer := make(chan int64, 1)
	if !s.wish.CompareAndSwap(nil, &answer) { // somebody else asks just now
		return 0
	}
	s.guard.Nudge()
	ctx, cancel := context.WithTimeout(ctx, wishWait)
	defer cancel()
	select {
	case id := <-answer:
		return id
	case <-ctx.Done():
		s.wish.CompareAndSwap(&answer, nil)
		return 0
	}
}

// grantWish does what wishFor asks for, in the session's own goroutine while no command is at work.
func (s *Session) grantWish() {
	wish := s.wish.Swap(nil)
	if wish == nil {
		return
	}
	p := s.pinnedNow()
	defer s.release()
	fresh := p == nil
	if fresh {
		var err error
		if p, err = s.pinUp(); err != nil {
			*wish <- 0
			return
		}
	}
	id := p.conn.RedisID()
	if fresh && id == 0 { // Redis does not tell this client's user
		s.dropPin()
		*wish <- 0
		return
	}
	s.batch = batches.Get().(*batch)
	s.batch.guard = s.guard
	p.flush()
	s.batch.giveBack()
	s.batch = nil
	*wish <- id
}
