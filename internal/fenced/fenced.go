// Package fenced runs a command if a lock is held, in one atomic step: the lock is WATCHed and looked at, and the
// command is run by MULTI and EXEC, which Redis refuses if the lock has changed or expired since. A script would take one
// round trip rather than two, but its reply is not the command's (nulls, maps, big integers, errors and NOPERM differ), and
// scripts cannot be called in it.
package fenced

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// guardField is a field that no lock has.
const guardField = "lockproxy_guard"

// Fence is one FENCED at work on a connection that nothing else uses meanwhile.
type Fence struct {
	Locks   *lock.Client // the client as the lock engine knows it
	Conn    *dedicated.Conn
	Request lock.HoldRequest
	Command *commandtable.Command
	Args    [][]byte // the command's words
	Holds   []string // the keys of the read holds by which the lock is held, any will do; none: it is held otherwise
	Slot    Slot
	// Sending is told of the command before it is sent: it may change for everybody what is known of Redis.
	Sending func(c *commandtable.Command, args [][]byte)
}

// Slot is what matters with a cluster upstream only.
type Slot struct {
	Guarded bool // EXEC is given a look at the lock, too
	Ask     bool // the node is importing the slot: ASKING goes ahead
	Looked  bool // the lock was found to be held there
}

// Try looks once, and has the command run if the lock is held. If it is neither done nor an error, the lock was changed
// meanwhile.
func (f *Fence) Try() (done bool, err error) {
	began, err := f.look()
	if f.Slot.Looked = err == nil; f.Slot.Looked {
		return f.run()
	}
	f.undo(began)
	if errors.Is(err, errHoldsNow) {
		err = nil
	}
	return false, err
}

// begun is what of WATCH and MULTI Redis has taken, and must be undone when the command is not sent.
type begun struct{ watch, multi bool }

var errHoldsNow = errors.New("fenced: the lock was taken while it was looked at")

// look has the lock watched, a transaction begun, and then asks whether the lock is held. The command is not sent
// before Redis has agreed to MULTI: it would be run by itself.
func (f *Fence) look() (done begun, err error) {
	watch := f.asks(append([]string{"WATCH", f.Request.Key}, f.Holds...)...) // with what else tells that it is held
	fields := f.asks(append([]string{"HMGET", f.Request.Key}, f.Locks.HoldFields(f.Request)...)...)
	var holds *dedicated.Reply
	if len(f.Holds) > 0 {
		holds = f.asks(append([]string{"EXISTS"}, f.Holds...)...)
	}
	multi := f.asks("MULTI") // ASKING then holds for all of the transaction
	if !f.Conn.Wait() {
		// The client is gone: what takes effect here later is not undone, so nobody else gets this connection.
		f.Conn.Taint()
	}
	_, err = f.answer(watch)
	done.watch = err == nil
	_, failed := f.answer(multi)
	done.multi = failed == nil
	if err == nil {
		err = failed
	}
	if err != nil {
		return done, f.explain(err)
	}
	values, err := f.answer(fields)
	if err != nil {
		return done, f.explain(err)
	}
	there := []byte(nil)
	if holds != nil {
		if there, err = f.answer(holds); err != nil {
			return done, f.explain(err)
		}
	}
	return done, f.judge(values, string(there) != ":0\r\n")
}

// explain says of a NOPERM what else a reader's FENCED looks at, and of a WRONGTYPE what the key may be.
func (f *Fence) explain(err error) error {
	refusal := upstream.Refused(err)
	if lockstore.WrongType(err) {
		return &upstream.ReplyError{Line: refusal.Line + "; FENCED is not for a lock with LIMIT, which several may hold"}
	}
	if len(f.Holds) == 0 || !lockstore.Forbidden(err) {
		return err
	}
	return &upstream.ReplyError{Line: refusal.Line +
		"; by a reader it runs WATCH and EXISTS on the key of its hold, too, which is '" +
		lockstore.Printable(f.Holds[0]) + "'"}
}

// judge says by the answer of HMGET whether the lock is held; nil: it is. there says whether Redis has any of the keys
// f.Holds.
func (f *Fence) judge(hash []byte, there bool) error {
	r, ok := resp.ParseReply(hash)
	values := make([][]byte, len(r.Elems))
	for i, e := range r.Elems {
		if !e.Null {
			values[i] = e.Text
		}
	}
	if !ok || len(values) != len(f.Locks.HoldFields(f.Request)) {
		return &lock.Error{Code: "ERR", Text: "the lock cannot be looked at: unexpected reply from Redis"}
	}
	holds, err := f.Request.Holds(values)
	if err != nil {
		return err
	}
	if holds {
		reads := f.Locks.ReadHolds(f.Request, values)
		if !slices.Equal(reads, f.Holds) {
			f.Holds = reads
			return errHoldsNow // it is looked at once more, and watched
		}
		if len(reads) == 0 || there {
			return nil
		}
	}
	if err = f.Locks.NotHeld(context.Background(), f.Request); err == nil {
		err = errHoldsNow
	}
	return err
}

// run has the command run by EXEC. If it is, its reply goes to the client.
func (f *Fence) run() (done bool, err error) {
	p := f.Conn
	telemetry.Commands.Add(1)
	f.Sending(f.Command, f.Args)
	var guard []byte
	if f.Slot.Guarded {
		p.Send(&dedicated.Reply{Own: true, Got: &guard}, resp.AppendCommand(nil, "HMGET", f.Request.Key, guardField))
	}
	var queued, answered []byte
	q := &dedicated.Reply{Own: true, Got: &queued}
	p.Send(q, resp.Command(f.Args))
	e := &dedicated.Reply{Cmd: f.Command, Kind: commandtable.ConnExec, Fenced: true, Got: &answered}
	p.Send(e, exec)
	p.Wait()
	switch {
	case e.Ran:
		return true, nil
	case errors.Is(q.Lost, dedicated.ErrGone):
		return false, &upstream.NotSentError{Cause: e.Lost}
	case e.Lost != nil:
		return false, &upstream.LostError{Cause: e.Lost}
	case len(answered) == 0: // the client has gone
		return false, &upstream.LostError{Cause: dedicated.ErrGone}
	}
	if _, refused := resp.ErrorLine(guard); refused { // the slot is not there, or not all of it
		queued = guard
	}
	return false, f.notRun(queued, answered)
}

var exec = resp.AppendCommand(nil, "EXEC")

// notRun is the error for what EXEC answered when it ran nothing; nil: the lock has changed. It is the command's own
// where Redis refused to queue it.
func (f *Fence) notRun(queued, answered []byte) error {
	line, bad := resp.ErrorLine(answered)
	switch {
	case !bad:
		return nil
	case !dedicated.Aborted(answered): // the user may not run EXEC
		f.undo(begun{multi: true})
		return ownError(answered)
	}
	if refused, bad := resp.ErrorLine(queued); bad {
		return &upstream.ReplyError{Line: refused}
	}
	return denied(strings.TrimPrefix(line, "EXECABORT Transaction discarded because of: "))
}

// undo has Redis forget what the command is not sent for. Nobody else gets a connection where that fails.
func (f *Fence) undo(what begun) {
	var e *dedicated.Reply
	switch {
	case what.multi:
		e = f.sendOwn("DISCARD")
	case what.watch:
		e = f.sendOwn("UNWATCH")
	default:
		return
	}
	f.Conn.Wait()
	if _, err := f.answer(e); err != nil {
		f.Conn.Taint()
	}
}

// asks is sendOwn of a command that is about the lock's slot.
func (f *Fence) asks(args ...string) *dedicated.Reply {
	if f.Slot.Ask {
		f.sendOwn("ASKING")
	}
	return f.sendOwn(args...)
}

// sendOwn sends a command of this proxy's own, whose reply is wanted here.
func (f *Fence) sendOwn(args ...string) *dedicated.Reply {
	return f.Conn.Own(&dedicated.Reply{}, resp.AppendCommand(nil, args...))
}

// answer is the reply to e once it is in, or the error that Redis gave.
func (f *Fence) answer(e *dedicated.Reply) ([]byte, error) {
	reply, err := f.Conn.Answer(e)
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
		line = "NOPERM FENCED runs WATCH and HMGET on the lock, MULTI, EXEC and DISCARD " +
			"as the client's own user: " + what
	}
	return &upstream.ReplyError{Line: line}
}
