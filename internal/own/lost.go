package own

import (
	"errors"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/upstream"
)

// lostState is what must be remembered if a client's own connection was lost, or could not be made, and the client stays. The
// commands of a lost transaction must not run by themselves: each gets an error until EXEC, which gets Redis' error for a
// transaction that cannot be run, or DISCARD. If keys were watched one may have changed: the next EXEC is answered null.
type lostState struct{ dedicated.Lost }

func (l *lostState) any() bool { return l.Multi || l.Watch }

// addLost adds to what was lost.
func (o *Connections) addLost(l dedicated.Lost) {
	o.lost.Multi, o.lost.Watch = o.lost.Multi || l.Multi, o.lost.Watch || l.Watch
	if o.lost.Cause == nil {
		o.lost.Cause = l.Cause
	}
	if o.lost.Multi {
		o.View.Multi.Store(1)
	}
}

func (l *lostState) clear(o *Connections) {
	if l.Multi {
		o.View.Multi.Store(0)
	}
	if l.any() && o.conn == nil {
		o.View.Watch.Store(false)
		o.View.Watched.Store(0)
	}
	*l = lostState{}
}

// line returns the cause as an error line, which says nothing of what was sent.
func (l *lostState) line() string {
	switch lost := upstream.IsLost(l.Cause); {
	case lost && errors.Is(l.Cause, upstream.ErrTimeout):
		return "ERR upstream timeout"
	case lost:
		return "ERR upstream connection lost"
	}
	return client.ErrorLine(l.Cause)
}

// afterLoss answers a command that must not run because of what was lost; false: the command runs as usual. p is the
// client's own connection now, nil if it has none.
func (o *Connections) afterLoss(p *conn, cmd redcon.Command, c *commandtable.Command) bool {
	if c.Always { // QUIT, RESET
		return false
	}
	kind, alone := c.Conn, len(cmd.Args) == 1
	ends := alone && (kind == commandtable.ConnExec || kind == commandtable.ConnDiscard)
	if o.lost.Multi {
		o.inLostTransaction(kind, ends)
		return true
	}
	if !ends && (kind != commandtable.ConnUnwatch || !alone) {
		return false
	}
	multi := false
	if p != nil { // it may be in another transaction, or may just be losing that one
		if !p.Settled() {
			return true
		}
		if p = o.current(); o.lost.Multi {
			o.inLostTransaction(kind, ends)
			return true
		}
		multi = p != nil && p.InTransaction()
	}
	if multi != ends { // there is nothing to end, or UNWATCH is queued
		return false
	}
	o.lost.clear(o)
	if kind != commandtable.ConnExec {
		return false
	}
	p.forgetQueued()
	p.discard()
	o.null()
	return true
}

// inLostTransaction answers a command within a transaction that was lost.
func (o *Connections) inLostTransaction(k commandtable.ConnKind, ends bool) {
	line := o.lost.line()
	switch {
	case ends && k == commandtable.ConnExec:
		o.lost.clear(o)
		o.client.Error(commandtable.ExecAborted(line))
	case ends:
		o.lost.clear(o)
		o.client.OK()
	case k == commandtable.ConnMulti:
		o.client.Error("ERR MULTI calls can not be nested")
	default:
		o.client.Error(line + ": the transaction is discarded, EXEC or DISCARD ends it")
	}
}

// notSent answers e's command, which came just after its connection was lost.
func (o *Connections) notSent(e *dedicated.Reply) {
	o.current() // notes what was lost
	if o.lost.Multi {
		o.inLostTransaction(e.Kind, e.Args == 0 && (e.Kind == commandtable.ConnExec || e.Kind == commandtable.ConnDiscard))
		return
	}
	o.notBegun(e.Kind, &upstream.NotSentError{Cause: dedicated.ErrGone})
}
