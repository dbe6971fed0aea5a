package session

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// readAhead bounds what a client may pipeline behind a verb that waits. A client that sends more is not read from
// until the wait is over; its end is then noticed by keep-alive only.
const readAhead = 1 << 20

// Wait flushes the replies so far and runs run with a context that ends when the client goes away, is killed, or is
// cut off by a drain. While it runs, what the client pipelines is kept for later.
//
// CLIENT UNBLOCK ends that context too: its cause is then what the verb answers. So does a QUIT or RESET sent directly
// behind the verb.
func (s *Session) Wait(run func(ctx context.Context)) {
	s.watched(func(ctx context.Context) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		s.waiting.Store(&cancel)
		defer s.waiting.Store(nil)
		if s.leaves.Load() || len(s.next) > 0 && isLeave(s.next[0].Raw) {
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
	g.whenOver(cancel)
	defer g.whenOver(nil)
	done := make(chan struct{})
	g.startWatch()
	go g.watch(done)
	run(ctx)
	g.stopWatch(done)
}

func (g *guard) startWatch() {
	g.rmu.Lock()
	g.watching, g.waking = true, false
	g.sess.leaves.Store(isLeave(g.in.Ahead()))
	g.setReadDeadline(time.Time{})
	g.rmu.Unlock()
}

// watch reads ahead, so as to see the client's end at once; source.Read notes it. Wait owns it.
func (g *guard) watch(done chan<- struct{}) {
	defer close(done)
	for {
		err := g.in.ReadAhead(readAhead)
		if !g.sess.leaves.Load() && isLeave(g.in.Ahead()) {
			g.sess.leaves.Store(true)
			g.sess.wake(lock.ErrNotAcquired)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, resp.ErrReadAheadFull) {
			g.srv.log.Debug("a waiting client pipelines too much to be watched", "client", g.sess.addr)
		}
		return
	}
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

func (g *guard) stopWatch(done <-chan struct{}) {
	g.rmu.Lock()
	g.waking = true
	g.setReadDeadline(past)
	g.rmu.Unlock()
	<-done
	g.rmu.Lock()
	g.watching, g.waking = false, false
	g.rmu.Unlock()
}
