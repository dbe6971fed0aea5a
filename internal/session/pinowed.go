package session

// No more is read from a client that is owed so many replies, until half of them are there. Behind a command that waits there
// are fewer: it may wait for ever.
const (
	mostOwed   = 1 << 14
	mostBehind = 1 << 10
)

// What is kept for a reply that is owed, and for a queued command that does something to the connection, about. Both count
// for --max-reply-memory.
const (
	owedBytes   = 352
	insideBytes = 512
)

// The replies that a session's own connection owes. pinned.mu is held in all of this.

// owe notes that a reply is owed for e.
func (p *pinned) owe(e *expect) {
	p.owed = append(p.owed, e)
	if e.blocks {
		p.waits++
	}
	if e.shuts {
		p.s.srv.shutting.Add(1)
	}
	p.count()
	p.lookOut()
}

// count has the budgets know what is kept.
func (p *pinned) count() {
	p.kept.Set(len(p.owed)*owedBytes + len(p.state.inside)*insideBytes + p.state.kept.bytes)
}

// oldest is the command whose reply comes next.
func (p *pinned) oldest() *expect {
	if len(p.owed) == 0 || p.state.stray {
		return nil
	}
	return p.owed[0]
}

// pay takes the oldest command off the list.
func (p *pinned) pay() {
	if p.owed[0].blocks {
		p.waits--
	}
	if p.owed[0].shuts {
		p.s.srv.shutting.Add(-1)
	}
	p.owed[0] = nil
	if p.owed = p.owed[1:]; len(p.owed) == 0 {
		p.owed = nil
	}
	p.count()
}

// oweNothing forgets the list: the connection is over.
func (p *pinned) oweNothing() {
	for _, e := range p.owed {
		if e.shuts {
			p.s.srv.shutting.Add(-1)
		}
	}
	p.owed, p.waits = nil, 0
	p.count()
}

// blocked says that a command which may wait is under way.
func (p *pinned) blocked() bool { return p.waits > 0 }
