package session

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// fencedTries is how often FENCED looks at a lock that is changed while it does, by a renewal for instance.
const fencedTries = 5

// Fenced has a command run if the lock is held as r asks, by Redis' word and in one atomic step: on a connection of this
// client's alone the lock is WATCHed and looked at, and the command is run by MULTI and EXEC, which Redis refuses when the
// lock has changed since, or run out. What EXEC answers is passed on without its head. nil: the client has its reply.
func (s *Session) Fenced(r lock.HoldRequest, args [][]byte) error {
	began := time.Now()
	_, span := telemetry.Span(context.Background(), "FENCED")
	defer span.End()
	err := s.fenced(r, args)
	telemetry.VerbDone(context.Background(), "fenced", fencedOutcome(err), time.Since(began))
	return err
}

func (s *Session) fenced(r lock.HoldRequest, args [][]byte) error {
	if s.srv.o.Locks.Nodes() != nil {
		return &lock.Error{Code: "ERR", Text: "FENCED is not supported with --quorum: the lock is not where the data is; use LOCK ... FENCE"}
	}
	c, err := s.fenceable(args)
	if err != nil {
		return err
	}
	return s.pipes.way.fenced(r, c, args)
}

// fenced runs it on the client's own connection, or one that it gets for this.
func (u *single) fenced(r lock.HoldRequest, c *commandtable.Command, args [][]byte) (err error) {
	s := u.s
	if err := s.Locks().Lost(r); err != nil {
		return err
	}
	f := fence{s: s, r: r, cmd: c, raw: resp.Command(args), hold: s.Locks().ReadHoldHere(r)}
	if f.p = s.currentDedicated(); f.p == nil {
		if f.p, err = s.openDedicated(); err != nil {
			s.noteTrouble(err)
			return err
		}
	}
	defer s.release()
	now := f.p.Status()
	f.tracking, f.caching = now.Tracking, now.Caching
	if now.Watch {
		return errFencedWatch
	}
	if c == nil && !s.srv.o.Embedded {
		f.p.Taint() // whatever it is, nobody else gets this connection
	}
	for range fencedTries {
		if done, err := f.try(); done || err != nil {
			return err
		}
	}
	return errFencedChanged
}

var (
	errFencedWatch   = &lock.Error{Code: "ERR", Text: "FENCED between WATCH and MULTI: it would end that WATCH; send UNWATCH first, nothing was run"}
	errFencedChanged = &lock.Error{Code: "ERR", Text: "nothing was run: the lock was changed each of the " + strconv.Itoa(fencedTries) + " times it was looked at; try again"}
)

// fenceable finds out what a command is, and refuses those that FENCED cannot run: what is not Redis' to answer, may wait,
// or concerns the connection. nil: Redis does not know it, and will say so.
func (s *Session) fenceable(args [][]byte) (*commandtable.Command, error) {
	c, answer := s.srv.facts.table.Load().find(args)
	if c == nil && answer != nil && !s.srv.o.Embedded {
		c, _ = s.resolve(args)
	}
	if c == nil {
		return nil, nil
	}
	if s.settings.debugs {
		c, _ = s.undebugged(c, answer)
	}
	why := ""
	switch {
	case c.Refusal:
		return nil, &upstream.ReplyError{Line: c.Line}
	case commands.Lookup([]byte(c.Name)) != nil:
		why = "it is a lock verb"
	case c.Conn == commandtable.ConnBlock, c.Conn == commandtable.ConnWait:
		why = "it may wait"
	case c.Conn != commandtable.ConnNone, strings.HasPrefix(c.Name, "client"):
		why = "it concerns the connection"
	case c.Here:
		why = "it is lockproxy that answers it"
	default:
		return c, nil
	}
	return nil, &lock.Error{Code: "ERR", Text: "'" + displayName(c) + "' cannot be run by FENCED: " + why}
}

// displayName is a command's name as people write it.
func displayName(c *commandtable.Command) string {
	return strings.ToUpper(strings.ReplaceAll(c.Name, "|", " "))
}

// fence is one FENCED at work.
type fence struct {
	s        *Session
	p        *dedicatedConn
	r        lock.HoldRequest
	cmd      *commandtable.Command // nil: unknown
	raw      []byte
	hold     string // the key of the read hold by which the lock is held; "": none is
	tracking bool   // what is read on the connection is remembered as read by the client
	caching  string // what CLIENT CACHING said of the command that comes next

	// With a cluster upstream only.
	guarded bool // EXEC is given a look at the lock, too
	ask     bool // the node is importing the slot: ASKING goes ahead
	looked  bool // the lock was found to be held there
}

// try looks once, and has the command run if the lock is held. Neither done nor an error: the lock was changed meanwhile.
func (f *fence) try() (done bool, err error) {
	began, err := f.look()
	if f.looked = err == nil; f.looked {
		return f.run()
	}
	f.undo(began)
	if errors.Is(err, errHoldsNow) {
		err = nil
	}
	return false, err
}

// fenceBegun is what of WATCH and MULTI Redis has taken, and must be undone when the command is not sent.
type fenceBegun struct{ watch, multi bool }

var errHoldsNow = errors.New("session: the lock was taken while it was looked at")

// look has the lock watched, a transaction begun, and then asks whether the lock is held. The command is not sent before
// Redis has agreed to MULTI: it would be run by itself.
func (f *fence) look() (begun fenceBegun, err error) {
	fields := append([]string{"HMGET", f.r.Key}, f.s.Locks().HoldFields(f.r)...)
	watch := f.asks(f.watched()...)
	var hash, hold *dedicated.Reply
	if !f.tracking {
		hash = f.asks(fields...)
	}
	if !f.tracking && f.hold != "" {
		hold = f.asks("EXISTS", f.hold)
	}
	if f.caching != "" {
		f.p.sendOwn("CLIENT", "CACHING", f.caching)
	}
	multi := f.asks("MULTI") // ASKING then holds for all of the transaction
	f.p.Settled()
	_, err = f.p.answer(watch)
	begun.watch = err == nil
	_, failed := f.p.answer(multi)
	if begun.multi = failed == nil; err == nil {
		err = failed
	}
	if err != nil {
		return begun, f.explain(err)
	}
	values, err := f.answerTo(hash, fields...)
	if err != nil {
		return begun, err
	}
	there := []byte(nil)
	if f.hold != "" {
		if there, err = f.answerTo(hold, "EXISTS", f.hold); err != nil {
			return begun, f.explain(err)
		}
	}
	return begun, f.judge(values, string(there) == ":1\r\n")
}

// judge says by the answer of HMGET whether the lock is held; nil: it is. there says whether Redis has the key f.hold.
func (f *fence) judge(hash []byte, there bool) error {
	r, ok := resp.ParseReply(hash)
	values := make([][]byte, len(r.Elems))
	for i, e := range r.Elems {
		if !e.Null {
			values[i] = e.Text
		}
	}
	if !ok || len(values) != len(f.s.Locks().HoldFields(f.r)) {
		return &lock.Error{Code: "ERR", Text: "the lock cannot be looked at: unexpected reply from Redis"}
	}
	holds, err := f.r.Holds(values)
	if err != nil {
		return err
	}
	if holds {
		hold := f.s.Locks().ReadHold(f.r, values)
		if hold != f.hold {
			f.hold = hold
			return errHoldsNow // it is looked at once more, and watched
		}
		if hold == "" || there {
			return nil
		}
	}
	if err = f.s.Locks().NotHeld(context.Background(), f.r); err == nil {
		err = errHoldsNow
	}
	return err
}

// run has the command run by EXEC, whose reply goes to the client.
func (f *fence) run() (done bool, err error) {
	p := f.p
	telemetry.Commands.Add(1)
	if f.cmd != nil && f.cmd.Script == commandtable.FlushesScripts {
		f.s.srv.scripts.Clear()
	}
	var guard *dedicated.Reply
	head := "*1\r\n"
	if f.guarded {
		guard, head = p.sendOwn("HMGET", f.r.Key, fencedGuard), fencedHead[f.s.ident.Proto]
	}
	var queued, instead []byte
	q := &dedicated.Reply{Own: true, Got: &queued}
	p.Send(q, f.raw)
	e := &dedicated.Reply{Cmd: f.cmd, Got: &instead, Exec: dedicated.Exec{Head: head}}
	p.Send(e, exec)
	p.Settled()
	var ran, sent, in bool
	var lost error
	p.Locked(func(bool) {
		ran, sent, lost = e.Exec.Ran, !errors.Is(q.Lost, dedicated.ErrGone), e.Lost
		in = len(instead) > 0
	})
	switch {
	case ran:
		return true, nil
	case !sent:
		return false, &upstream.NotSentError{Cause: lost}
	case lost != nil:
		return false, &upstream.LostError{Cause: lost}
	case !in: // the client has gone
		return false, &upstream.LostError{Cause: dedicated.ErrGone}
	}
	if reply, ran := guardReply(instead); f.guarded && ran {
		f.s.relay(reply, nil)
		return true, nil
	}
	if guard != nil && dedicated.IsRedirect(*guard.Got) {
		queued = *guard.Got
	}
	return false, f.notRun(queued, instead)
}

var exec = resp.AppendCommand(nil, "EXEC")

// notRun is the error for what EXEC answered when it ran nothing; nil: the lock has changed. It is the command's own where
// Redis refused to queue it.
func (f *fence) notRun(queued, answered []byte) error {
	line, bad := resp.ErrorLine(answered)
	switch {
	case !bad:
		return nil
	case !dedicated.Aborted(answered): // it was not EXEC's to say, but that of the user's rights
		f.undo(fenceBegun{multi: true})
		return ownError(answered)
	}
	if refused, bad := resp.ErrorLine(queued); bad {
		return &upstream.ReplyError{Line: refused}
	}
	return denied(strings.TrimPrefix(line, "EXECABORT Transaction discarded because of: "))
}

// undo has Redis forget what the command is not sent for. A connection that cannot be brought back is closed, with its
// client if that has a state there.
func (f *fence) undo(begun fenceBegun) {
	var e *dedicated.Reply
	switch {
	case begun.multi:
		e = f.p.sendOwn("DISCARD")
	case begun.watch:
		e = f.p.sendOwn("UNWATCH")
	default:
		return
	}
	f.p.Settled()
	_, err := f.p.answer(e)
	if err == nil {
		return
	}
	now := f.p.Status()
	if now.Ended { // what the client has lost with it is seen to
		return
	}
	if f.s.own.dedicated == f.p {
		f.s.dropDedicated()
	} else {
		f.p.drop()
	}
	if !now.None {
		f.s.guard.HangUp(downstream.Left, "FENCED could not end its transaction: "+err.Error())
	}
}

// asks is sendOwn of a command that is about the lock's slot.
func (f *fence) asks(args ...string) *dedicated.Reply {
	if f.ask {
		f.p.sendOwn("ASKING")
	}
	return f.p.sendOwn(args...)
}

// sendOwn sends a command of this proxy's own, whose reply is wanted here.
func (p *dedicatedConn) sendOwn(args ...string) *dedicated.Reply {
	return p.Own(&dedicated.Reply{}, resp.AppendCommand(nil, args...))
}

// answer is the reply to e once it is in, or the error that Redis gave.
func (p *dedicatedConn) answer(e *dedicated.Reply) ([]byte, error) {
	reply, err := p.Answer(e)
	if err == nil {
		err = ownError(reply)
	}
	return reply, err
}

// ownError is the error in the reply to a command of FENCED's own. A user who may not run that is told what it was for.
func ownError(reply []byte) error {
	if line, bad := resp.ErrorLine(reply); bad {
		return denied(line)
	}
	return nil
}

// denied is ownError of a line.
func denied(line string) error {
	if what, yes := strings.CutPrefix(line, "NOPERM "); yes {
		line = "NOPERM FENCED runs WATCH and HMGET on the lock, MULTI, EXEC and DISCARD as the client's own user: " + what
	}
	return &upstream.ReplyError{Line: line}
}

func fencedOutcome(err error) string {
	if e, ok := err.(*lock.Error); ok {
		return e.Code
	}
	if err != nil {
		return "error"
	}
	return "ok"
}
