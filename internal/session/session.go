package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/own"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Session is one client's connection. All of it runs in redcon's goroutine of that connection, but for what is guarded
// and the atomics, which other sessions, the lock engine, and Shutdown look at.
type Session struct {
	srv      *Server
	client   *client.Client
	own      *own.Connections
	pipes    *backend.Forwarder
	access   access
	pushes   pushes
	activity activity
	locks    atomic.Pointer[lock.Client] // the client as the lock engine knows it; nil: it has sent no lock verb
	batch    *batch                      // while commands are at work
	endOnce  sync.Once
}

// activity is what others see of what a client does.
type activity struct {
	active   atomic.Int64 // unix nanoseconds of the last batch
	last     atomic.Pointer[string]
	waiting  atomic.Pointer[context.CancelCauseFunc] // unblocks the lock verb that waits; nil: none does
	progress progress
}

// batch is what a session needs while it works, from a pool: an idle session holds no buffers.
type batch struct {
	backend.Batch
	caller commands.Client  // for what is answered here, once something is
	answer []byte           // the reply of the command that is answered here
	next   []redcon.Command // of the same pipeline, behind the command at work
}

const keepBytes = 2 * resp.Long // of a buffer that is kept for the next batch

var batches = sync.Pool{New: func() any { return new(batch) }}

// recycle returns b to the pool unless it has grown beyond what is worth keeping.
func (b *batch) recycle() {
	b.next = nil
	if b.caller.Client != nil {
		b.caller = commands.Client{}
	}
	if b.Empty() && cap(b.answer) <= keepBytes {
		b.answer = b.answer[:0]
		batches.Put(b)
	}
}

func newSession(s *Server, g *downstream.Conn, number int64) *Session {
	c := client.New(&s.process, g, number, s.fresh())
	x := &Session{srv: s, client: c, pipes: backend.NewForwarder(s.up.backend, s.up.common, c)}
	x.access.srv, x.access.client, x.access.pipes = s, c, x.pipes
	x.access.beginLogin(s.o.Protected && !g.Peer.Local)
	x.pushes.to = c
	x.own = own.New(&s.up.own, c, x.pipes)
	x.activity.active.Store(time.Now().UnixNano())
	return x
}

// serve works off one batch of commands in order and writes all its replies.
func (s *Session) serve(first redcon.Command, rest []redcon.Command) {
	s.activity.active.Store(time.Now().UnixNano())
	s.client.Reader.CommandCame()
	b := batches.Get().(*batch)
	s.batch = b
	s.pipes.Begin(&b.Batch)
	s.client.Step.Next()
	b.next = rest
	s.command(first)
	for i := 0; i < len(rest) && !s.client.End.Over(); i++ {
		b.next = rest[i+1:]
		s.command(rest[i])
	}
	s.writeAll()
	if !s.own.Has() { // commands on its own connection are timed there
		b.Timing.End()
	}
	s.batch = nil
	s.pipes.Rest()
	b.recycle()
	s.client.Step.Rest()
}

// writeAll sends what waits to be sent, over connections that clients share or one of the client's own, and writes all
// replies.
func (s *Session) writeAll() {
	s.pipes.Send()
	s.own.Settle()
	s.client.Flush()
}

// End gives back all that the session has, once: pipes, locks, its place. All replies have come by then.
func (s *Session) End() {
	s.endOnce.Do(func() {
		c := s.client
		c.End.HangUp(downstream.Left, "closed")
		how, why := c.End.Reason()
		s.srv.log.Debug("client left", "client", c.Peer.Addr, "id", c.Number, "why", why)
		if locks := c.Held(); locks > 0 && how == downstream.Left {
			s.srv.runOut.noteClient(locks, c.Peer.Addr, why)
		}
		// A client that reads nothing delays the end no longer than this.
		c.Writer.EndBy(time.Now().Add(dedicated.LastReplies))
		s.own.End()
		if l := s.locks.Load(); l != nil {
			l.Close(closeHow(how))
		}
		s.pipes.Leave()
		if c.Replies.Finish {
			c.Finish()
		}
		c.Close()
		c.CloseAccounts()
		s.pushes.endPushing()
		s.srv.clients.forgetSession(s)
	})
}

var _ commands.Session = (*Session)(nil)

// AskOwn implements commands.Session.
func (s *Session) AskOwn(args [][]byte) ([]byte, dedicated.Redirect, error) { return s.own.About(args) }
