package dedicated

import (
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// silence is how long Redis has said nothing. While replies, or parts of them, are pending a timer looks at it: when
// Redis has sent nothing for --upstream-timeout, or has not taken what is written, the connection ends, and the client
// is told that the outcome is unknown. A command that waits is given its own waiting time in addition; one that waits
// for ever has no time-out.
type silence struct {
	limit  time.Duration // --upstream-timeout
	check  func()
	timer  *time.Timer // nil: it was never armed. One that is armed keeps the connection in memory
	armed  bool
	heard  time.Time                 // when Redis sent something last, or got the first pending command
	writes atomic.Pointer[time.Time] // since when the client's goroutine writes; nil: it does not
}

// forEver is longer than anything is waited for.
const forEver time.Duration = 1 << 60

// start has it be without a limit, if that is 0, and end call check when it may have lasted too long.
func (s *silence) start(limit time.Duration, check func()) {
	if s.limit, s.check = limit, check; limit <= 0 {
		s.limit = forEver
	}
}

// left is how long it may still last: patience for the reply that comes next, limit for what is written.
func (s *silence) left(now time.Time, patience time.Duration) time.Duration {
	quiet := now.Sub(s.heard)
	left := patience - quiet
	if since := s.writes.Load(); since != nil {
		left = min(left, s.limit-min(quiet, now.Sub(*since)))
	}
	return left
}

// arm has it be looked at after d; another command may be the oldest by then.
func (s *silence) arm(d time.Duration) {
	s.armed = true
	if d = min(d, s.limit); s.timer == nil {
		s.timer = time.AfterFunc(d, s.check)
	} else {
		s.timer.Reset(d)
	}
}

// sent has it be looked at once e, which is sent now, may be late.
func (s *silence) sent(e *Reply, first bool) {
	if first {
		s.heard = time.Now()
	}
	switch {
	case e.Within > 0: // nothing else is pending
		s.arm(e.Within)
	case !s.armed && s.limit < forEver:
		s.arm(s.limit)
	}
}

// stop has nothing be looked at any more: the connection is over.
func (s *silence) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// checkTimeout ends the connection if Redis has said nothing for too long. It runs on the timer's goroutine.
func (p *Conn) checkTimeout() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence.armed = false
	e := p.said.pending.oldest()
	if e == nil {
		return
	}
	if left := p.silence.left(time.Now(), e.patience(p.silence.limit, p.said.state.multi())); left > 0 {
		p.silence.arm(left)
		return
	}
	p.end(upstream.ErrTimeout)
}
