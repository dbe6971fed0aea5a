package dedicated

import (
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// replyTimeout is the state of --upstream-timeout on a connection. While replies, or parts of them, are pending a timer checks it: when Redis has
// sent nothing for that long, or has not taken what is written, the connection ends, and the client is told that the outcome
// is unknown. A command that waits is given its own waiting time in addition; one that waits for ever has no time-out.
type replyTimeout struct {
	timer      *time.Timer
	armed      bool
	quietSince time.Time // when Redis sent something last, or when the first of the pending commands was sent
	write      time.Time // when the client's goroutine began to write; zero: it does not
}

// watchTimeout starts the timer if there is a time-out and it does not run yet; mu is held, and a reply has just become pending.
func (p *Conn) watchTimeout() {
	if len(p.pending.all) == 1 {
		p.replyTimeout.quietSince = time.Now()
	}
	t := p.Timeout
	if t <= 0 || p.replyTimeout.armed {
		return
	}
	p.replyTimeout.armed = true
	if p.replyTimeout.timer == nil {
		p.replyTimeout.timer = time.AfterFunc(t, p.checkTimeout)
	} else {
		p.replyTimeout.timer.Reset(t)
	}
}

// checkTimeout runs on the timer's goroutine.
func (p *Conn) checkTimeout() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replyTimeout.armed = false
	if p.life.released || p.caughtUp(0) {
		return
	}
	t, now := p.Timeout, time.Now()
	quiet := now.Sub(p.replyTimeout.quietSince)
	left := p.patience(t) - quiet
	if w := p.replyTimeout.write; !w.IsZero() {
		left = min(left, t-min(quiet, now.Sub(w)))
	}
	if left <= 0 {
		p.endTimedOut()
		return
	}
	p.replyTimeout.armed = true
	p.replyTimeout.timer.Reset(min(left, t))
}

// forEver is longer than anything is waited for.
const forEver = 1 << 62

// patience is how long Redis may send nothing, at least t.
func (p *Conn) patience(t time.Duration) time.Duration {
	e := p.oldest()
	switch {
	case e == nil || !e.Wait.Blocks || p.state.multi:
		return t
	case e.Wait.For == 0:
		return forEver
	}
	return t + e.Wait.For
}

// endTimedOut ends the connection; mu is held.
func (p *Conn) endTimedOut() {
	p.endLocked(upstream.ErrTimeout)
	p.conn.Close()
}

// endUnanswered ends the connection of a Redis that has not answered a question of the proxy's own, and has said nothing else, within its time.
func (p *Conn) endUnanswered(e *Reply, within time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.released || e.Lost != nil || len(*e.Got) > 0 {
		return
	}
	if left := within - time.Since(p.replyTimeout.quietSince); left > 0 {
		time.AfterFunc(left, func() { p.endUnanswered(e, within) })
		return
	}
	p.endTimedOut()
}

// writing notes since when the client's goroutine writes; zero: it does not any more.
func (p *Conn) writing(since time.Time) {
	if p.Timeout > 0 {
		p.mu.Lock()
		p.replyTimeout.write = since
		p.mu.Unlock()
	}
}
