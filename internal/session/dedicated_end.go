package session

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
)

// giveBackIfUnused gives the connection back when nothing speaks against it.
func (p *dedicated) giveBackIfUnused() {
	if p.held || p.released || p.passing || len(p.head) > 0 || len(p.pending) > 0 || !p.state.none() || p.view.targets.Load() > 0 {
		return
	}
	p.leave()
	p.show()
	if p.tainted || p.state.proto != p.conn.Identity.Proto || p.view.named.Load() > 0 || p.view.targets.Load() > 0 {
		p.conn.Close()
		return
	}
	p.conn.Identity.DB = p.state.db
	p.conn.GiveBack()
}

// leave notes that the connection is given back or lost, and lets go of its node.
func (p *dedicated) leave() {
	p.released = true
	p.dropTargets(0)
	if p.node != nil {
		p.s.srv.o.Cluster.Release(p.node)
	}
}

const lastReplies = 2 * time.Second // for the pending replies of a client that has gone

// FlushReplies has the pending replies come before the error that ends the connection, but for those that wait.
func (s *Session) FlushReplies() {
	if p := s.dedicated; p != nil {
		p.mu.Lock()
		blocked := p.blocked()
		p.mu.Unlock()
		if !blocked {
			ctx, cancel := context.WithTimeout(s.srv.ctx, lastReplies)
			p.await(ctx, 0)
			cancel()
		}
	}
}

// endDedicated ends the session's own connection. Replies to commands that do not wait come first, so that their outcome is
// known; so is a waiting one's when locks hang on it.
func (s *Session) endDedicated() {
	if p := s.dedicated; p != nil {
		s.dedicated = nil
		s.end(p)
	}
	s.dropRestore()
}

// end is endDedicated of any connection that is this session's alone.
func (s *Session) end(p *dedicated) {
	p.forgetQueued()
	// One that half closes and does not read must not keep its locks either.
	defer time.AfterFunc(lastReplies, func() { s.guard.CloseNow() }).Stop()
	p.mu.Lock()
	p.held = true // nobody else's command is to be unblocked
	blocked, alone := p.blocked(), len(p.pending) == 1
	p.mu.Unlock()
	if blocked && alone && s.held() > 0 && s.unblock(p) {
		blocked = false
	}
	if how, _ := s.guard.Ending(); how == downstream.Gone && !blocked {
		ctx, cancel := context.WithTimeout(s.srv.ctx, lastReplies)
		p.await(ctx, 0)
		cancel()
	}
	p.mu.Lock()
	doubt := p.doubt
	for _, e := range p.pending {
		doubt = doubt || !e.own && (e.cmd == nil || !e.cmd.ReadOnly)
	}
	p.dropLocked()
	p.mu.Unlock()
	if l := s.engine.Load(); l != nil && doubt {
		l.Doubt()
	}
}

// dropDedicated closes the session's own connection with all its state; no reply is pending there.
func (s *Session) dropDedicated() {
	if p := s.dedicated; p != nil {
		s.dedicated = nil
		p.forgetQueued()
		p.drop()
	}
}

// drop closes the connection with all its state; no reply is pending there. A message of which the client has a part comes
// whole first.
func (p *dedicated) drop() {
	ctx, done := p.s.clientContext()
	defer done()
	p.awaitThat(ctx, func() bool { return !p.to.Within() })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked()
}

func (p *dedicated) dropLocked() {
	if p.released {
		return
	}
	p.leave()
	p.conn.Close()
	p.state = dedicatedState{}
	p.clearPending()
	p.show()
	p.to.GiveUp("left within a reply")
}
