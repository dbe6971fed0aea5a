package session

import (
	"errors"
	"strings"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Redis ends its clients' connections when it goes away. Libraries know what to do then: they connect again, and send again
// what may be sent again. To an error they do nothing: the application gets it. So a client is closed where Redis would have
// closed it: when one of its commands has no reply because the connection upstream broke, or could not be made. Its commands
// before that have their replies. A client that holds locks, or does not know yet that it has lost one, is not closed, because
// they end with its connection: it gets an error in place of each reply, and for what else was lost see lostState and restore.
// The lock verbs answer in their own words always. See docs/adr/0018-a-lost-connection-looks-like-one.md.

// lostUpstream says that err is about the connection to Redis, and neither an answer that Redis gave nor a bound of this proxy's.
func lostUpstream(err error) bool {
	if backend.TooMany(err) {
		return false
	}
	var lost *upstream.LostError
	var unsent *upstream.NotSentError
	return errors.As(err, &lost) || errors.As(err, &unsent)
}

// closesFor says that the client is to be closed, and told nothing, for a command that failed with err.
func (s *Session) closesFor(err error) bool {
	return lostUpstream(err) && !errors.Is(err, upstream.ErrTimeout) && s.lockless()
}

// lockless says that the client holds no locks, and knows of all that it has lost.
func (s *Session) lockless() bool {
	return s.held() == 0 && !s.locks.untold.Load() // in this order: a lock is lost before the session is told
}

// fail answers a command that failed with err, or closes the client.
func (s *Session) fail(err error) {
	if s.closesFor(err) {
		s.guard.HangUp(downstream.Left, upstreamLost(err))
		s.replies.finish = true
		return
	}
	s.error(errorLine(err))
}

// upstreamLost is why a client was closed, for the log.
func upstreamLost(err error) string { return "its connection upstream was lost: " + err.Error() }

// lostState is what must not be forgotten of a client's own connection that was lost, or could not be made, while the client
// stays. The commands of a transaction would be run by themselves now: until EXEC or DISCARD each gets an error, and EXEC the
// one that Redis gives when a transaction cannot be run. A watched key may have changed: the next EXEC is answered null.
type lostState struct{ dedicated.Lost }

func (l *lostState) any() bool { return l.Multi || l.Watch }

// addLostState adds to what was lost.
func (s *Session) addLostState(l dedicated.Lost) {
	s.own.lostState.Multi, s.own.lostState.Watch = s.own.lostState.Multi || l.Multi, s.own.lostState.Watch || l.Watch
	if s.own.lostState.Cause == nil {
		s.own.lostState.Cause = l.Cause
	}
	if s.own.lostState.Multi {
		s.own.view.Multi.Store(1)
	}
}

func (l *lostState) clear(s *Session) {
	if l.Multi {
		s.own.view.Multi.Store(0)
	}
	if l.any() && s.own.dedicated == nil {
		s.own.view.Watch.Store(false)
		s.own.view.Watched.Store(0)
	}
	*l = lostState{}
}

// line is the cause as an error, without a word on what was sent.
func (l *lostState) line() string {
	var lost *upstream.LostError
	switch {
	case errors.As(l.Cause, &lost) && errors.Is(l.Cause, upstream.ErrTimeout):
		return "ERR upstream timeout"
	case errors.As(l.Cause, &lost):
		return "ERR upstream connection lost"
	}
	return errorLine(l.Cause)
}

// afterLoss answers what is not to be run for what was lost; false: the command is run as ever. p is the session's own
// connection now, nil if it has none.
func (s *Session) afterLoss(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) bool {
	if c != nil && c.Always { // QUIT, RESET
		return false
	}
	kind, alone := commandtable.ConnNone, len(cmd.Args) == 1
	if c != nil {
		kind = c.Conn
	}
	ends := alone && (kind == commandtable.ConnExec || kind == commandtable.ConnDiscard)
	if s.own.lostState.Multi {
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
		if s.forward(); !p.Settled() {
			return true
		}
		if p = s.currentDedicated(); s.own.lostState.Multi {
			s.inLostTransaction(kind, ends)
			return true
		}
		multi = p != nil && p.InTransaction()
	}
	if multi != ends { // there is nothing to end, or UNWATCH is queued
		return false
	}
	s.own.lostState.clear(s)
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
	line := s.own.lostState.line()
	switch {
	case ends && k == commandtable.ConnExec:
		s.own.lostState.clear(s)
		s.error("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(line, "ERR "))
	case ends:
		s.own.lostState.clear(s)
		s.ok()
	case k == commandtable.ConnMulti:
		s.error("ERR MULTI calls can not be nested")
	default:
		s.error(line + ": the transaction is discarded, EXEC or DISCARD ends it")
	}
}

// notSent answers e's command, which came as its connection had just been lost.
func (s *Session) notSent(e *dedicated.Reply) {
	s.currentDedicated() // notes what was lost
	if s.own.lostState.Multi {
		s.inLostTransaction(e.Kind, e.Args == 0 && (e.Kind == commandtable.ConnExec || e.Kind == commandtable.ConnDiscard))
		return
	}
	s.notBegun(e.Kind, &upstream.NotSentError{Cause: dedicated.ErrGone})
}
