package dedicated

import (
	"bytes"
	"regexp"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// State is what Redis keeps for a connection, as far as the replies to its commands have told. It has no I/O and no
// lock: see TestState, which tells what each reply does.
type State struct {
	proto, db   int
	transaction transaction
	watched     int // keys, as WATCH was given them
	monitor     bool
	subs        subscriptions
	tracking    Tracking // the last call; without tracking it says that all is off
	moved       []byte   // the last redirect that the transaction, or the one before, has met

	settings []client.Setting // made in a transaction, of which the client's session has not been told yet
}

// none says that the connection is as if nobody had used it.
func (s *State) none() bool {
	return !s.multi() && s.watched == 0 && !s.hears()
}

// hears says that messages may come: it is subscribed, tracks keys, or sees what others do.
func (s *State) hears() bool { return s.monitor || s.subs.total() > 0 || s.tracking.On }

// multi says that there is a transaction.
func (s *State) multi() bool { return s.transaction.phase != noTransaction }

// executing says that some of EXEC's reply has come, but not all.
func (s *State) executing() bool { return s.transaction.phase == executing }

// bytes is what is kept for it, about.
func (s *State) bytes() int { return s.transaction.bytes + s.subs.bytes }

// sent takes a command that is about to be sent.
func (s *State) sent(e *Reply) {
	if e.Kind == commandtable.ConnSubscribe {
		e.Effect = subscribes{e.Cmd.Name, e.Args}
	}
	if set, ok := e.Effect.(Setting); ok && set.Of == client.SettingName {
		name := set.Value // a copy of its own, so that other commands allocate nothing here
		s.transaction.name = &name
	}
}

// answered takes the reply to e, of which the beginning is enough. If that is an EXEC that has run something, execute
// takes it.
func (s *State) answered(e *Reply, reply []byte) {
	switch {
	case reply[0] == '-':
		s.failed(e, reply)
	case s.multi() && bytes.Equal(reply, queuedReply):
		s.transaction.queue(e.Effect)
	default:
		s.succeeded(e)
	}
}

// failed takes an error.
func (s *State) failed(e *Reply, line []byte) {
	if e.InMulti && cluster.Redirects(line) {
		s.moved = bytes.Clone(line)
	}
	switch e.Kind {
	case commandtable.ConnExec:
		if Aborted(line) {
			s.ended()
		}
	case commandtable.ConnNone:
		if s.multi() {
			s.transaction.phase = aborted
		}
	}
}

// Aborted says whether an error of EXEC ends the transaction; other errors leave all as it was.
func Aborted(reply []byte) bool {
	return cluster.RefusedForSlot(reply) || aborts.Match(reply)
}

// aborts matches the other errors that end a transaction.
var aborts = regexp.MustCompile("^-EXECABORT|^-CROSSSLOT|EXEC aborted")

// succeeded takes any other reply.
func (s *State) succeeded(e *Reply) {
	switch e.Kind {
	case commandtable.ConnMulti:
		s.transaction, s.moved = transaction{phase: queueing}, nil
	case commandtable.ConnExec, commandtable.ConnDiscard: // null: a watched key has changed
		s.ended()
	case commandtable.ConnWatch:
		s.watched += e.Args
	case commandtable.ConnUnwatch:
		s.watched = 0
	case commandtable.ConnMonitor:
		s.monitor = true
	}
	s.apply(e.Effect)
}

func (s *State) apply(e Effect) {
	if e != nil {
		e.apply(s)
	}
}

// execute takes the head of EXEC's reply: n commands have been run.
func (s *State) execute(n int) {
	s.watched = 0
	s.transaction.phase, s.transaction.place, s.transaction.left = executing, 0, n
}

// ended ends a transaction, and with it WATCH.
func (s *State) ended() { s.transaction, s.watched = transaction{}, 0 }

// element takes the reply of one of EXEC's commands, which may be only its beginning.
func (s *State) element(reply []byte) {
	if reply[0] != '-' {
		s.apply(s.transaction.effect())
	}
	s.transaction.next()
}

// unanswered takes a command whose reply is lost, under a client that stays: as if Redis had done what the client goes
// by. ok: the client is told OK, else an error. A transaction without EXEC has surely not run, and a client that sees
// an error before EXEC may send what should be within one.
func (s *State) unanswered(e *Reply) (ok bool) {
	if s.multi() {
		if e.Args > 0 { // it ends nothing
			return false
		}
		switch e.Kind {
		case commandtable.ConnDiscard:
			s.ended()
			return true
		case commandtable.ConnExec:
			s.ended()
		}
		return false
	}
	switch e.Kind {
	case commandtable.ConnMulti:
		s.transaction.phase = queueing
		return true
	case commandtable.ConnWatch:
		s.watched += e.Args
	case commandtable.ConnUnwatch:
		s.watched = 0
	}
	return false
}
