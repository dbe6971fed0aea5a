package own

import (
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/fenced"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/upstream"
)

// FENCED with a cluster upstream runs at the master of the lock's slot, on a connection beside the client's own, which may
// be at another node. Besides the command the transaction has a look at the lock: so EXEC has the lock's slot even if the
// command has no keys. It runs only at the slot's master, and while the slot moves only where the lock and all keys are
// together. What a node refuses because the slot is not there has not run, and is begun anew from WATCH on.

const fencedCrossSlot = cluster.CrossSlot + ": what FENCED runs must have its keys in the lock's own slot; give both the same hash tag, as in {order:7}:lock and {order:7}:stock"

func (u *clustered) fenced(p *conn, f *fenced.Fence) error {
	if p != nil && u.View.Watch.Load() {
		return errFencedWatch
	}
	w := fencedRoute{u: u, slot: cluster.Slot([]byte(f.Request.Key)), until: time.Now().Add(u.nodes.RetryFor())}
	if err := w.takes(f.Command, f.Args); err != nil {
		return err
	}
	f.Slot.Guarded = true
	for changed := 0; changed < fencedTries; {
		if err := f.Locks.Lost(f.Request); err != nil {
			return err
		}
		done, err := w.try(f)
		switch {
		case done:
			return nil
		case err == nil:
			changed++
		case !w.mayRetry(f, err):
			return halfWay(err)
		}
	}
	return errFencedChanged
}

// halfWay returns err as clients get it, who must not follow a node's ASK.
func halfWay(err error) error {
	if refusal := upstream.Refused(err); refusal != nil && strings.HasPrefix(refusal.Line, "ASK ") {
		return &upstream.ReplyError{Line: "TRYAGAIN Multiple keys request during rehashing of slot"}
	}
	return err
}

// fencedRoute is how one FENCED finds its node.
type fencedRoute struct {
	u     *clustered
	slot  int
	until time.Time     // after that no further try is made
	to    *cluster.Node // where a redirect says; nil: the slot's owner
	ask   bool          // ASKING is sent first
}

// takes returns an error for a command that does not run at the lock's node, or not only there.
func (w *fencedRoute) takes(c *commandtable.Command, args [][]byte) error {
	slot, cross := w.u.forwarder.SlotOf(c, args)
	if cross || slot != backend.NoSlot && slot != w.slot {
		return &upstream.ReplyError{Line: fencedCrossSlot}
	}
	if slot == backend.NoSlot && w.u.Routes.Load().AtAllNodes(c) {
		return &lock.Error{Code: "ERR", Text: "'" + c.Title() + "' cannot be run by FENCED on a cluster: it concerns all nodes, and FENCED runs at that of the lock"}
	}
	return nil
}

// try tries f once, on a connection of its own.
func (w *fencedRoute) try(f *fenced.Fence) (done bool, err error) {
	var p *conn
	if w.to != nil {
		p, err = w.u.connectAt(w.u.Context, w.to, new(dedicated.View))
	}
	if f.Slot.Ask = w.ask; w.to == nil || err != nil {
		f.Slot.Ask = false
		p, err = w.u.connectSlot(w.slot, new(dedicated.View))
	}
	w.to, w.ask = nil, false
	if err != nil {
		w.u.Trouble(err)
		w.until = time.Time{} // connectSlot has tried for long enough
		return false, err
	}
	defer p.endAside()
	return p.fencedAt(f)
}

// mayRetry says whether to try once more after err: nothing has run, and another node, or the same one later, may run it. It
// waits if that helps.
func (w *fencedRoute) mayRetry(f *fenced.Fence, err error) bool {
	var line []byte
	switch refusal := upstream.Refused(err); {
	case refusal != nil:
		line = []byte("-" + refusal.Line + "\r\n")
		if !dedicated.IsRedirect(line) && !strings.HasPrefix(refusal.Line, "READONLY ") {
			return false
		}
	case !upstream.IsNotSent(err):
		return false
	}
	if !time.Now().Before(w.until) || w.u.client.End.Over() || w.u.Context.Err() != nil {
		return false
	}
	to, ask, redirected := w.u.nodes.Redirect(line, w.slot, f.Conn.Node)
	switch {
	case redirected && !ask, redirected && !f.Slot.Looked: // the lock itself is there
		w.to, w.ask = to, ask
	case redirected: // a key has moved ahead of the lock, or is missing while the slot moves: the rest follows soon
		w.u.client.Pause(backend.SlotPause)
		return true
	}
	if w.to == nil {
		w.u.nodes.LookAgain(w.u.client)
	}
	return true
}
