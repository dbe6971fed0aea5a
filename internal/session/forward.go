package session

import (
	"errors"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/upstream"
)

// A run of forwarded commands is cut here: so much may be in one write upstream, and its replies in memory.
const (
	runCommands = 128
	runBytes    = 256 << 10
)

// copiedBelow is the length of a run whose commands package upstream has surely copied.
const copiedBelow = 16 << 10

// enqueue adds a command to the run.
func (s *Session) enqueue(raw []byte, args [][]byte, c *commandtable.Command) {
	if s.lockedOut() {
		s.forward()
		s.error(s.srv.refusalOf(args))
		return
	}
	b := s.batch
	if len(raw) > bigRequest {
		s.forward()
		s.pipes.big.seen()
	}
	b.run = append(b.run, raw)
	b.cmds = append(b.cmds, c)
	b.nodes.args = append(b.nodes.args, args)
	b.size += len(raw)
	b.rights.note(c, args)
	if c != nil && c.Module {
		s.activity.module.Store(&c.Name)
	}
	b.scripts = b.scripts || c != nil && c.Script != commandtable.NoScript
	if len(b.run) >= s.runLength() || b.size >= runBytes {
		s.forward()
	}
}

// runLength is how many commands the next run may have: one while much of what others asked for lies here unread.
func (s *Session) runLength() int {
	if s.srv.gate.Pressed() {
		return firstRun
	}
	return s.pipes.big.runLength()
}

// forward sends the run, waits for its replies, and answers for Redis where Redis did not.
func (s *Session) forward() {
	b := s.batch
	if len(b.run) == 0 {
		return
	}
	if !s.guard.Over() {
		telemetry.Commands.Add(int64(len(b.run)))
		switch big := s.pipes.big.wanted(len(b.run)); {
		case s.lockedOut():
			s.refuseRun()
		default:
			s.pipes.way.forward(big)
		}
	}
	s.srv.rightsChanged(b.rights)
	b.clearRun()
	if s.activity.module.Load() != nil {
		s.activity.module.Store(nil)
	}
	if len(b.out) >= flushAt || b.full != nil {
		s.flush()
	}
}

// answerFor is fail for each command that Redis did not answer. When the outcome of one that may have written is
// unknown, the lock engine is told: this client's locks are then not released, they run out.
func (s *Session) answerFor(err error, unanswered []*commandtable.Command) {
	if s.noteTrouble(err); backend.PasswordRefused(err) && s.guard.Over() {
		return // closed without a word
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
	if errors.Is(err, upstream.ErrTimeout) && s.batch.size >= copiedBelow {
		// Its bytes may still lie where the client's next ones would go.
		s.guard.HangUp(downstream.Left, "a long command has had no answer in time")
	}
	for _, c := range unanswered {
		if c == nil || !c.ReadOnly {
			if l := s.locks.engine.Load(); l != nil {
				l.Doubt()
			}
			return
		}
	}
}

// noteTrouble has the facts about Redis learned anew after its connection was lost. A client whose password Redis takes
// no longer is closed, as Redis would have closed it with that connection: it can only log in anew.
func (s *Session) noteTrouble(err error) {
	var reply *upstream.ReplyError
	switch {
	case backend.TooMany(err):
	case !errors.As(err, &reply):
		s.srv.learnAgain()
	case s.srv.up.backend.Final(err):
		s.guard.HangUp(downstream.Left, passwordGone)
	}
}

const timeoutLine = "ERR upstream timeout, the outcome of this command is unknown"

const lostLine = "ERR upstream connection lost, the outcome of this command is unknown"

// errorLine is the error as the client is to read it, without the leading '-'.
func errorLine(err error) string {
	var reply *upstream.ReplyError
	var lost *upstream.LostError
	switch {
	case errors.As(err, &reply):
		return reply.Line
	case errors.As(err, &lost) && errors.Is(err, upstream.ErrTimeout):
		return timeoutLine
	case errors.As(err, &lost):
		return lostLine
	}
	return "ERR " + err.Error()
}

// relay appends a reply Redis gave, or the error that stands for it.
func (s *Session) relay(reply []byte, err error) {
	if err != nil {
		s.fail(err)
		return
	}
	s.batch.out = append(s.batch.out, reply...)
}

var _ upstream.Sink = (*batch)(nil)
