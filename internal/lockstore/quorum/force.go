package quorum

import (
	"context"

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
		until := q.until(0)
		freed, err := q.all.freed(q.onAll(until, func(n *quorumNode) result {
			return n.ask(until, func(notAfter string) node.Call { return q.steps.ForceOwner(f, field, notAfter) })
		}), "it may still be held")
		if err != nil {
			return 0, err
		}
		if freed == lockstore.Freed || in.Kind == "none" { // what no majority has is gone all the same
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
