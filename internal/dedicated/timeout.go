package dedicated

import (
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// silence is how long Redis has said nothing. While replies, or parts of them, are pending a timer looks at it: when Redis has sent nothing
// for --upstream-timeout, or has not taken what is written, the connection ends, and the client is told that the outcome is unknown. A command
// that waits is given its own waiting time in addition; one that waits for ever has no time-out.
type silence struct {
	limit  time.Duration // --upstream-timeout
	timer  *time.Timer
	armed  bool
	heard  time.Time // when Redis sent something last, or when the first of the pending commands was sent
	writes time.Time // since when the client's goroutine writes; zero: it does not
}

// forEver is longer than anything is waited for.
const forEver time.Duration = 1 << 60

// silenceOf returns one with that limit; 0: there is none.
func silenceOf(limit time.Duration) silence {
	if limit <= 0 {
		limit = forEver
	}
	return silence{limit: limit}
}

// left is how long it may still last: patience for the reply that comes next, limit for what is written.
func (s *silence) left(now time.Time, patience time.Duration) time.Duration {
	quiet := now.Sub(s.heard)
	left := patience - quiet
	if !s.writes.IsZero() {
		left = min(left, s.limit-min(quiet, now.Sub(s.writes)))
	}
	return left
}

// arm has check called after d.
func (s *silence) arm(d time.Duration, check func()) {
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(d, check)
	} else {
		s.timer.Reset(d)
	}
}

// watchTimeout has the timer run; mu is held, and the reply to e has just become pending.
func (p *Conn) watchTimeout(e *Reply) {
	if p.said.pending.oldest() == e {
		p.silence.heard = time.Now()
	}
	switch {
	case e.Within > 0: // nothing else is pending
		p.silence.arm(min(e.Within, p.silence.limit), p.checkTimeout)
	case !p.silence.armed:
		p.silence.arm(p.silence.limit, p.checkTimeout)
	}
}

// checkTimeout runs on the timer's goroutine.
func (p *Conn) checkTimeout() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence.armed = false
	e := p.said.pending.oldest()
	if p.life.over() || e == nil {
		return
	}
	left := p.silence.left(time.Now(), e.patience(p.silence.limit, p.said.state.multi()))
	if left <= 0 {
		p.end(upstream.ErrTimeout)
		p.conn.Close()
		return
	}
	p.silence.arm(min(left, p.silence.limit), p.checkTimeout) // another command may be the oldest by then
}

// writing notes since when the client's goroutine writes; zero: it does not any more.
func (p *Conn) writing(since time.Time) {
	p.mu.Lock()
	p.silence.writes = since
	p.mu.Unlock()
}
