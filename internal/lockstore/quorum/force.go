package quorum

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Force frees a lock on all nodes, even one that no majority has. The nodes are first asked who has the lock, and only
// those owners are made to lose it: whoever has waited for it gets it when the first nodes are free, and must not lose it on the others.
func (q *store) Force(ctx context.Context, f lockstore.Forcing) (code int64, err error) {
	in, err := q.Info(ctx, f.DB, f.Key)
	if err != nil {
		return 0, err
	}
	rw := f.Kind.Spec().RW
	owners := map[lockstore.Owned]bool{}
	for _, n := range in.Nodes {
		for _, o := range n.Has.Owners {
			if o.Kind.Spec().RW == rw && (f.Side == lockstore.Plain || o.Kind == f.Side) {
				owners[lockstore.Owned{Owner: o.Owner, Kind: o.Kind}] = true
			}
		}
	}
	switch {
	case rw && in.Kind == lockstore.Plain.String(), !rw && (in.Kind == lockstore.Read.String() || in.Kind == lockstore.Write.String()):
		return lockstore.OtherKind, nil
	case in.Kind == "other":
		return lockstore.NoLock, nil
	}
	for o := range owners {
		done, err := q.releaseNamed(&lockstore.Release{ID: lockstore.ID{DB: f.DB, Key: f.Key, Owner: o.Owner, Kind: o.Kind}, Named: true})
		if err != nil {
			return 0, err
		}
		if done.Code == lockstore.Freed || done.Code == lockstore.NotHeld && in.Kind == "none" {
			code = lockstore.Freed
		}
	}
	return code, nil
}
