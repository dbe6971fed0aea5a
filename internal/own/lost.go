package own

import (
	"errors"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// loss is what was lost, if a client's own connection was lost, or could not be made, and the client stays, as
// dedicated/end.go decides. The commands of a lost transaction must not run by themselves: each gets an error until EXEC,
// which gets Redis' error for a transaction that cannot be run, or DISCARD. If keys were watched one may have changed: the
// next transaction is lost as well.
type loss uint8

const (
	lostNothing     loss = iota
	lostWatch            // watched keys, and no transaction: the next one is lost from its beginning
	lostTransaction      // and perhaps watched keys
)

// lossOf is what was lost with a connection.
func lossOf(l *dedicated.Lost) loss {
	switch {
	case l.Multi:
		return lostTransaction
	case l.Watch:
		return lostWatch
	}
	return lostNothing
}

// lostState is a loss that must be remembered, and its cause.
type lostState struct {
	loss
	cause error
}

// lose adds to what was lost.
func (o *Connections) lose(what loss, cause error) {
	l := &o.lost
	if l.loss = max(l.loss, what); l.cause == nil {
		l.cause = cause
	}
	if l.loss == lostTransaction {
		o.View.Multi.Store(1)
	}
}

// clear forgets it.
func (l *lostState) clear(o *Connections) {
	if l.loss == lostTransaction {
		o.View.Multi.Store(0)
	}
	if l.loss != lostNothing && o.conn == nil {
		o.View.Watch.Store(false)
		o.View.Watched.Store(0)
	}
	*l = lostState{}
}

// line returns the cause as an error line, which says nothing of what was sent.
func (l *lostState) line() string {
	switch lost := upstream.IsLost(l.cause); {
	case lost && errors.Is(l.cause, upstream.ErrTimeout):
		return "ERR upstream timeout"
	case lost:
		return "ERR upstream connection lost"
	}
	return client.ErrorLine(l.cause)
}

// afterwards is what becomes of a command once something was lost.
type afterwards uint8

const (
	runs     afterwards = iota // it runs as usual
	runsFree                   // it does, and nothing is remembered any more
	begins                     // it is MULTI after a lost WATCH
	aborts                     // it is EXEC of the lost transaction
	discards                   // it is DISCARD of that
	nests                      // it is MULTI within that
	isLost                     // it is any other command of that
)

// after says what becomes of a command of that kind, which is ConnNone if it has arguments.
func (l loss) after(k commandtable.ConnKind) afterwards {
	switch {
	case l == lostWatch && k == commandtable.ConnUnwatch:
		return runsFree
	case l == lostWatch && k == commandtable.ConnMulti:
		return begins
	case l != lostTransaction:
		return runs
	}
	switch k {
	case commandtable.ConnExec:
		return aborts
	case commandtable.ConnDiscard:
		return discards
	case commandtable.ConnMulti:
		return nests
	}
	return isLost
}

// afterLoss answers a command that must not run because something was lost; false: the command runs as usual. p is the
// client's own connection now, nil if it has none.
func (o *Connections) afterLoss(p *conn, cmd redcon.Command, c *commandtable.Command) (taken bool) {
	if c.Always { // QUIT, RESET
		return false
	}
	return !p.Wait() || o.answerLost(o.current(), c.Conn, len(cmd.Args)-1)
}

// answerLost is afterLoss of a command with so many arguments when no reply is pending on p.
func (o *Connections) answerLost(p *conn, k commandtable.ConnKind, args int) (taken bool) {
	line := o.lost.line()
	if args > 0 {
		k = commandtable.ConnNone
	}
	what := o.lost.after(k)
	switch what {
	case runsFree, aborts, discards:
		o.lost.clear(o)
	}
	switch what {
	case begins:
		if p != nil { // what it watches was watched for this transaction
			p.slots.unwatched()
			p.Own(&dedicated.Reply{Kind: commandtable.ConnUnwatch}, unwatchCommand)
			p.Wait()
		}
		o.lose(lostTransaction, o.lost.cause)
		o.client.OK()
	case aborts:
		o.client.Error(commandtable.ExecAborted(line))
	case discards:
		o.client.OK()
	case nests:
		o.client.Error("ERR MULTI calls can not be nested")
	case isLost:
		o.client.Error(line + ": the transaction is discarded, EXEC or DISCARD ends it")
	default:
		return false
	}
	return true
}

var unwatchCommand = resp.AppendCommand(nil, "UNWATCH")
