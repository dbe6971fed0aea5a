package session

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/lock"
)

// Wait flushes the replies so far and runs run with a context that ends when the client goes away, is killed, or is
// cut off by a drain. While it runs, what the client pipelines is kept for later.
//
// CLIENT UNBLOCK ends that context too: its cause is then what the verb answers. So does a QUIT or RESET sent directly
// behind the verb.
func (s *Session) Wait(run func(ctx context.Context)) {
	s.watched(func(ctx context.Context) {
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

// watched is Wait for whatever cannot be unblocked.
func (s *Session) watched(run func(ctx context.Context)) {
	s.flush()
	ctx, cancel := context.WithCancel(s.srv.ctx)
	defer cancel()
	g := s.guard
	g.WhenOver(cancel)
	defer g.WhenOver(nil)
	s.activity.leaves.Store(false)
	done := g.StartWatch()
	run(ctx)
	g.StopWatch(done)
}

// isLeave tells a QUIT or RESET as a client sends it, at the beginning of b.
func isLeave(b []byte) bool {
	for _, line := range []string{"*1\r\n$4\r\nQUIT\r\n", "*1\r\n$5\r\nRESET\r\n", "QUIT\r\n", "RESET\r\n", "QUIT\n", "RESET\n"} {
		if len(b) >= len(line) && equalFold(b[:len(line)], line) {
			return true
		}
	}
	return false
}
