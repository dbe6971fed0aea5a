package quorum

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
)

// said is one node's answer to a question.
type said[T any] struct {
	node   *quorumNode
	answer T
	err    error
}

// each puts a question to all nodes, and returns the answers that came in time. They are a majority's, or the error
// says what is not known.
func each[T any](q *store, unknown string, ask func(*quorumNode) (T, error)) (answered []said[T], err error) {
	asked := []result{}
	for _, s := range gather(q, q.until(0), func(_ context.Context, n *quorumNode) (s said[T]) {
		s.node = n
		if s.err = n.admit(); s.err != nil {
			return s
		}
		defer n.calls.Add(-1)
		if s.err = n.jumped(); s.err == nil {
			s.answer, s.err = ask(n)
			n.noteOutcome(s.err)
		}
		return s
	}, everybody[said[T]]) {
		asked = append(asked, result{err: s.err})
		if s.err == nil {
			answered = append(answered, s)
		}
	}
	if len(answered) < q.all.majority() {
		return nil, q.all.noMajority(asked, len(answered), unknown)
	}
	return answered, nil
}

// valuesOf are the answers without the nodes that gave them.
func valuesOf[T any](answers []said[T]) []T {
	all := make([]T, len(answers))
	for i, s := range answers {
		all[i] = s.answer
	}
	return all
}

// Info reads a lock on all nodes. Holders are those that a majority has; TTL is the time for which a majority has the
// lock.
func (q *store) Info(_ context.Context, db int, key string, most int) (lockstore.Info, error) {
	answers, err := each(q, "what is held cannot be said",
		func(n *quorumNode) (lockstore.Info, error) {
			return node.ParseInfo(n.Eval(node.Info(db, key, most), false))
		})
	if err != nil {
		return lockstore.Info{}, err
	}
	seen := map[*quorumNode]lockstore.Info{}
	for _, s := range answers {
		seen[s.node] = s.answer
	}
	out := tally.Info(valuesOf(answers), len(q.all))
	for _, n := range q.all {
		one := n.info()
		if in, ok := seen[n]; ok {
			one.Has = in
		} else if one.State == "up" {
			one.State, one.Trouble = "down", errNoAnswer.Error()
		}
		out.Nodes = append(out.Nodes, one)
	}
	return out, nil
}

// Look is what a majority has of one owner's holds.
func (q *store) Look(id lockstore.ID, final, _ time.Time) (lockstore.Seen, error) {
	if wait := time.Until(final); wait > 0 {
		q.host.Sleep(context.Background(), wait)
	}
	answers, err := each(q, "what is held cannot be said", func(n *quorumNode) (lockstore.Seen, error) {
		look := node.Look(id)
		out, err := look.Ints(n.Eval(look, false))
		if err != nil {
			return lockstore.Seen{}, err
		}
		return node.Seen(out), nil
	})
	return tally.Seen(valuesOf(answers), len(q.all)), err
}
