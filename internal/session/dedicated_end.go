package session

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
)

// FlushReplies has the pending replies come before the error that ends the connection, but for those that wait.
func (s *Session) FlushReplies() {
	if p := s.own.dedicated; p != nil {
		if !p.Status().Blocked {
			ctx, cancel := context.WithTimeout(s.srv.ctx, dedicated.LastReplies)
			p.Await(ctx)
			cancel()
		}
	}
}

// endDedicated ends the session's own connection. Replies to commands that do not wait come first, so that their outcome is
// known; so is a waiting one's when locks hang on it.
func (s *Session) endDedicated() {
	if p := s.own.dedicated; p != nil {
		s.own.dedicated = nil
		s.end(p)
	}
	s.dropRestore()
}

// end is endDedicated of any connection that is this session's alone.
func (s *Session) end(p *dedicatedConn) {
	p.forgetQueued()
	// One that half closes and does not read must not keep its locks either.
	defer time.AfterFunc(dedicated.LastReplies, func() { s.guard.CloseNow() }).Stop()
	p.Hold() // nobody else's command is to be unblocked
	now := p.Status()
	blocked := now.Blocked
	if blocked && now.Pending == 1 && s.held() > 0 && s.unblock(p) {
		blocked = false
	}
	if how, _ := s.guard.Ending(); how == downstream.Gone && !blocked {
		ctx, cancel := context.WithTimeout(s.srv.ctx, dedicated.LastReplies)
		p.Await(ctx)
		cancel()
	}
	doubt := p.Close()
	if l := s.locks.engine.Load(); l != nil && doubt {
		l.Doubt()
	}
}

// dropDedicated closes the session's own connection with all its state; no reply is pending there.
func (s *Session) dropDedicated() {
	if p := s.own.dedicated; p != nil {
		s.own.dedicated = nil
		p.forgetQueued()
		p.drop()
	}
}

// drop closes the connection with all its state; no reply is pending there. A message of which the client has a part comes
// whole first.
func (p *dedicatedConn) drop() {
	ctx, done := p.s.clientContext()
	defer done()
	p.Drop(ctx)
}
