package session

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
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

// A client with big requests or replies gets a connection of its own, so that others do not wait behind them, and
// goes back to the shared one after some time of small traffic.
const (
	bigRequest   = 64 << 10
	bigReply     = 1 << 20
	bigTotal     = 4 << 20 // replies of one run, all together
	backAfter    = 1000    // commands
	backAfterAge = 10 * time.Second
	firstRun     = 1 // commands in a run of a client whose replies are not known to be small
)

// bigTraffic decides between the shared pipe and a private one.
type bigTraffic struct {
	pipe  *upstream.Pipe
	on    bool
	small int       // commands since the last big one
	since time.Time // of the last big one
	used  time.Time // when connections for it were last used
	back  *time.Timer
	proof int // commands a run may have, doubled by runs of small replies; 0: firstRun
}

// seen notes a big request or reply.
func (b *bigTraffic) seen() {
	b.on, b.small, b.since, b.proof = true, 0, time.Now(), firstRun
}

// wanted says whether the next n commands go over the private pipe.
func (b *bigTraffic) wanted(n int) bool {
	if !b.on {
		return false
	}
	if b.small > backAfter || time.Since(b.since) > backAfterAge {
		b.leave()
		return false
	}
	b.small += n
	return true
}

// leave goes back to the shared pipe.
func (b *bigTraffic) leave() {
	b.on = false
	b.drop()
	if b.back != nil {
		b.back.Stop()
	}
}

// usesOwn notes that connections are in use that only this client's big traffic needs. When it uses them no more they are
// given back by a timer, so that clients that idle do not keep them.
func (s *Session) usesOwn() {
	b := &s.pipes.big
	b.used = time.Now()
	if b.back == nil {
		b.back = time.AfterFunc(s.srv.ownFor, s.guard.WakeToAttend)
		return
	}
	b.back.Reset(s.srv.ownFor)
}

// returnOwn gives such connections back once their time is over. No command is at work.
func (s *Session) returnOwn() {
	if s.pipes.big.used.IsZero() || time.Since(s.pipes.big.used) < s.srv.ownFor {
		return
	}
	s.pipes.big.used = time.Time{}
	s.pipes.big.leave()
	s.pipes.way.returnBig()
}

func (b *bigTraffic) drop() {
	if b.pipe != nil {
		b.pipe.Release()
		b.pipe = nil
	}
}

func (b *bigTraffic) runLength() int { return max(b.proof, firstRun) }

// measure looks at what a run on the shared pipe brought.
func (b *bigTraffic) measure(largest, total, commands int) {
	switch {
	case largest > bigReply || total > bigTotal:
		b.seen()
	case commands >= b.runLength():
		b.proof = min(2*b.runLength(), runCommands)
	}
}

// stream is the sink of a private pipe: it passes replies on as they come.
type stream struct {
	s       *Session
	to      downstream.Passage
	scan    resp.Scanner
	whole   int // bytes of the batch's replies that end in a whole one
	frame   int // bytes of the reply at hand
	largest int
}

func (s *Session) newStream() *stream {
	return &stream{s: s, to: s.guard.Passage(), whole: len(s.batch.out)}
}

func (t *stream) Reply(p []byte) {
	b := t.s.batch
	for len(p) > 0 {
		n, done, err := t.scan.Scan(p)
		if err != nil {
			t.s.guard.HangUp(downstream.Left, "broken reply from upstream")
			return
		}
		b.out = append(b.out, p[:n]...)
		p = p[n:]
		t.frame += n
		if done {
			t.whole = len(b.out)
			t.largest = max(t.largest, t.frame)
			t.frame = 0
		}
		if len(b.out) >= flushAt {
			t.flush()
		}
	}
}

// flush passes on what there is.
func (t *stream) flush() {
	b := t.s.batch
	t.pass(b.out, t.whole < len(b.out))
	b.out, t.whole, b.gone = b.out[:0], 0, true
}

// pass writes p, which ends within a reply or not, to a client that is still there and wants it.
func (t *stream) pass(p []byte, within bool) {
	switch {
	case t.s.replies.silent:
	case t.s.guard.Over():
		t.to.GiveUp("left within a reply")
	default:
		t.to.Write(p, within)
	}
}

// finish ends the run: the part of a reply that will not be completed is taken back, or, when the client has some
// of it already, the client is cut off, since nothing after it could be understood.
func (t *stream) finish() {
	b := t.s.batch
	if t.frame > 0 {
		t.to.GiveUp("upstream lost within a reply")
		b.out = b.out[:t.whole]
	}
	if t.to.Within() {
		t.pass(b.out, false)
		b.out = b.out[:0]
	}
}
