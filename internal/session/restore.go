package session

import (
	"context"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// restore makes the subscriptions, MONITOR and CLIENT TRACKING of a lost connection again on another one, under a client that is
// not closed for the loss. The client is not told: what was published meanwhile is missing, as it is for any subscriber of Redis
// whose connection breaks. What it has cached by CLIENT TRACKING it is told to forget, when the connection is lost, and once
// more when there is another one.
type restore struct {
	s     *Session
	what  restorable
	mon   bool // MONITOR was on
	mute  bool // the client speaks RESP2, and is subscribed
	ctx   context.Context
	stop  context.CancelFunc
	ended chan struct{} // closed when its goroutine has ended

	// Guarded by the session's mu.
	p     *dedicated // the new connection; nil: there is none yet
	id    upstream.Identity
	cause error // why the last try failed
}

// forgetAll tells a client in RESP3 that nothing it has cached is valid.
var forgetAll = append(resp.AppendBulkString(resp.AppendPush(nil, 3, 2), "invalidate"), "_\r\n"...)

// startRestore starts a restore if there is something to make; mu is held.
func (p *dedicated) startRestore() {
	t := &p.state
	if p.making || p.subscriptionConn != nil || !t.kept.wanted || !t.monitor && !t.tracking && t.subscribed() == 0 {
		return
	}
	r := &restore{s: p.s, what: t.kept, mon: t.monitor, mute: t.proto == 2 && t.subscribed() > 0, ended: make(chan struct{})}
	r.ctx, r.stop = context.WithCancel(p.s.srv.ctx)
	p.s.restore.Store(r)
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
			p.mu.Lock()
			p.dropLocked()
			p.mu.Unlock()
		}
		if err == nil { // it has logged in, or out, meanwhile
			continue
		}
		s.mu.Lock()
		r.cause = err
		s.mu.Unlock()
		if passwordRefused(err) || strings.HasPrefix(line, "NOPERM ") || strings.HasPrefix(line, "NOAUTH ") || s.lockless() {
			s.guard.Cut(downstream.Left, "what its connection upstream had could not be made again: "+err.Error())
			return
		}
		retry.Sleep(s.srv.ctx, restorePause, r.ctx.Done())
	}
}

// make tries it once, as id. line is the error of Redis', if it was that.
func (r *restore) make(id upstream.Identity) (p *dedicated, line string, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, remakeStep)
	defer cancel()
	if p, err = r.s.connect(ctx, id, r.s.srv.o.Node, nil, &r.s.view); err != nil {
		return nil, "", err
	}
	p.mu.Lock()
	p.making = true
	p.mu.Unlock()
	for _, e := range r.calls() {
		if !p.exchange(ctx, e.pendingReply, e.raw) {
			return p, "", &upstream.NotSentError{Cause: errGone}
		}
		if line, bad := isError(*e.got); bad {
			return p, line, &upstream.ReplyError{Line: line}
		}
	}
	return p, "", nil
}

// call is a command of the proxy's own.
type call struct {
	*pendingReply
	raw []byte
}

// calls are what is to be sent.
func (r *restore) calls() (all []call) {
	add := func(k commandtable.ConnKind, args int, f effect, words ...string) {
		e := &pendingReply{kind: k, args: args, effect: f, own: true, got: new(gathered)}
		e.cmd, _ = r.s.srv.table.Load().find([][]byte{[]byte(words[0])})
		all = append(all, call{e, resp.AppendCommand(nil, words...)})
	}
	for _, f := range r.what.tracking {
		add(commandtable.ConnTracking, 0, f, "CLIENT")
		all[len(all)-1].raw = []byte(f.call)
	}
	for kind, verb := range subscribeVerbs {
		words := []string{verb}
		for sub := range r.what.subs {
			if sub.kind == subscriptionKind(kind) {
				words = append(words, sub.name)
			}
		}
		if len(words) > 1 {
			add(commandtable.ConnSubscribe, len(words)-1, effect{}, words...)
		}
	}
	if r.mon {
		add(commandtable.ConnMonitor, 0, effect{}, "MONITOR")
	}
	return all
}

// install has the session use p from now on, if it still is who it was.
func (r *restore) install(p *dedicated, id upstream.Identity) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return false
	}
	r.s.mu.Lock()
	same := r.s.ident == id
	if same {
		r.p, r.id = p, id
	}
	r.s.mu.Unlock()
	if !same {
		return false
	}
	p.making = false
	if p.state.tracking {
		p.out = append(p.out, forgetAll...)
		p.whole = len(p.out)
		p.write(false)
	}
	return true
}

// mutes says that c, which may be nil, is subject to the rules for a subscriber in RESP2.
func (r *restore) mutes(c *commandtable.Command) bool {
	return r != nil && r.mute && (c == nil || !c.Always)
}

// takeRestored is the connection that a restore has made, if it has, which is the session's own from now on.
func (s *Session) takeRestored() *dedicated {
	r := s.restore.Load()
	if r == nil {
		return nil
	}
	s.mu.Lock()
	p, id := r.p, r.id
	s.mu.Unlock()
	if p == nil || !s.restore.CompareAndSwap(r, nil) { // or it is lost again
		return nil
	}
	if id != s.ident {
		p.mu.Lock()
		if !p.released {
			p.startRestore()
			p.dropLocked()
		}
		p.mu.Unlock()
		return nil
	}
	s.dedicated = p
	return s.currentDedicated()
}

// awaitRestored is takeRestored, within the time for which a client is patient.
func (s *Session) awaitRestored(r *restore) (*dedicated, error) {
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
		return nil, &upstream.NotSentError{Cause: errGone}
	}
	return nil, r.cause
}

// dropRestore ends a restore, and what it has made.
func (s *Session) dropRestore() {
	for r := s.restore.Swap(nil); r != nil; r = s.restore.Swap(nil) { // another one begins if that is lost just now
		r.stop()
		<-r.ended
		if p := r.p; p != nil {
			p.mu.Lock()
			p.dropLocked()
			p.mu.Unlock()
		}
	}
}

// exchange sends a command of the proxy's own, past the session's goroutine, and waits for its reply. A Redis that does
// not answer before ctx's end loses the connection.
func (p *dedicated) exchange(ctx context.Context, e *pendingReply, raw []byte) bool {
	p.mu.Lock()
	if p.released {
		p.mu.Unlock()
		return false
	}
	p.addPending(e)
	raw = append(p.queue, raw...) // a new connection's name goes ahead
	p.queue = nil
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, p.conn.Close)
	_ = p.conn.Write(raw) // Ended tells
	return p.await(ctx, 0) && stop() && e.lost == nil
}
