package session

import (
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// What a session's own connection asks of the session: see dedicated.Host.

var _ dedicated.Host = (*dedicatedConn)(nil)

// Silent implements dedicated.Host.
func (p *dedicatedConn) Silent() bool { return p.s.replies.silent }

// WriteReplies implements dedicated.Host.
func (p *dedicatedConn) WriteReplies() { p.s.flush() }

// Watch implements dedicated.Host.
func (p *dedicatedConn) Watch(run func(context.Context)) { p.s.watched(run) }

// NotSent implements dedicated.Host.
func (p *dedicatedConn) NotSent(e *dedicated.Reply) { p.s.notSent(e) }

// Shutting implements dedicated.Host.
func (p *dedicatedConn) Shutting(more int) { p.s.srv.writes.shutting.Add(int64(more)) }

// RightsChanged implements dedicated.Host.
func (p *dedicatedConn) RightsChanged(last bool) {
	p.s.srv.rightsChanged(p.rights)
	if last {
		p.rights = rightsChange{}
	}
}

// Adopt implements dedicated.Host.
func (p *dedicatedConn) Adopt(pauses time.Duration, settings []dedicated.Setting) {
	p.s.srv.pauseWrites(pauses)
	for _, t := range settings {
		p.s.take(t)
	}
}

// Left implements dedicated.Host.
func (p *dedicatedConn) Left() {
	p.dropTargets(0)
	p.s.pipes.way.left(p.Node)
}

// Loss implements dedicated.Host.
func (p *dedicatedConn) Loss(err error) (closes bool, line string) {
	return p.s.closesFor(err), backend.ErrorLine(err)
}

// Lost implements dedicated.Host.
func (p *dedicatedConn) Lost(err error, closes bool) {
	if closes {
		p.s.guard.Cut(downstream.Left, upstreamLost(err))
	}
	p.s.srv.learnAgain()
}

// openDedicated gives the session a connection of its own.
func (s *Session) openDedicated() (*dedicatedConn, error) {
	return s.pipes.way.openDedicated()
}

// openDedicated gives the session a connection of its own.
func (u *single) openDedicated() (*dedicatedConn, error) {
	s := u.s
	if err := s.refused(); err != nil {
		return nil, err
	}
	if r := s.own.restore.Load(); r != nil {
		return s.awaitRestored(r)
	}
	p, err := s.connect(s.srv.ctx, s.ident, u.node, nil, &s.own.view)
	if err == nil {
		s.own.dedicated = p
	}
	return p, err
}

// connect makes a connection for this session alone at a node, which is one of the cluster's unless that is nil. It is the
// session's own only if it shows itself in the session's view.
func (s *Session) connect(ctx context.Context, id upstream.Identity, n *upstream.Node, of *cluster.Node, v *dedicated.View) (*dedicatedConn, error) {
	p := &dedicatedConn{s: s, slots: dedicatedSlots{watched: backend.NoSlot}}
	p.Conn = dedicated.New(dedicated.Config{Host: p, Client: s.guard, Context: s.srv.ctx, Timeout: s.srv.o.UpstreamTimeout, View: v, Node: of})
	if err := p.Connect(ctx, id, n, s.clientName()); err != nil {
		return nil, err
	}
	return p, nil
}

// FlushReplies has the pending replies come before the error that ends the connection, but for those that wait.
func (s *Session) FlushReplies() {
	if p := s.own.dedicated; p != nil {
		if !p.Status().Blocked {
			ctx, cancel := context.WithTimeout(s.srv.ctx, dedicated.LastReplies)
			p.Await(ctx)
			cancel()
		}
	}
}

// endDedicated ends the session's own connection. Replies to commands that do not wait come first, so that their outcome is
// known; so is a waiting one's when locks hang on it.
func (s *Session) endDedicated() {
	if p := s.own.dedicated; p != nil {
		s.own.dedicated = nil
		s.end(p)
	}
	s.dropRestore()
}

// end is endDedicated of any connection that is this session's alone.
func (s *Session) end(p *dedicatedConn) {
	p.forgetQueued()
	// One that half closes and does not read must not keep its locks either.
	defer time.AfterFunc(dedicated.LastReplies, func() { s.guard.CloseNow() }).Stop()
	p.Hold() // nobody else's command is to be unblocked
	now := p.Status()
	blocked := now.Blocked
	if blocked && now.Pending == 1 && s.held() > 0 && s.unblock(p) {
		blocked = false
	}
	if how, _ := s.guard.Ending(); how == downstream.Gone && !blocked {
		ctx, cancel := context.WithTimeout(s.srv.ctx, dedicated.LastReplies)
		p.Await(ctx)
		cancel()
	}
	doubt := p.Close()
	if l := s.locks.engine.Load(); l != nil && doubt {
		l.Doubt()
	}
}

// dropDedicated closes the session's own connection with all its state; no reply is pending there.
func (s *Session) dropDedicated() {
	if p := s.own.dedicated; p != nil {
		s.own.dedicated = nil
		p.forgetQueued()
		p.drop()
	}
}

// drop closes the connection with all its state; no reply is pending there. A message of which the client has a part comes
// whole first.
func (p *dedicatedConn) drop() {
	ctx, done := p.s.clientContext()
	defer done()
	p.Drop(ctx)
}

// authDedicated logs the session's own connection in as well.
func (s *Session) authDedicated(p *dedicatedConn, args [][]byte) error {
	p.Taint()
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	reply, err := p.Ask(&dedicated.Reply{}, backend.QuestionTime, words...)
	if line, bad := resp.ErrorLine(reply); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	if err == nil {
		p.Authenticated()
	}
	return err
}

// helloDedicated switches the session's own connection to id's protocol, and to its user.
func helloDedicated(p *dedicated.Conn, id upstream.Identity, auth bool) error {
	p.Taint()
	words := []string{"HELLO", strconv.Itoa(id.Proto)}
	if auth {
		words = append(words, "AUTH", userName(id.User), id.Password)
	}
	reply, err := p.Ask(&dedicated.Reply{Effect: dedicated.Effect{Proto: id.Proto}}, backend.QuestionTime, words...)
	if line, bad := resp.ErrorLine(reply); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	if err == nil && auth {
		p.Authenticated()
	}
	return err
}

// dedicatedRequestWait is how long a session waits for another that is at work, before it gives up.
const dedicatedRequestWait = time.Second

// requestDedicated has another session take a connection of its own, to which invalidations may be redirected, and returns that
// connection's number at Redis. It is taken by that session's own goroutine, where it reads its client's next command;
// 0: it is not there in time, or has no such connection.
func (s *Session) requestDedicated(ctx context.Context) int64 {
	answer := make(chan int64, 1)
	if !s.own.request.CompareAndSwap(nil, &answer) { // somebody else asks just now
		return 0
	}
	s.guard.WakeToAttend()
	ctx, cancel := context.WithTimeout(ctx, dedicatedRequestWait)
	defer cancel()
	select {
	case id := <-answer:
		return id
	case <-ctx.Done():
		s.own.request.CompareAndSwap(&answer, nil)
		return 0
	}
}

// serveDedicatedRequest does what requestDedicated asks for, in the session's own goroutine while no command is at work.
func (s *Session) serveDedicatedRequest() {
	request := s.own.request.Swap(nil)
	if request == nil {
		return
	}
	p := s.currentDedicated()
	defer s.release()
	fresh := p == nil
	if fresh {
		var err error
		if p, err = s.openDedicated(); err != nil {
			*request <- 0
			return
		}
	}
	id := p.RedisID()
	if fresh && id == 0 { // Redis does not tell this client's user
		s.dropDedicated()
		*request <- 0
		return
	}
	s.batch = batches.Get().(*batch)
	s.batch.Guard = s.guard
	p.Flush()
	s.batch.giveBack()
	s.batch = nil
	*request <- id
}

// endAside ends the use of a connection beside the session's own.
func (s *Session) endAside(p *dedicatedConn) {
	p.Release()
	if held := p.Hold(); !held.Released {
		s.end(p)
	} else if l := s.locks.engine.Load(); l != nil && held.Doubt {
		l.Doubt()
	}
}
