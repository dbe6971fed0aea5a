package session

import (
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/upstream"
)

// replyTimeout is what --upstream-timeout needs to know of a session's own connection. As long as replies are pending there it is looked
// at from time to time: when Redis has said nothing for that long, or has not taken what is written, the connection ends, and
// the client is told that the outcome is unknown. A command that waits by itself is given its own time besides; one that
// waits for ever may.
type replyTimeout struct {
	timer *time.Timer
	armed bool
	heard time.Time // when Redis said something last, or the oldest pending reply was asked for
	write time.Time // when the session began to write; zero: it does not
}

// watchTimeout begins to look, if that is wanted; mu is held, as a reply is pending from now on.
func (p *dedicated) watchTimeout() {
	if len(p.pending) == 1 {
		p.replyTimeout.heard = time.Now()
	}
	t := p.s.srv.o.UpstreamTimeout
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

// checkTimeout is the timer's.
func (p *dedicated) checkTimeout() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replyTimeout.armed = false
	if p.released || len(p.pending) == 0 {
		return
	}
	t, now := p.s.srv.o.UpstreamTimeout, time.Now()
	quiet := now.Sub(p.replyTimeout.heard)
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

// patience is for how long Redis may say nothing, t at least.
func (p *dedicated) patience(t time.Duration) time.Duration {
	e := p.pending[0]
	switch {
	case !e.blocks || p.state.multi:
		return t
	case e.waits == 0:
		return forEver
	}
	return t + e.waits
}

// endTimedOut ends the connection; mu is held.
func (p *dedicated) endTimedOut() {
	p.endLocked(upstream.ErrTimeout)
	p.conn.Close()
}

// endUnanswered ends the connection of a Redis that has not answered a question of the proxy's own in its time.
func (p *dedicated) endUnanswered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.released && time.Since(p.replyTimeout.heard) >= questionTime {
		p.endTimedOut()
	}
}

// writing notes since when the session writes; zero: it does not any more.
func (p *dedicated) writing(since time.Time) {
	if p.s.srv.o.UpstreamTimeout > 0 {
		p.mu.Lock()
		p.replyTimeout.write = since
		p.mu.Unlock()
	}
}

// waitsFor is for how long a command that may wait does at most; 0: for ever, or nobody knows.
func waitsFor(c *commandtable.Command, args [][]byte) time.Duration {
	at, unit := blockTimeout(c, args)
	switch c.Name {
	case "wait":
		at, unit = 2, time.Millisecond
	case "waitaof":
		at, unit = 3, time.Millisecond
	}
	if at == 0 || at >= len(args) {
		return 0
	}
	n, err := strconv.ParseFloat(string(args[at]), 64)
	if err != nil || n < 0 || n > 1e9 {
		return 0
	}
	return time.Duration(n * float64(unit))
}
