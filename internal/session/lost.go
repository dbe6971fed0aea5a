package session

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
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
	s.error(backend.ErrorLine(err))
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
	return backend.ErrorLine(l.Cause)
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
	s.batch.Out = resp.AppendNullArray(s.batch.Out, s.ident.Proto)
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

const (
	remakeStep   = 2 * time.Second        // for one try
	restorePause = 100 * time.Millisecond // between tries
)

// restore makes the subscriptions, MONITOR and CLIENT TRACKING of a lost connection again on another one, under a client that is
// not closed for the loss. The client is not told: what was published meanwhile is missing, as it is for any subscriber of Redis
// whose connection breaks. What it has cached by CLIENT TRACKING it is told to forget, when the connection is lost, and once
// more when there is another one.
type restore struct {
	s     *Session
	what  dedicated.Remains
	ctx   context.Context
	stop  context.CancelFunc
	ended chan struct{} // closed when its goroutine has ended

	// Guarded by the session's mu.
	p     *dedicatedConn // the new connection; nil: there is none yet
	id    upstream.Identity
	cause error // why the last try failed
}

// Remake starts a restore.
func (p *dedicatedConn) Remake(what dedicated.Remains) {
	r := &restore{s: p.s, what: what, ended: make(chan struct{})}
	r.ctx, r.stop = context.WithCancel(p.s.srv.ctx)
	p.s.own.restore.Store(r)
	go r.run()
}

// run is the goroutine of a restore.
func (r *restore) run() {
	defer close(r.ended)
	defer r.stop()
	s := r.s
	for r.ctx.Err() == nil && !s.guard.Over() {
		s.mu.Lock()
		id := s.ident
		s.mu.Unlock()
		p, line, err := r.make(id)
		if err == nil && r.install(p, id) {
			return
		}
		if p != nil {
			p.Close()
		}
		if err == nil { // it has logged in, or out, meanwhile
			continue
		}
		s.mu.Lock()
		r.cause = err
		s.mu.Unlock()
		if backend.PasswordRefused(err) || strings.HasPrefix(line, "NOPERM ") || strings.HasPrefix(line, "NOAUTH ") || s.lockless() {
			s.guard.Cut(downstream.Left, "what its connection upstream had could not be made again: "+err.Error())
			return
		}
		retry.Sleep(s.srv.ctx, restorePause, r.ctx.Done())
	}
}

// make tries it once, as id. line is the error of Redis', if it was that.
func (r *restore) make(id upstream.Identity) (p *dedicatedConn, line string, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, remakeStep)
	defer cancel()
	if p, err = r.s.connect(ctx, id, r.s.srv.up.backend.Node(), nil, &r.s.own.view); err != nil {
		return nil, "", err
	}
	p.Remaking()
	for _, e := range r.what.Calls(r.s.srv.find) {
		if !p.Exchange(ctx, e.Reply, e.Raw) {
			return p, "", &upstream.NotSentError{Cause: dedicated.ErrGone}
		}
		if line, bad := resp.ErrorLine(*e.Got); bad {
			return p, line, &upstream.ReplyError{Line: line}
		}
	}
	return p, "", nil
}

// install has the session use p from now on, if it still is who it was.
func (r *restore) install(p *dedicatedConn, id upstream.Identity) bool {
	return p.Made(func() (same bool) {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		if same = r.s.ident == id; same {
			r.p, r.id = p, id
		}
		return same
	})
}

// mutes says that c, which may be nil, is subject to the rules for a subscriber in RESP2.
func (r *restore) mutes(c *commandtable.Command) bool {
	return r != nil && r.what.Mute && (c == nil || !c.Always)
}

// takeRestored is the connection that a restore has made, if it has, which is the session's own from now on.
func (s *Session) takeRestored() *dedicatedConn {
	r := s.own.restore.Load()
	if r == nil {
		return nil
	}
	s.mu.Lock()
	p, id := r.p, r.id
	s.mu.Unlock()
	if p == nil || !s.own.restore.CompareAndSwap(r, nil) { // or it is lost again
		return nil
	}
	if id != s.ident {
		p.Redo()
		return nil
	}
	s.own.dedicated = p
	return s.currentDedicated()
}

// awaitRestored is takeRestored, within the time for which a client is patient.
func (s *Session) awaitRestored(r *restore) (*dedicatedConn, error) {
	ctx, done := s.clientContext()
	defer done()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case <-r.ended:
	case <-ctx.Done():
	}
	if p := s.takeRestored(); p != nil {
		return p, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.cause == nil {
		return nil, &upstream.NotSentError{Cause: dedicated.ErrGone}
	}
	return nil, r.cause
}

// dropRestore ends a restore, and what it has made.
func (s *Session) dropRestore() {
	for r := s.own.restore.Swap(nil); r != nil; r = s.own.restore.Swap(nil) { // another one begins if that is lost just now
		r.stop()
		<-r.ended
		if p := r.p; p != nil {
			p.Close()
		}
	}
}

// find is what the table says of a command that has no subcommands.
func (s *Server) find(name string) *commandtable.Command {
	c, _ := s.facts.table.Load().find([][]byte{[]byte(name)})
	return c
}
