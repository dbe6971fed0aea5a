package session

import (
	"errors"
	"strings"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// lostState is what must not be forgotten of a client's own connection that was lost, or could not be made, while the client
// stays. The commands of a transaction would be run by themselves now: until EXEC or DISCARD each gets an error, and EXEC the
// one that Redis gives when a transaction cannot be run. A watched key may have changed: the next EXEC is answered null.
type lostState struct {
	multi, watch bool
	cause        error
}

func (l *lostState) any() bool { return l.multi || l.watch }

// addLostState adds to what was lost.
func (s *Session) addLostState(l lostState) {
	s.lostState.multi, s.lostState.watch = s.lostState.multi || l.multi, s.lostState.watch || l.watch
	if s.lostState.cause == nil {
		s.lostState.cause = l.cause
	}
	if s.lostState.multi {
		s.view.multi.Store(1)
	}
}

func (l *lostState) clear(s *Session) {
	if l.multi {
		s.view.multi.Store(0)
	}
	if l.any() && s.dedicated == nil {
		s.view.watch.Store(false)
		s.view.watched.Store(0)
	}
	*l = lostState{}
}

// line is the cause as an error, without a word on what was sent.
func (l *lostState) line() string {
	var lost *upstream.LostError
	switch {
	case errors.As(l.cause, &lost) && errors.Is(l.cause, upstream.ErrTimeout):
		return "ERR upstream timeout"
	case errors.As(l.cause, &lost):
		return "ERR upstream connection lost"
	}
	return errorLine(l.cause)
}

// afterLoss answers what is not to be run for what was lost; false: the command is run as ever. p is the session's own
// connection now, nil if it has none.
func (s *Session) afterLoss(p *dedicated, cmd redcon.Command, c *commandtable.Command) bool {
	if c != nil && c.Always { // QUIT, RESET
		return false
	}
	kind, alone := commandtable.ConnNone, len(cmd.Args) == 1
	if c != nil {
		kind = c.Conn
	}
	ends := alone && (kind == commandtable.ConnExec || kind == commandtable.ConnDiscard)
	if s.lostState.multi {
		s.forward()
		if !s.guard.Over() {
			s.inLostTransaction(kind, ends)
		}
		return true
	}
	if !ends && (kind != commandtable.ConnUnwatch || !alone) {
		return false
	}
	multi := false
	if p != nil { // it may be within another transaction, or lose that just now
		defer s.release()
		if s.forward(); !p.settled() {
			return true
		}
		if p = s.currentDedicated(); s.lostState.multi {
			s.inLostTransaction(kind, ends)
			return true
		}
		multi = p.modes()
	}
	if multi != ends { // there is nothing to end, or UNWATCH is queued
		return false
	}
	s.lostState.clear(s)
	if kind != commandtable.ConnExec {
		return false
	}
	p.forgetQueued()
	s.discard(p)
	s.batch.out = resp.AppendNullArray(s.batch.out, s.ident.Proto)
	return true
}

// inLostTransaction answers a command within a transaction that was lost.
func (s *Session) inLostTransaction(k commandtable.ConnKind, ends bool) {
	line := s.lostState.line()
	switch {
	case ends && k == commandtable.ConnExec:
		s.lostState.clear(s)
		s.error("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(line, "ERR "))
	case ends:
		s.lostState.clear(s)
		s.ok()
	case k == commandtable.ConnMulti:
		s.error("ERR MULTI calls can not be nested")
	default:
		s.error(line + ": the transaction is discarded, EXEC or DISCARD ends it")
	}
}

// notSent answers e's command, which came as its connection had just been lost.
func (s *Session) notSent(e *pendingReply) {
	s.currentDedicated() // notes what was lost
	if s.lostState.multi {
		s.inLostTransaction(e.kind, e.args == 0 && (e.kind == commandtable.ConnExec || e.kind == commandtable.ConnDiscard))
		return
	}
	s.notBegun(e.kind, &upstream.NotSentError{Cause: errGone})
}

// closesClient says that the client is to be closed for the loss of this connection; mu is held, here and below. That is so for a
// client that stays otherwise when it has a part of EXEC's confirmations, or when invalidations were to come from here to
// another client or from there to here: they would be lost.
func (p *dedicated) closesClient(lost error) bool {
	if !p.s.closesFor(lost) {
		return p.state.stray || p.state.redirect.client != 0 && p.state.tracking || p.view.targets.Load() > 0
	}
	closes := !p.state.none() && p.subscriptionConn == nil
	for _, e := range p.pending {
		closes = closes || e.kind.CannotFail() || e.got == nil && !e.own
	}
	return closes
}

// answerLost gives a client that stays something in place of each pending reply, and notes what was lost. A
// transaction without EXEC has surely not run.
func (p *dedicated) answerLost(lost error) {
	multi, watch := p.state.multi, p.state.watch
	for _, e := range p.pending {
		if e.got != nil || e.own {
			continue
		}
		ok, ends := false, multi && e.args == 0
		switch {
		case e.kind == commandtable.ConnMulti && !multi:
			ok, multi = true, true
		case e.kind == commandtable.ConnDiscard && ends:
			ok, multi, watch = true, false, false
		case e.kind == commandtable.ConnExec && ends, e.kind == commandtable.ConnUnwatch && !multi:
			multi, watch = false, false
		case e.kind == commandtable.ConnWatch && !multi:
			watch = true
		}
		switch {
		case e.quiet:
		case ok:
			p.out = resp.AppendSimple(p.out, "OK")
		default:
			p.out = resp.AppendError(p.out, errorLine(lost))
		}
	}
	if p.state.tracking {
		p.out = append(p.out, forgetAll...)
	}
	if p.subscriptionConn == nil {
		p.lostState = &lostState{multi: multi, watch: watch, cause: lost}
		p.state.multi, p.state.watch, p.state.queued = multi, watch, 0
	}
}
