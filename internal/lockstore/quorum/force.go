package quorum

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// Force frees a lock on all nodes, even one that no majority has. The nodes are first asked who has the lock, and only
// those owners are made to lose it: whoever has waited for it gets it when the first nodes are free, and must not lose
// it on the others.
func (q *store) Force(ctx context.Context, f lockstore.Forcing) (code int64, err error) {
	in, err := q.Info(ctx, f.DB, f.Key, lockstore.AllOwners)
	if err != nil {
		return 0, err
	}
	rw := in.Kind == lockstore.Read.String() || in.Kind == lockstore.Write.String()
	switch {
	case in.Kind == "other":
		return lockstore.NoLock, nil
	case in.Kind != "none" && rw != f.Kind.Spec().RW:
		return lockstore.OtherKind, nil
	}
	for field := range holders(in.Nodes, f) {
		freed, err := q.forceOwner(f, field)
		if err != nil {
			return 0, err
		}
		if freed || in.Kind == "none" { // what no majority has is gone all the same
			code = lockstore.Freed
		}
	}
	return code, nil
}

// holders are the fields of those that have the lock on any node, in the mode that is to be freed.
func holders(nodes []lockstore.NodeInfo, f lockstore.Forcing) map[string]bool {
	fields := map[string]bool{}
	for _, n := range nodes {
		if f.Side != lockstore.Plain && n.Has.Kind != f.Side.String() {
			continue
		}
		for _, o := range n.Has.Owners {
			if o.Kind.Spec().RW == f.Kind.Spec().RW {
				fields[o.Field] = true
			}
		}
	}
	return fields
}

// forceOwner takes all that an owner has of a lock. A vote that was sent before may come to a node only now which did
// not have the lock yet: with one that is not reached this could be a majority. So such nodes are asked once more when
// no such vote can be done any more.
func (q *store) forceOwner(f lockstore.Forcing, field string) (freed bool, err error) {
	for range 2 {
		until := q.until(0)
		all := q.onAll(until, func(n *quorumNode) result {
			return n.ask(until, func(notAfter string) node.Call { return q.steps.ForceOwner(f, field, notAfter) })
		})
		code, err := q.all.freed(all, "it may still be held")
		if err != nil {
			return freed, err
		}
		freed = freed || code == lockstore.Freed
		if t := q.all.tallyOf(all); t.Count(lockstore.NotHeld) == 0 || len(t.Said) == len(q.all) {
			break
		}
		q.host.Sleep(context.Background(), time.Until(final(until)))
	}
	return freed, nil
}
