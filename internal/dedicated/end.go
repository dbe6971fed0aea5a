package dedicated

import (
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/upstream"
)

// Lost is what is remembered of a connection that was lost while its client stays.
type Lost struct {
	Multi, Watch bool
	Cause        error
}

// GiveBack gives the connection back if Redis keeps nothing for its client, or closes it if another client could not use
// it as a new one; false: Redis keeps something, or a reply is pending.
func (p *Conn) GiveBack() bool {
	p.halt()
	switch {
	case p.over:
		return true
	case p.said.pending.oldest() != nil, !p.said.state.none(), !p.frame.none(), p.View.Targets.Load() > 0:
		return false
	}
	p.leave("")
	p.show()
	used := p.View.Named.Load() + p.View.Targets.Load() // after RedisID is hidden
	if p.tainted || p.said.state.proto != p.conn.Identity.Proto || used > 0 {
		p.conn.Close()
		return true
	}
	p.conn.Identity.DB = p.said.state.db
	p.conn.GiveBack()
	return true
}

// leave notes that the connection is given back, closed, or lost: nothing that was kept for it counts from now on. A
// client that has a part of a reply is cut off, as why says.
func (p *Conn) leave(why string) {
	p.over = true
	p.unknown = p.said.pending.any((*Reply).changes)
	p.kept.Set(0)
	p.out.cut(why)
	if p.stop != nil && !p.stop() {
		p.tainted = true
	}
	if p.said.pending.oldest() != nil { // it may have changed rights
		p.RightsChanged(true)
	}
}

// Close closes the connection with all its state.
func (p *Conn) Close() {
	p.halt()
	if !p.over {
		p.leave("left within a reply")
		p.conn.Close()
		p.said = conversation{interceptor: p.said.interceptor}
		p.show()
	}
}

// Lose gives the connection up as if Redis had ended it: what is pending there is lost.
func (p *Conn) Lose(cause error) {
	p.halt()
	p.Client.Flush()
	p.end(cause)
}

// end is called when the connection is lost. The client is closed, as Redis would have closed it, if
// replies are pending, or if a transaction or subscriptions are lost. A client that holds locks stays, unless it would
// miss messages, and gets an error in place of each reply.
func (p *Conn) end(err error) {
	if p.over {
		return
	}
	p.leave("upstream lost within a reply")
	p.conn.Close()
	cause := &upstream.LostError{Cause: err}
	closes := p.closesClient(p.Client.Closes(cause))
	if !closes {
		p.out.add(p.said.lost(client.ErrorLine(cause)))
	}
	p.lost = &Lost{Multi: p.said.state.multi(), Watch: p.said.state.watched > 0, Cause: cause}
	for _, e := range p.said.pending.all {
		e.Lost = err
	}
	p.said.pending = queue{}
	p.said.state.subs.all = nil
	p.frame.clear()
	p.out.end()
	p.out.flush()
	if closes {
		p.Client.End.Cut(downstream.Left, client.WhyLost(err))
	}
	p.Client.Process.LearnAgain()
	p.show() // before another connection shows itself in the same view
}

// closesClient says that the client is to be closed for the loss of this connection. Even one that is not lockless is
// closed if messages come by it, its own, or invalidations that other clients have redirected to it: some would be lost,
// and nothing is made again behind a client's back.
func (p *Conn) closesClient(lockless bool) bool {
	switch {
	case p.hears():
		return true
	case !lockless:
		return false
	}
	return !p.said.state.none() || p.said.pending.any((*Reply).closesClient)
}
