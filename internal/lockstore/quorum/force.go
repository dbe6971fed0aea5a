package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// Force frees a lock on all nodes, even one that no majority has. The answer is a majority's. The nodes are first asked who has the lock, and only
// those owners are made to lose it: who has waited for it gets it when the first nodes are free, and must not lose it on the others.
func (q *store) Force(_ context.Context, f lockstore.Forcing) (code int64, err error) {
	const unknown = "it may still be held"
	answers, err := each(q, unknown, func(n *quorumNode) (node.Contents, error) {
		return node.ContentsOf(n.Eval(node.Info(f.DB, f.Key), false))
	})
	if err != nil {
		return 0, err
	}
	var owners []string
	rw := 0
	for _, c := range valuesOf(answers) {
		owners = append(owners, c.Fields...)
		if c.RW {
			rw++
		}
	}
	if f.Kind == lockstore.Plain && rw >= q.majority() {
		return lockstore.OtherKind, nil // it is asked for again as what it is
	}
	if f.Only != nil {
		owners = f.Fields()
	}
	slices.Sort(owners)
	owners = slices.Compact(owners)
	code, sure, err := q.forceOnce(f, owners, unknown)
	if err == nil && !sure { // a vote from before may come to a node that had nothing, see settle
		again, _, err := q.forceOnce(f, owners, unknown)
		if err == nil && code != lockstore.Freed {
			code = again
		}
	}
	return code, err
}

// forceOnce asks all nodes, and returns when none can do it any more. sure says that all have answered.
func (q *store) forceOnce(f lockstore.Forcing, owners []string, unknown string) (code int64, sure bool, err error) {
	until := q.until(0)
	answers, err := each(q, unknown, func(n *quorumNode) (code int64, err error) {
		if err := q.trusted(n); err != nil {
			return 0, err
		}
		now, _ := n.Clock.Now()
		reply, err := n.Eval(q.steps.ForceOwners(f, owners, node.NotAfter(now+time.Until(until).Microseconds())), false)
		if err == nil {
			code, err = reply.AsInt64()
		}
		if code == scripts.Late {
			err = &upstream.NotSentError{Cause: lockstore.ErrLate}
		}
		return code, err
	})
	if sure = err == nil && len(answers) == len(q.all); !sure {
		q.host.Sleep(context.Background(), time.Until(until)+node.ClockTolerance)
	}
	if err != nil {
		return 0, false, err
	}
	return tally.Forced(valuesOf(answers), len(q.all)), sure, nil
}
