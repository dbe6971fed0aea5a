package session

import (
	"context"
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/upstream"
)

// Fenced runs a command if the lock is held as r asks: see own.Connections.Fenced.
func (s *Session) Fenced(r lock.HoldRequest, args [][]byte) error {
	began := time.Now()
	ctx, span := telemetry.SpanAbout(s.client.Traced(context.Background()), "FENCED", r.Key)
	defer span.End()
	err := s.fenced(r, args)
	telemetry.VerbDone(ctx, "fenced", fencedOutcome(err), time.Since(began))
	return err
}

func (s *Session) fenced(r lock.HoldRequest, args [][]byte) error {
	if err := s.srv.o.Locks.Fences(r.Key); err != nil {
		return err
	}
	c, err := s.fenceable(args)
	if err != nil {
		return err
	}
	return s.own.Fenced(s.Locks(), r, c, args)
}

// fenceable finds out what a command is, and refuses those that FENCED cannot run: those that lockproxy answers, may
// wait, or concern the connection. That Redis does not have a command, Redis itself will say.
func (s *Session) fenceable(args [][]byte) (*commandtable.Command, error) {
	t := s.srv.facts.table.Load()
	within := call{Command: redcon.Command{Args: args}}
	within.row, within.answer = t.findRow(args)
	if within.row == nil {
		within.row, within.answer = s.lookedUp(args)
	}
	s.undebugged(&within)
	c := within.row
	if c == commandtable.Unlisted {
		return c, nil
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
	return nil, &lock.Error{Code: "ERR", Text: "'" + c.Title() + "' cannot be run by FENCED: " + why}
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
