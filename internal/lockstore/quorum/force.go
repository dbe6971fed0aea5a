package quorum

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
)

// force frees a lock on all nodes, even one that no majority has. The nodes are first asked who has the lock, and only
// those owners are made to lose it: whoever has waited for it gets it when the first nodes are free, and must not lose
// it on the others.
func (q *store) force(ctx context.Context, r *lockstore.Release) (code int64, err error) {
	in, err := q.Info(ctx, r.ID.DB, r.ID.Key, lockstore.AllOwners)
	if err != nil {
		return 0, err
	}
	rw := in.Kind == lockstore.Read.String() || in.Kind == lockstore.Write.String()
	switch {
	case in.Kind == "other":
		return lockstore.NoLock, nil
	case in.Kind != "none" && rw != r.ID.Kind.Spec().RW:
		return lockstore.OtherKind, nil
	}
	for field := range holders(in.Nodes, r) {
		until := q.until(0)
		freed, err := q.all.freed(q.onAll(until, func(n *quorumNode) result {
			return n.askVote(until, func(notAfter string) node.Call { return q.steps.ForceOwner(r, field, notAfter) })
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
func holders(nodes []lockstore.NodeInfo, r *lockstore.Release) map[string]bool {
	fields := map[string]bool{}
	for _, n := range nodes {
		if !r.Whole && n.Has.Kind != r.ID.Kind.String() {
			continue
		}
		for _, o := range n.Has.Owners {
			if o.Kind.Spec().RW == r.ID.Kind.Spec().RW {
				fields[o.Field] = true
			}
		}
	}
	return fields
}
