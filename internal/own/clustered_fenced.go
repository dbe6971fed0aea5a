package own

import (
	"fmt"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/fenced"
	"github.com/lockproxy/lockproxy/upstream"
)

// FENCED with a cluster upstream runs at the master of the lock's slot. Besides the command the transaction has a look
// at the lock: so EXEC has the lock's slot even if the command has no keys. It runs only at the slot's master, and while the slot moves only where the lock and all
// keys are together. What a node refuses because the slot is not there has not run, and is begun anew from WATCH on.

func (u *clustered) fenced(f *fenced.Fence) error {
	slot, c := cluster.Slot([]byte(f.Request.Key)), f.Command
	switch of, cross := u.forwarder.SlotOf(c, f.Args); {
	case cross, differ(of, slot):
		return &upstream.ReplyError{Line: commandtable.FencedCrossSlot}
	case of == backend.NoSlot && u.Routes.Load().AtAllNodes(c):
		return &upstream.ReplyError{Line: fmt.Sprintf(commandtable.FencedAtAllNodes, c.Title())}
	}
	f.Slot.Guarded = true
	t := u.nodes.Tries(slot)
	for changed := 0; changed < fencedTries; {
		if err := f.Locks.Lost(f.Request); err != nil {
			return err
		}
		done, r, err := u.fencedOnce(t, f)
		switch {
		case done:
			return nil
		case err == nil:
			changed++
		case !t.Again(u.client.Context(), r):
			if r == cluster.Unreached {
				u.Trouble(err)
			}
			return halfWay(err)
		}
	}
	return errFencedChanged
}

// fencedOnce tries f once, on a connection of its own. With an error r is why it has not run.
func (u *clustered) fencedOnce(t *cluster.Tries, f *fenced.Fence) (done bool, r cluster.Refusal, err error) {
	f.Slot.Ask = t.Ask
	p, err := u.connectFor(t, new(dedicated.View))
	if err != nil {
		return false, unreached(err), err
	}
	done, err = p.fencedAt(f)
	switch {
	case upstream.IsNotSent(err):
		r = cluster.Unreached
	case f.Slot.Looked && isAsk(err): // a key has moved ahead of the lock, or is missing while the slot moves: the rest follows soon
		r = cluster.Incomplete
	default:
		r = u.nodes.RefusalIn(p.Node, err)
	}
	return done, r, err
}

// isAsk says that a node has sent on what was asked of it, but not for good.
func isAsk(err error) bool { return upstream.RefusedWith(err, "ASK") }

// halfWay returns err as clients get it, who must not follow a node's ASK.
func halfWay(err error) error {
	if isAsk(err) {
		return &upstream.ReplyError{Line: "TRYAGAIN Multiple keys request during rehashing of slot"}
	}
	return err
}
