package session

import (
	"context"
	"time"
)

// dedicatedRequestWait is how long a session waits for another that is at work, before it gives up.
const dedicatedRequestWait = time.Second

// requestDedicated has another session take a connection of its own, to which invalidations may be redirected, and returns that
// connection's number at Redis. It is taken by that session's own goroutine, where it reads its client's next command;
// 0: it is not there in time, or has no such connection.
func (s *Session) requestDedicated(ctx context.Context) int64 {
	answer := make(chan int64, 1)
	if !s.own.request.CompareAndSwap(nil, &answer) { // somebody else asks just now
		return 0
	}
	s.guard.WakeToAttend()
	ctx, cancel := context.WithTimeout(ctx, dedicatedRequestWait)
	defer cancel()
	select {
	case id := <-answer:
		return id
	case <-ctx.Done():
		s.own.request.CompareAndSwap(&answer, nil)
		return 0
	}
}

// serveDedicatedRequest does what requestDedicated asks for, in the session's own goroutine while no command is at work.
func (s *Session) serveDedicatedRequest() {
	request := s.own.request.Swap(nil)
	if request == nil {
		return
	}
	p := s.currentDedicated()
	defer s.release()
	fresh := p == nil
	if fresh {
		var err error
		if p, err = s.openDedicated(); err != nil {
			*request <- 0
			return
		}
	}
	id := p.RedisID()
	if fresh && id == 0 { // Redis does not tell this client's user
		s.dropDedicated()
		*request <- 0
		return
	}
	s.batch = batches.Get().(*batch)
	s.batch.guard = s.guard
	p.Flush()
	s.batch.giveBack()
	s.batch = nil
	*request <- id
}
