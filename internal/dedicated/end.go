package dedicated

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/upstream"
)

// Lost is what is remembered of a connection that was lost while its client stays.
type Lost struct {
	Multi, Watch bool
	Cause        error
}

// Held is what Hold finds.
type Held struct {
	Released bool
	Unknown  bool  // it ended with a command whose outcome is unknown
	Lost     *Lost // what was lost with it
	DB       int   // SELECT within a transaction may have changed it
}

// Hold keeps the connection from being given back until Release, if it still is there.
func (p *Conn) Hold() Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == free {
		p.life = held
	}
	return Held{p.life.over(), p.unknown, p.lost, p.said.state.db}
}

// Release says that the connection is not about to be used: it may be given back.
func (p *Conn) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == held {
		p.life = free
		p.idle()
	}
}

// Released says whether it is given back or lost.
func (p *Conn) Released() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life.over()
}

// idle is called when a command may have been the last for now. Once none is under way, about to be sent or queued, the
// host is told where invalidations go, and the connection is given back if Redis keeps nothing for it.
func (p *Conn) idle() {
	s := &p.said.state
	if p.life != free || p.said.pending.oldest() != nil || s.multi() {
		return
	}
	p.Host.Idle(s.tracking.now.To.Client)
	if s.none() && p.frame.none() && p.View.Targets.Load() == 0 {
		p.giveBack()
	}
}

// giveBack gives the connection back, or closes it if another client could not use it as a new one.
func (p *Conn) giveBack() {
	p.leave(left, "")
	p.show()
	used := p.View.Named.Load() + p.View.Targets.Load() // after RedisID is hidden
	if p.tainted || p.said.state.proto != p.conn.Identity.Proto || used > 0 {
		p.conn.Close()
		return
	}
	p.conn.Identity.DB = p.said.state.db
	p.conn.GiveBack()
}

// leave notes that the connection is given back, closed, or lost: nothing that was kept for it counts from now on. A
// client that has a part of a reply is cut off, as why says.
func (p *Conn) leave(to life, why string) {
	p.life = to
	p.silence.stop()
	p.unknown = p.said.pending.any((*Reply).changes)
	p.kept.Set(0)
	p.out.cut(why)
	p.Host.Left()
	if p.said.pending.oldest() != nil { // it may have changed rights
		p.Host.RightsChanged(true)
	}
	p.changed.Broadcast()
}

// Drop closes the connection with all its state; no reply is pending there. If the client has a part of a message, the
// rest comes first, unless ctx ends.
func (p *Conn) Drop(ctx context.Context) {
	p.awaitWhole(ctx)
	p.Close()
}

// Close closes the connection with all its state, and says whether that leaves the outcome of a command unknown.
func (p *Conn) Close() (unknown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.life.over() {
		p.leave(left, "left within a reply")
		p.conn.Close()
		p.said = conversation{interceptor: p.said.interceptor}
		p.show()
	}
	return p.unknown
}

// Ended implements upstream.Receiver: the connection is over. Its user calls it, too, to give the connection up as if
// Redis had ended it: what is pending there is lost.
func (p *Conn) Ended(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(cause)
}

// EndedUnsubscribed is Ended unless there are subscriptions, which need this connection.
func (p *Conn) EndedUnsubscribed(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said.state.subs.total() == 0 {
		p.end(cause)
	}
}

// end is called when the connection is lost; mu is held. The client is closed, as Redis would have closed it, if
// replies are pending, or if a transaction or subscriptions are lost. A client that holds locks stays, unless it would
// miss messages, and gets an error in place of each reply.
func (p *Conn) end(err error) {
	if p.life.over() {
		return
	}
	p.leave(lost, "upstream lost within a reply")
	p.conn.Close()
	cause := &upstream.LostError{Cause: err}
	closes := p.closesClient(p.Client.Closes(cause))
	if !closes {
		p.stays(cause)
	}
	for _, e := range p.said.pending.all {
		e.Lost = err
	}
	p.said.pending.clear()
	p.said.state.subs.all = nil
	p.frame.clear()
	p.out.end()
	p.out.flush()
	if closes {
		p.Client.End.Cut(downstream.Left, client.WhyLost(err))
	}
	p.Client.Process.LearnAgain()
	p.show() // before another connection shows itself in the same view
	p.changed.Broadcast()
}

// closesClient says that the client is to be closed for the loss of this connection. Even one that is not lockless is
// closed if messages come by it, its own, or invalidations that other clients have redirected to it: some would be lost,
// and nothing is made again behind a client's back.
func (p *Conn) closesClient(lockless bool) bool {
	s := &p.said.state
	switch {
	case s.hears(), p.View.Targets.Load() > 0:
		return true
	case !lockless:
		return false
	}
	return !s.none() || p.said.pending.any((*Reply).closesClient)
}

// stays answers what is pending under a client that stays, and notes what was lost.
func (p *Conn) stays(cause error) {
	p.out.add(p.said.lost(client.ErrorLine(cause)))
	s := &p.said.state
	p.lost = &Lost{Multi: s.multi(), Watch: s.watched > 0, Cause: cause}
}
