package session

import (
	"context"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

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
