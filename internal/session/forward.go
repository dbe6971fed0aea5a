package session

import (
	"errors"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// enqueue adds a command to the run.
func (s *Session) enqueue(raw []byte, args [][]byte, c *commandtable.Command) {
	if err := s.refused(); err != nil {
		s.forward()
		s.fail(s.srv.refusalFor(args, err))
		return
	}
	b := s.batch
	if s.pipes.IsBig(raw, args, c) {
		s.forward()
		s.pipes.SeenBig()
	}
	b.Add(raw, args, c)
	b.timing.note(c)
	b.rights.Note(c, args)
	if c.Module && !s.pipes.Big() {
		s.activity.module.Store(&c.Name)
	}
	if s.pipes.RunFull(&b.Batch) {
		s.forward()
	}
}

// forward sends the run, waits for its replies, and answers for Redis where Redis did not.
func (s *Session) forward() {
	b := s.batch
	if b.Run() == 0 {
		return
	}
	if !s.guard.Over() {
		telemetry.Commands.Add(int64(b.Run()))
		s.activity.progress.step.next()
		before := s.pipes.Spent
		s.pipes.Forward(&b.Batch)
		upstream := s.pipes.Spent - before
		if took := b.timing.forwarded(upstream); s.srv.slow(took) {
			c, words := b.First()
			s.noteSlow(took, upstream, c, words, b.Run())
		}
	}
	s.srv.rightsChanged(b.rights)
	b.clearRun()
	if s.activity.module.Load() != nil {
		s.activity.module.Store(nil)
	}
	if b.Full() {
		s.flush()
	}
}

// host is the session as those below see it: see backend.Host, and own.Host.
type host struct{ *Session }

var _ backend.Host = host{}

// Identity implements backend.Host.
func (h host) Identity() upstream.Identity { return h.ident }

// Adopt implements backend.Host.
func (h host) Adopt(id upstream.Identity) { h.identity(id) }

// Refused implements backend.Host.
func (h host) Refused() error { return h.refused() }

// Silent implements backend.Host.
func (h host) Silent() bool { return h.replies.silent }

// WriteReplies implements backend.Host.
func (h host) WriteReplies() {
	if h.batch != nil { // else no command is at work
		h.flush()
	}
}

// ReadsReplicas implements backend.Host. A client that holds a lock does not read from replicas, which might lack what the last holder
// wrote; nor does one that has a connection of its own, for example under WATCH, which watches the master's data.
func (h host) ReadsReplicas() bool {
	return h.pipes.replicas && !h.own.Has() && h.held() == 0
}

// WritesPaused implements backend.Host.
func (h host) WritesPaused() bool { return h.srv.writesPaused() }

// Routes implements backend.Host.
func (h host) Routes() *backend.Routes { return h.srv.facts.table.Load().routes }

// Step implements backend.Host.
func (h host) Step() uint64 { return h.activity.progress.step.next() }

// Unanswered implements backend.Host: it calls fail for each command. When the outcome of one that may have written is unknown, the
// lock engine is told, and lets this client's locks expire in place of releasing them.
func (h host) Unanswered(err error, unanswered []*commandtable.Command) {
	s := h.Session
	if errors.Is(err, upstream.ErrLeft) && s.batch.Copied() { // the client has gone: nobody reads what is answered, and the rest of what it sent follows
		return
	}
	if s.noteTrouble(err); backend.PasswordRefused(err) && s.guard.Over() {
		return // closed without an error reply
	}
	if s.wasDeleted(err) {
		return // likewise, as Redis closes those whose user is deleted, whatever they have sent since
	}
	for range unanswered {
		if s.fail(err); s.guard.Over() {
			break
		}
	}
	var lost *upstream.LostError
	if !errors.As(err, &lost) {
		return
	}
	if errors.Is(err, upstream.ErrTimeout) && !s.batch.Copied() {
		// Its bytes may still be sent from the buffer into which the client's next ones would be read.
		s.guard.HangUp(downstream.Left, "a long command has had no answer in time")
	}
	for _, c := range unanswered {
		if c == nil || !c.ReadOnly {
			h.Doubt()
			return
		}
	}
}

// Trouble implements backend.Host.
func (h host) Trouble(err error) { h.noteTrouble(err) }

// noteTrouble asks Redis again for its commands and settings after a connection was lost.
func (s *Session) noteTrouble(err error) {
	var reply *upstream.ReplyError
	if !backend.TooMany(err) && !errors.As(err, &reply) {
		s.srv.learnAgain()
	}
}

// ask runs one command that changes nothing, as the client's user, and returns Redis' reply as it came. After a
// lost reply the error is a *upstream.NotSentError, as if nothing had been asked, because nothing can have changed.
func (s *Session) ask(words ...string) ([]byte, error) {
	return s.askAt(backend.Place{}, bytesOf(words)...)
}

func (s *Session) askAt(at backend.Place, words ...[]byte) ([]byte, error) {
	if err := s.refused(); backend.LogIn(err) {
		return resp.AppendError(nil, noAuth), nil
	} else if err != nil {
		return nil, err
	}
	return s.pipes.Ask(words, at)
}

func bytesOf(words []string) [][]byte {
	all := make([][]byte, len(words))
	for i, w := range words {
		all[i] = []byte(w)
	}
	return all
}

// Admitted implements commands.Redis.
func (s *Session) Admitted() error { return s.refused() }

// Ask implements commands.Redis.
func (s *Session) Ask(args ...[]byte) ([]byte, error) { return s.askAt(backend.Place{}, args...) }

// AskSlot implements commands.Redis.
func (s *Session) AskSlot(slot int, args [][]byte) ([]byte, error) {
	return s.askAt(backend.AtSlot(slot), args...)
}

// AskAll implements commands.Redis.
func (s *Session) AskAll(args [][]byte) ([]resp.Reply, error) { return s.pipes.AskAll(args) }

// AskOwn implements commands.Redis.
func (s *Session) AskOwn(args [][]byte) ([]byte, dedicated.Redirect, error) { return s.own.About(args) }

// AskApart implements commands.Redis.
func (s *Session) AskApart(args [][]byte) ([]byte, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	c, _ := s.srv.facts.table.Load().find(args)
	return s.pipes.Ask(args, backend.Apart(c))
}

// relay appends a reply Redis gave, or the error that stands for it.
func (s *Session) relay(reply []byte, err error) {
	if err != nil {
		s.fail(err)
		return
	}
	s.batch.Out = append(s.batch.Out, reply...)
}
