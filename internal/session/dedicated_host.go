package session

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
)

// What a session's own connection asks of the session: see dedicated.Host.

var _ dedicated.Host = (*dedicatedConn)(nil)

// Silent implements dedicated.Host.
func (p *dedicatedConn) Silent() bool { return p.s.replies.silent }

// WriteReplies implements dedicated.Host.
func (p *dedicatedConn) WriteReplies() { p.s.flush() }

// Watch implements dedicated.Host.
func (p *dedicatedConn) Watch(run func(context.Context)) { p.s.watched(run) }

// NotSent implements dedicated.Host.
func (p *dedicatedConn) NotSent(e *dedicated.Reply) { p.s.notSent(e) }

// Shutting implements dedicated.Host.
func (p *dedicatedConn) Shutting(more int) { p.s.srv.writes.shutting.Add(int64(more)) }

// RightsChanged implements dedicated.Host.
func (p *dedicatedConn) RightsChanged(last bool) {
	p.s.srv.rightsChanged(p.rights)
	if last {
		p.rights = rightsChange{}
	}
}

// Adopt implements dedicated.Host.
func (p *dedicatedConn) Adopt(pauses time.Duration, settings []dedicated.Setting) {
	p.s.srv.pauseWrites(pauses)
	for _, t := range settings {
		p.s.take(t)
	}
}

// Left implements dedicated.Host.
func (p *dedicatedConn) Left() {
	p.dropTargets(0)
	if p.Node != nil {
		p.s.srv.o.Cluster.Release(p.Node)
	}
}

// Loss implements dedicated.Host.
func (p *dedicatedConn) Loss(err error) (closes bool, line string) {
	return p.s.closesFor(err), errorLine(err)
}

// Lost implements dedicated.Host.
func (p *dedicatedConn) Lost(err error, closes bool) {
	if closes {
		p.s.guard.Cut(downstream.Left, upstreamLost(err))
	}
	p.s.srv.learnAgain()
}
