package dedicated

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
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
	Doubt    bool  // it ended with a command whose outcome is unknown
	Lost     *Lost // what was lost with it
	DB       int   // SELECT within a transaction may have changed it
}

// Hold keeps the connection from being given back until Release, if it still is there.
func (p *Conn) Hold() Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life.held = !p.life.released
	return Held{p.life.released, p.life.doubt, p.life.lost, p.state.db}
}

// Release says that the connection is not about to be used: it may be given back.
func (p *Conn) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life.held = false
	p.idle()
	p.giveBackIfUnused()
}

// Released says whether it is given back or lost.
func (p *Conn) Released() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life.released
}

// giveBackIfUnused gives the connection back if no reply is pending and Redis keeps no state for it.
func (p *Conn) giveBackIfUnused() {
	if p.life.held || p.life.released || p.frame.passing || len(p.frame.head) > 0 || len(p.pending.all) > 0 || !p.state.none() || p.View.Targets.Load() > 0 {
		return
	}
	p.leave()
	p.show()
	if p.life.tainted || p.state.proto != p.conn.Identity.Proto || p.View.Named.Load() > 0 || p.View.Targets.Load() > 0 {
		p.conn.Close()
		return
	}
	p.conn.Identity.DB = p.state.db
	p.conn.GiveBack()
}

// leave notes that the connection is given back or lost: nothing that was kept for it counts from now on.
func (p *Conn) leave() {
	p.life.released = true
	p.pending.kept.Set(0)
	p.Host.Left()
	p.changed.Broadcast()
}

// Drop closes the connection with all its state; no reply is pending there. If the client has a part of a message, the
// rest comes first, unless ctx ends.
func (p *Conn) Drop(ctx context.Context) {
	p.awaitWhole(ctx)
	p.Close()
}

// awaitWhole waits until the client has no part of a message, or ctx ends.
func (p *Conn) awaitWhole(ctx context.Context) {
	p.awaitThat(ctx, func() bool { return !p.out.to.Within() })
}

// Close closes the connection with all its state, and says whether that leaves the outcome of a command unknown.
func (p *Conn) Close() (doubt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	doubt = p.life.doubt
	for _, e := range p.pending.all {
		doubt = doubt || !e.Own && (e.Cmd == nil || !e.Cmd.ReadOnly)
	}
	p.dropLocked()
	return doubt
}

// GiveUp ends the connection, for the cause given, as if Redis had: what is pending there is lost.
func (p *Conn) GiveUp(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.released { // somebody else may have it
		return
	}
	p.endLocked(cause)
	p.conn.Close()
}

// Lose is Close for a connection with subscriptions, which are made again elsewhere.
func (p *Conn) Lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interceptor.Ended()
	p.dropLocked()
}

func (p *Conn) dropLocked() {
	if p.life.released {
		return
	}
	p.leave()
	p.unanswered()
	p.conn.Close()
	p.state = State{}
	p.pending.clear()
	p.show()
	p.out.to.GiveUp("left within a reply")
}

// unanswered notes that pending commands may have changed rights. mu is held.
func (p *Conn) unanswered() {
	if len(p.pending.all) > 0 {
		p.Host.RightsChanged(true)
	}
}

// Ended implements upstream.Receiver: the connection is over.
func (p *Conn) Ended(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(err)
}

// endLocked is called when the connection is lost; mu is held. The client is closed, as Redis would have closed it, if replies are
// pending, or if a transaction or subscriptions are lost. A client that holds locks stays, and gets an error in place of each reply.
func (p *Conn) endLocked(err error) {
	if p.life.released {
		return
	}
	p.leave()
	p.unanswered()
	p.life.ended = true
	p.out.to.GiveUp("upstream lost within a reply")
	p.out.cut()
	p.frame.passing, p.frame.dropping = false, false
	lost := &upstream.LostError{Cause: err}
	closes := p.closesClient(p.Client.Closes(lost))
	if !closes {
		p.answerLost(lost, client.ErrorLine(lost))
	}
	for _, e := range p.pending.all {
		p.life.doubt = p.life.doubt || e.Cmd == nil && !e.Own || e.Cmd != nil && !e.Cmd.ReadOnly
		e.Lost = err
	}
	if p.interceptor != nil {
		p.interceptor.Ended()
	}
	what, any := p.remains()
	p.state.inside, p.state.kept = effects{}, Restorable{}
	p.pending.clear()
	p.out.whole = len(p.out.bytes)
	p.write(false)
	if closes {
		p.Client.End.Cut(downstream.Left, client.WhyLost(err))
	}
	p.Client.Process.LearnAgain()
	p.show() // before another connection shows itself in the same view
	if any && !closes {
		p.Host.Remake(what)
	}
	p.changed.Broadcast()
}

// closesClient says that the client is to be closed for the loss of this connection; mu is held, here and below. Even one that is
// not lockless is closed if it has only a part of EXEC's confirmations, or if invalidations are redirected from this connection
// to another client or from another client to this connection: some would be lost.
func (p *Conn) closesClient(lockless bool) bool {
	if !lockless {
		return p.state.stray || p.state.tracking.redirect.Client != 0 && p.state.tracking.on || p.View.Targets.Load() > 0
	}
	closes := !p.state.none() && p.interceptor == nil
	for _, e := range p.pending.all {
		closes = closes || e.Kind.CannotFail() || e.Got == nil && !e.Own
	}
	return closes
}

// answerLost answers each pending command of a client that stays with an error, or with OK, and notes what
// was lost. MULTI and DISCARD are answered OK: a transaction without EXEC has surely not run.
func (p *Conn) answerLost(lost error, line string) {
	multi, watch := p.state.multi, p.state.watch
	for _, e := range p.pending.all {
		if e.Got != nil || e.Own {
			continue
		}
		ok, ends := false, multi && e.Args == 0
		switch {
		case e.Kind == commandtable.ConnMulti && !multi:
			ok, multi = true, true
		case e.Kind == commandtable.ConnDiscard && ends:
			ok, multi, watch = true, false, false
		case e.Kind == commandtable.ConnExec && ends, e.Kind == commandtable.ConnUnwatch && !multi:
			multi, watch = false, false
		case e.Kind == commandtable.ConnWatch && !multi:
			watch = true
		}
		switch {
		case e.call.quiet:
		case ok:
			p.out.bytes = resp.AppendSimple(p.out.bytes, "OK")
		default:
			p.out.bytes = resp.AppendError(p.out.bytes, line)
		}
	}
	if p.state.tracking.on && p.state.proto == 3 {
		p.out.bytes = append(p.out.bytes, ForgetAll...)
	}
	if p.interceptor == nil {
		p.life.lost = &Lost{Multi: multi, Watch: watch, Cause: lost}
		p.state.multi, p.state.watch, p.state.queued = multi, watch, 0
	}
}
