package session

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/fenced"
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
	f, p := s.fence(r, c, args), s.currentDedicated()
	if p == nil {
		if p, err = s.openDedicated(); err != nil {
			s.noteTrouble(err)
			return err
		}
	}
	defer s.release()
	now := p.Status()
	if now.Watch {
		return errFencedWatch
	}
	if c == nil && !s.srv.o.Embedded {
		p.Taint() // whatever it is, nobody else gets this connection
	}
	f.Host, f.Conn, f.Tracking, f.Caching = fenceHost{s, p}, p.Conn, now.Tracking, now.Caching
	for range fencedTries {
		if done, err := f.Try(); done || err != nil {
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

func fencedOutcome(err error) string {
	if e, ok := err.(*lock.Error); ok {
		return e.Code
	}
	if err != nil {
		return "error"
	}
	return "ok"
}

// fence is what there is of a FENCED before it has a connection.
func (s *Session) fence(r lock.HoldRequest, c *commandtable.Command, args [][]byte) *fenced.Fence {
	return &fenced.Fence{Request: r, Command: c, Raw: resp.Command(args), Proto: s.ident.Proto, Hold: s.Locks().ReadHoldHere(r)}
}

// fenceHost is what a FENCED asks of its session: see fenced.Host.
type fenceHost struct {
	*Session
	p *dedicatedConn
}

var _ fenced.Host = fenceHost{}

// Ask implements fenced.Host.
func (h fenceHost) Ask(words ...string) ([]byte, error) { return h.ask(words...) }

// Reply implements fenced.Host.
func (h fenceHost) Reply(reply []byte) { h.relay(reply, nil) }

// ScriptsFlushed implements fenced.Host.
func (h fenceHost) ScriptsFlushed() { h.srv.up.common.Scripts.Clear() }

// Abandon implements fenced.Host.
func (h fenceHost) Abandon(hangUp bool, why string) {
	if h.own.dedicated == h.p {
		h.dropDedicated()
	} else {
		h.p.drop()
	}
	if hangUp {
		h.guard.HangUp(downstream.Left, why)
	}
}

// FENCED with a cluster upstream runs at the master of the lock's slot, on a connection beside the session's own, which may
// be at another node. EXEC is given a look at the lock besides the command: so it has the lock's slot even if the command
// has no keys, and is run only by the slot's master, and while the slot moves only where the lock and all keys are together.
// Whatever a node refuses for want of the slot has not run, and is begun anew from WATCH on.

const fencedCrossSlot = crossSlot + ": what FENCED runs must have its keys in the lock's own slot; give both the same hash tag, as in {order:7}:lock and {order:7}:stock"

// fenced is fenced with a cluster upstream.
func (u *clustered) fenced(r lock.HoldRequest, c *commandtable.Command, args [][]byte) error {
	if p := u.s.currentDedicated(); p != nil && u.s.own.view.Watch.Load() {
		return errFencedWatch
	}
	w := fencedRoute{u: u, slot: cluster.Slot([]byte(r.Key)), until: time.Now().Add(u.nodes.RetryFor())}
	if err := w.takes(c, args); err != nil {
		return err
	}
	f := u.s.fence(r, c, args)
	f.Slot.Guarded = true
	for changed := 0; changed < fencedTries; {
		if err := u.s.Locks().Lost(r); err != nil {
			return err
		}
		done, err := w.try(f)
		switch {
		case done:
			return nil
		case err == nil:
			changed++
		case !w.again(f, err):
			return halfWay(err)
		}
	}
	return errFencedChanged
}

// halfWay is err as it is told to clients, who are not to go by a node's ASK.
func halfWay(err error) error {
	var reply *upstream.ReplyError
	if errors.As(err, &reply) && strings.HasPrefix(reply.Line, "ASK ") {
		return &upstream.ReplyError{Line: "TRYAGAIN Multiple keys request during rehashing of slot"}
	}
	return err
}

// fencedRoute is how one FENCED finds its node.
type fencedRoute struct {
	u     *clustered
	slot  int
	until time.Time     // a node that refuses is not tried again later
	to    *cluster.Node // where a redirect says; nil: the slot's owner
	ask   bool          // behind ASKING
}

// takes refuses what does not run at the lock's node, or not there alone.
func (w *fencedRoute) takes(c *commandtable.Command, args [][]byte) error {
	slot, cross := w.u.s.pipes.SlotOf(c, args)
	if cross || slot != backend.NoSlot && slot != w.slot {
		return &upstream.ReplyError{Line: fencedCrossSlot}
	}
	if slot == backend.NoSlot && w.u.s.srv.facts.table.Load().routes.AtAllNodes(c) {
		return &lock.Error{Code: "ERR", Text: "'" + displayName(c) + "' cannot be run by FENCED on a cluster: it concerns all nodes, and FENCED runs at that of the lock"}
	}
	return nil
}

// try is one try of f, on a connection of its own.
func (w *fencedRoute) try(f *fenced.Fence) (done bool, err error) {
	var p *dedicatedConn
	if w.to != nil {
		p, err = w.u.connectAt(w.to, new(dedicated.View))
	}
	if f.Slot.Ask = w.ask; w.to == nil || err != nil {
		f.Slot.Ask = false
		p, err = w.u.connectSlot(w.slot, new(dedicated.View))
	}
	w.to, w.ask = nil, false
	if err != nil {
		w.u.s.noteTrouble(err)
		w.until = time.Time{} // that has been tried for long enough
		return false, err
	}
	defer w.u.s.endAside(p)
	if f.Host, f.Conn = (fenceHost{w.u.s, p}), p.Conn; f.Command == nil {
		p.Taint()
	}
	return f.Try()
}

// again says whether a try that failed with err is to be followed by another: nothing has run, and another node, or a later
// moment, may do better. It waits where that helps.
func (w *fencedRoute) again(f *fenced.Fence, err error) bool {
	var reply *upstream.ReplyError
	var unsent *upstream.NotSentError
	var line []byte
	switch {
	case errors.As(err, &reply):
		line = []byte("-" + reply.Line + "\r\n")
		if !dedicated.IsRedirect(line) && !strings.HasPrefix(reply.Line, "READONLY ") {
			return false
		}
	case !errors.As(err, &unsent):
		return false
	}
	if !time.Now().Before(w.until) || w.u.s.guard.Over() || w.u.s.srv.ctx.Err() != nil {
		return false
	}
	to, ask, redirected := w.u.nodes.Redirect(line, w.slot, f.Conn.Node)
	switch {
	case redirected && !ask, redirected && !f.Slot.Looked: // the lock itself is there
		w.to, w.ask = to, ask
	case redirected: // a key has gone ahead of the lock, or is not there while the slot moves: both follow soon
		w.u.s.pause(slotPause)
		return true
	}
	if w.to == nil {
		w.u.lookAgain()
	}
	return true
}
