package session

// No more is read from a client with so many pending replies, until half of them are there. Behind a command that waits there
// are fewer: it may wait for ever.
const (
	mostPending        = 1 << 14
	mostPendingBlocked = 1 << 10
)

// What is kept for a pending reply, and for a queued command that does something to the connection, about. Both count
// for --max-reply-memory.
const (
	pendingBytes = 352
	effectBytes  = 512
)

// The pending replies of a session's own connection. dedicated.mu is held in all of this.

// addPending notes that the reply to e is pending.
func (p *dedicated) addPending(e *pendingReply) {
	p.pending = append(p.pending, e)
	if e.blocks {
		p.waits++
	}
	if e.shuts {
		p.s.srv.shutting.Add(1)
	}
	p.count()
	p.watchTimeout()
}

// count has the budgets know what is kept.
func (p *dedicated) count() {
	p.kept.Set(len(p.pending)*pendingBytes + len(p.state.inside)*effectBytes + p.state.kept.bytes)
}

// oldest is the command whose reply comes next.
func (p *dedicated) oldest() *pendingReply {
	if len(p.pending) == 0 || p.state.stray {
		return nil
	}
	return p.pending[0]
}

// popPending takes the oldest command off the list.
func (p *dedicated) popPending() {
	if p.pending[0].blocks {
		p.waits--
	}
	if p.pending[0].shuts {
		p.s.srv.shutting.Add(-1)
	}
	p.pending[0] = nil
	if p.pending = p.pending[1:]; len(p.pending) == 0 {
		p.pending = nil
	}
	p.count()
}

// clearPending forgets the list: the connection is over.
func (p *dedicated) clearPending() {
	for _, e := range p.pending {
		if e.shuts {
			p.s.srv.shutting.Add(-1)
		}
	}
	p.pending, p.waits = nil, 0
	p.count()
}

// blocked says that a command which may wait is under way.
func (p *dedicated) blocked() bool { return p.waits > 0 }
