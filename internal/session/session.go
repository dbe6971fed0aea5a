package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/own"
	"github.com/lockproxy/lockproxy/internal/share"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Session is one client's connection. All of it runs in redcon's goroutine of that connection, but for what mu
// guards and the atomics, which other sessions, the lock engine, and Shutdown look at.
type Session struct {
	srv      *Server
	guard    *downstream.Conn
	peer     peer
	activity activity

	mu       sync.Mutex
	ident    upstream.Identity
	settings settings
	pushes   pushes

	locks   locks
	own     *own.Connections
	pipes   pipes
	access  access
	replies replies
	batch   *batch // while commands are at work
	endOnce sync.Once
}

// peer is who has connected.
type peer struct {
	id     int64
	addr   string // the client's, as Redis writes it
	laddr  string
	unix   bool // it came by a unix socket
	remote bool // it came from another machine, and protected mode has yet to let it stay
}

// activity is what others see of what a client does.
type activity struct {
	active   atomic.Int64 // unix nanoseconds of the last batch
	last     atomic.Pointer[string]
	module   atomic.Pointer[string]                  // the name of a module's command in the run, on a shared connection; nil: there is none
	waiting  atomic.Pointer[context.CancelCauseFunc] // unblocks the lock verb that waits; nil: none does
	operates atomic.Bool                             // it has said LOCKPROXY, as an operator
	leaves   atomic.Bool                             // QUIT or RESET comes next, seen while a verb waits
	progress progress
}

// settings are what a client has said of itself; Session.mu guards them.
type settings struct {
	name          string
	lib           [2]string         // name and version of the client library
	parent        *telemetry.Parent // of the lock verbs' spans
	noEvict       bool
	noTouch       bool
	wantsLossPush bool // it asked for the news of lost locks
	debugs        bool // SCRIPT DEBUG was refused: the client believes that its scripts are not run for real; used by the session's goroutine only
}

// locks is what the session has of the lock engine.
type locks struct {
	engine atomic.Pointer[lock.Client] // made for the first lock verb
	untold atomic.Bool                 // it has lost a lock since its last lock verb
}

// pipes are the session's way to Redis on connections that clients share.
type pipes struct {
	*backend.Forwarder
	replicas bool // of a cluster may answer what this client reads
}

// access is what Redis has let the client do so far.
type access struct {
	user     *share.User
	asked    bool        // the client has yet to be logged in as the user whom its certificate names
	lowered  bool        // RESET has put the limits of those who must log in in force again
	admitted atomic.Bool // Redis serves it although it has not authenticated: see refused. The client's goroutine alone sets it
}

// replies is which replies the client gets.
type replies struct {
	silent bool // they are not wanted: CLIENT REPLY OFF, or the command behind SKIP
	off    bool // CLIENT REPLY OFF
	skip   bool // CLIENT REPLY SKIP has just come
	finish bool // the client is closed, but gets the replies that have been gathered
}

// batch is what a session needs while it works, lent from a pool: an idle session holds no buffers.
type batch struct {
	backend.Batch
	answer []byte               // the reply of the command that is answered here
	next   []redcon.Command     // of the same pipeline, behind the command at work
	rights backend.RightsChange // the changes of rights that the run may cause
	timing timing

	refused int // commands that were refused because the user is over its share
}

const (
	flushAt   = 64 << 10 // replies gathered before they are written
	keepBytes = 2 * flushAt
)

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) clearRun() {
	b.ClearRun()
	b.rights = backend.RightsChange{}
	b.timing.run = telemetry.Run{}
}

// recycle returns b to the pool unless it has grown beyond what is worth keeping.
func (b *batch) recycle() {
	b.next, b.rights, b.refused = nil, backend.RightsChange{}, 0
	if b.Empty() && cap(b.answer) <= keepBytes {
		b.answer = b.answer[:0]
		batches.Put(b)
	}
}

func newSession(s *Server, g *downstream.Conn, id int64) *Session {
	c := &Session{srv: s, guard: g, ident: s.fresh(),
		peer: peer{id: id, addr: g.Addr(), laddr: g.LocalName(), unix: g.Unix(), remote: s.o.Protected && !g.Local()}}
	c.access.user = s.users.JoinNobody(c.network())
	c.certificate()
	c.pipes.Forwarder = backend.NewForwarder(s.up.backend, s.up.common, host{c}, g)
	c.own = own.New(&s.up.own, host{c}, g, id, c.pipes.Forwarder)
	c.pipes.replicas = s.o.ReadFrom == ReadReplica
	c.activity.active.Store(time.Now().UnixNano())
	return c
}

// serve works off one batch of commands in order and writes all its replies.
func (s *Session) serve(first redcon.Command, rest []redcon.Command) {
	s.activity.active.Store(time.Now().UnixNano())
	s.guard.CommandCame()
	if !s.mayStay() {
		return
	}
	s.batch = batches.Get().(*batch)
	s.batch.Guard = s.guard
	s.batch.timing.begin()
	s.pipes.Spent = 0
	s.activity.progress.step.next()
	s.batch.next = rest
	s.command(first)
	for i := 0; i < len(rest) && !s.guard.Over(); i++ {
		s.batch.next = rest[i+1:]
		s.command(rest[i])
	}
	s.batch.next = nil
	s.forward()
	s.own.Flush()
	s.flush()
	if !s.own.Has() { // commands on its own connection are timed there
		s.batch.timing.end(s.pipes.Spent)
	}
	refused := s.batch.refused
	s.batch.recycle()
	s.batch = nil
	s.activity.progress.step.rest()
	s.pipes.Rest()
	s.slowDown(refused)
}

// command runs one command, whether its reply is wanted or not.
func (s *Session) command(cmd redcon.Command) {
	if s.access.lowered && !s.stillFits(cmd.Args) {
		return
	}
	if s.replies.skip {
		s.runWithoutReply(func() { s.dispatch(cmd) })
		return
	}
	s.dispatch(cmd)
}

// dispatch adds a command to the run to be forwarded, or forwards that run and answers the command here, or runs it on
// the client's own connection.
func (s *Session) dispatch(cmd redcon.Command) {
	if s.access.asked && !s.loginByCertificate() {
		return
	}
	t := s.srv.facts.table.Load()
	c, answer := t.find(cmd.Args)
	if answer == nil && !t.Learned() {
		if c, answer = s.awaitTable(cmd.Args); s.guard.Over() {
			return
		}
	}
	if c != nil {
		s.activity.last.Store(&c.Name)
		if s.settings.debugs {
			c, answer = s.undebugged(c, answer)
		}
	}
	if s.guard.Kept() {
		c, answer = s.onKeptPlace(c, answer)
	}
	if c, answer = s.withinShare(c, answer); s.guard.Over() {
		return
	}
	if s.srv.pauses.now.Load() != nil {
		if s.heldBack(c, answer != nil); s.guard.Over() {
			return
		}
	}
	if c == nil { // Redis has not listed it
		if s.forward(); s.guard.Over() {
			return
		}
		c, answer = s.resolve(cmd.Args)
		s.batch.timing.answered()
	}
	had := s.own.Has()
	taken := s.own.Run(cmd, c, answer != nil)
	if taken || had { // a wait there does not count for the next command
		s.batch.timing.answered()
	}
	if taken {
		return
	}
	if instead := s.pipes.Instead(c); instead != nil {
		answer = checked(c, func(s *Session, args [][]byte) { s.relay(instead(args)) })
	}
	s.forwardOrAnswer(cmd, c, answer)
}

// forwardOrAnswer adds a command to the run, or answers it once the run has been forwarded.
func (s *Session) forwardOrAnswer(cmd redcon.Command, c *commandtable.Command, answer answer) {
	if answer == nil {
		s.enqueue(cmd.Raw, cmd.Args, c)
		return
	}
	s.forward()
	if s.guard.Over() {
		return
	}
	t, began := &s.batch.timing, telemetry.Clock()
	t.waits = 0
	answer(s, cmd.Args)
	t.answered()
	if took := t.since - began - t.waits; s.srv.slow(took) && (c == nil || c.Conn == commandtable.ConnNone) { // a command that may wait is not slow
		s.noteSlow(took, -1, c, cmd.Args, 1)
	}
	if s.batch.Full() {
		s.flush()
	}
}

// flush writes the replies gathered so far.
func (s *Session) flush() { s.batch.Flush(s.replies.silent) }

// End gives back all that the session has, once: pipes, locks, its place. All replies have come by then.
func (s *Session) End() {
	s.endOnce.Do(func() {
		s.guard.HangUp(downstream.Left, "closed")
		how, why := s.guard.Ending()
		s.srv.log.Debug("client left", "client", s.peer.addr, "id", s.peer.id, "why", why)
		if locks := s.held(); locks > 0 && how == downstream.Left {
			s.srv.runOut.add(locks, s.peer.addr, why)
		}
		s.guard.SetWriteDeadline(time.Now().Add(dedicated.LastReplies)) // a client that reads nothing delays the end no longer than this
		s.own.End()
		if l := s.locks.engine.Load(); l != nil {
			l.Close(closeHow(how))
		}
		s.pipes.Leave()
		if s.replies.finish {
			s.guard.Finish()
		}
		s.guard.Close()
		s.guard.CloseAccounts()
		s.endPushes()
		s.srv.users.Leave(s.access.user)
		s.srv.forget(s)
	})
}

// identity replaces the session's identity, after Redis has agreed to it.
func (s *Session) identity(id upstream.Identity) {
	if id == s.ident {
		return
	}
	s.pipes.Leave()
	s.mu.Lock()
	s.ident = id
	s.pushes.resp3 = s.pushes.resp3 && id.Proto == 3
	s.mu.Unlock()
	s.activity.operates.Store(false)
	if id.Anonymous() {
		s.countFor(s.srv.users.JoinNobody(s.network()))
	}
}

func (s *Session) error(line string) { s.batch.Out = resp.AppendError(s.batch.Out, line) }
