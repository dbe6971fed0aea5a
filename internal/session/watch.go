package session

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// readAhead bounds what a client may pipeline behind a verb that waits. A client that sends more is not read from
// until the wait is over; its end is then noticed by keep-alive only.
const readAhead = 1 << 20

// Wait flushes the replies so far and runs run with a context that ends when the client goes away, is killed, or is
// cut off by a drain. While it runs, what the client pipelines is kept for later.
//
// CLIENT UNBLOCK ends that context too: its cause is then what the verb answers.
func (s *Session) Wait(run func(ctx context.Context)) {
	s.watched(func(ctx context.Context) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		s.waiting.Store(&cancel)
		defer s.waiting.Store(nil)
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
	g.setReadDeadline(time.Time{})
	g.rmu.Unlock()
}

// watch reads ahead, so as to see the client's end at once; source.Read notes it. Wait owns it.
func (g *guard) watch(done chan<- struct{}) {
	defer close(done)
	for {
		err := g.in.ReadAhead(readAhead)
		if err == nil {
			continue
		}
		if errors.Is(err, resp.ErrReadAheadFull) {
			g.srv.log.Debug("a waiting client pipelines too much to be watched", "client", g.sess.addr)
		}
		return
	}
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
