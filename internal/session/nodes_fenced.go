package session

import (
	"errors"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// FENCED with a cluster upstream runs at the master of the lock's slot, on a connection beside the session's own, which may
// be at another node. EXEC is given a look at the lock besides the command: so it has the lock's slot even if the command
// has no keys, and is run only by the slot's master, and while the slot moves only where the lock and all keys are together.
// Whatever a node refuses for want of the slot has not run, and is begun anew from WATCH on.

const fencedCrossSlot = crossSlot + ": what FENCED runs must have its keys in the lock's own slot; give both the same hash tag, as in {order:7}:lock and {order:7}:stock"

// fencedGuard is a field that no lock has. Asked for it, Redis answers with one null.
const fencedGuard = "lockproxy_guard"

// fencedHead is what comes before the command's own reply in that of EXEC.
var fencedHead = map[int]string{2: "*2\r\n*1\r\n$-1\r\n", 3: "*2\r\n*1\r\n_\r\n"}

// fenced is fenced with a cluster upstream.
func (u *clustered) fenced(r lock.HoldRequest, c *commandtable.Command, args [][]byte) error {
	if p := u.s.currentDedicated(); p != nil && u.s.own.view.Watch.Load() {
		return errFencedWatch
	}
	w := fencedRoute{u: u, slot: cluster.Slot([]byte(r.Key)), until: time.Now().Add(u.nodes.RetryFor())}
	if err := w.takes(c, args); err != nil {
		return err
	}
	f := fence{s: u.s, r: r, cmd: c, raw: resp.Command(args), guarded: true, hold: u.s.Locks().ReadHoldHere(r)}
	for changed := 0; changed < fencedTries; {
		if err := u.s.Locks().Lost(r); err != nil {
			return err
		}
		done, err := w.try(&f)
		switch {
		case done:
			return nil
		case err == nil:
			changed++
		case !w.again(&f, err):
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
	slot, cross := w.u.slotOf(c, args)
	if cross || slot != noSlot && slot != w.slot {
		return &upstream.ReplyError{Line: fencedCrossSlot}
	}
	route := w.u.s.srv.facts.table.Load().routeOf(c)
	f := route.facts
	if slot == noSlot && f != nil && f.Name != "ping" && (route.run != nil || f.Request != cluster.OneNode || f.Name == "scan") {
		return &lock.Error{Code: "ERR", Text: "'" + displayName(c) + "' cannot be run by FENCED on a cluster: it concerns all nodes, and FENCED runs at that of the lock"}
	}
	return nil
}

// try is one try of f, on a connection of its own.
func (w *fencedRoute) try(f *fence) (done bool, err error) {
	if w.to != nil {
		f.p, err = w.u.connectAt(w.to, new(dedicated.View))
	}
	if f.ask = w.ask; w.to == nil || err != nil {
		f.ask = false
		f.p, err = w.u.connectSlot(w.slot, new(dedicated.View))
	}
	w.to, w.ask = nil, false
	if err != nil {
		w.u.s.noteTrouble(err)
		w.until = time.Time{} // that has been tried for long enough
		return false, err
	}
	defer w.u.s.endAside(f.p)
	if f.cmd == nil {
		f.p.Taint()
	}
	return f.try()
}

// again says whether a try that failed with err is to be followed by another: nothing has run, and another node, or a later
// moment, may do better. It waits where that helps.
func (w *fencedRoute) again(f *fence, err error) bool {
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
	to, ask, redirected := w.u.nodes.Redirect(line, w.slot, f.p.Node)
	switch {
	case redirected && !ask, redirected && !f.looked: // the lock itself is there
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

// guardReply is the command's own reply in that of EXEC, should it not have the head that is always there.
func guardReply(executed []byte) (reply []byte, ran bool) {
	r, ok := resp.ParseReply(executed)
	if !ok || r.Kind != '*' || len(r.Elems) != 2 {
		return nil, false
	}
	return r.Elems[1].Raw, true
}
