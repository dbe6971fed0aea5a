package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	stuckEvery = 250 * time.Millisecond // how often sessions are looked at; every stuckAfter while none of them waits
	// stuckAfter is how long a session must have waited for the same thing before it is asked whether its client is
	// still there. One that has closed, or half-closed, gets that long for pending replies, so that their outcome is
	// known.
	stuckAfter = time.Second
)

// progress is how far the loop that looks for those that wait for long has seen a session come.
type progress struct {
	seen  uint64
	since time.Time // when the step was first seen
}

// stuckLoop ends the waits of clients that have gone, and those that last longer than Options.UpstreamTimeout, until
// the server ends, and has those that are idle within a transaction look whether their connection is lost. Ordinary commands that are answered soon cost nothing: only waits that last are looked at, all by
// this goroutine. It also tells whose locks run out.
func (s *Server) stuckLoop() {
	every, calm := stuckEvery, stuckAfter
	if t := s.o.UpstreamTimeout; t > 0 {
		often := max(t/4, time.Millisecond)
		every, calm = min(every, often), min(calm, often)
	}
	var overdue []*Session
	for pause := calm; retry.Sleep(s.ctx, pause, nil); {
		now := time.Now()
		s.runOut.logSums(s.log, now)
		var waits bool
		overdue, waits = s.clients.waiting(now, s.o.UpstreamTimeout, overdue[:0])
		if pause = calm; waits {
			pause = every
		}
		endDisconnected(overdue)
		clear(overdue)
	}
}

// waiting lists the sessions that have waited for the same thing for stuckAfter while nobody reads from their clients,
// and ends waits that have lasted longer than most; 0: none. It says whether any waits at all.
func (cs *clients) waiting(now time.Time, most time.Duration, overdue []*Session) (_ []*Session, some bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.sessions {
		p := &c.activity.progress
		step := c.client.Step.Now()
		some = some || step != 0
		if step != p.seen {
			p.seen, p.since = step, now
			continue
		}
		waited := now.Sub(p.since)
		if step == 0 {
			if waited >= stuckAfter && c.own.View.Busy() { // nobody reads from its connection: it is to have a look
				c.client.Reader.Notify()
				p.since = now
			}
			continue
		}
		if most > 0 && waited >= most {
			if c.pipes.Quiet() >= most { // not when it is the client that reads slowly
				c.pipes.EndWait(step, upstream.ErrTimeout)
			}
		}
		if waited >= stuckAfter && !c.client.Reader.Watched() {
			overdue = append(overdue, c)
		}
	}
	return overdue, some
}

// endDisconnected ends the waits of the sessions whose clients have gone. What such a client has sent before it left is
// sent on, as Redis would run it, without waiting for replies: so only a wait for something else ends the session. A
// session that holds locks waits on: once it has its replies, no command of it can take effect any more, and its locks
// are released. If no reply comes its locks expire, and then its wait is ended too.
func endDisconnected(overdue []*Session) {
	for _, c := range overdue {
		if c.client.Held() == 0 && c.client.End.ClientGone() && !c.pipes.EndWait(c.activity.progress.seen, upstream.ErrLeft) {
			c.client.End.HangUp(downstream.Gone, "end of stream")
		}
	}
}
