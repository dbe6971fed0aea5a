package quorum

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// said is one node's answer to a question.
type said[T any] struct {
	node   *quorumNode
	answer T
	err    error
}

// each puts a question to all nodes, and returns the answers that came in time. They are a majority's, or the error says what is not
// known.
func each[T any](q *store, unknown string, ask func(*quorumNode) (T, error)) (answered []said[T], err error) {
	asked := []result{}
	for _, s := range gather(q, q.until(0), func(n *quorumNode) (s said[T]) {
		s.node = n
		if s.err = n.admit(); s.err != nil {
			return s
		}
		defer n.calls.Add(-1)
		if s.err = n.jumped(); s.err == nil {
			s.answer, s.err = ask(n)
			n.note(s.err)
		}
		return s
	}, everybody[said[T]]) {
		asked = append(asked, result{err: s.err})
		if s.err == nil {
			answered = append(answered, s)
		}
	}
	if len(answered) < q.majority() {
		return nil, q.noMajority(asked, len(answered), unknown)
	}
	return answered, nil
}

// Force frees a lock on all nodes, even one that no majority has. The answer is a majority's.
func (q *store) Force(_ context.Context, f lockstore.Forcing) (code int64, err error) {
	until := q.until(0)
	answers, err := each(q, "it may still be held", func(n *quorumNode) (code int64, err error) {
		if err := q.trusted(n); err != nil {
			return 0, err
		}
		now, _ := n.Clock.Now()
		reply, err := n.Eval(q.steps.Force(f, node.NotAfter(now+time.Until(until).Microseconds())), false)
		if err == nil {
			code, err = reply.AsInt64()
		}
		if code == scripts.Late {
			err = &upstream.NotSentError{Cause: lockstore.ErrLate}
		}
		return code, err
	})
	if err != nil {
		return 0, err
	}
	codes := map[int64]int{}
	for _, s := range answers {
		codes[s.answer]++
	}
	for _, code := range []int64{lockstore.OtherKind, lockstore.NoLock} {
		if codes[code] >= q.majority() {
			return code, nil
		}
	}
	if codes[lockstore.Freed] > 0 {
		return lockstore.Freed, nil
	}
	return lockstore.NothingHeld, nil
}

// Info reads a lock on all nodes. Holders are those that a majority has; TTL is the time for which a majority has the lock.
func (q *store) Info(_ context.Context, db int, key string) (lockstore.Info, error) {
	answers, err := each(q, "what is held cannot be said", func(n *quorumNode) (lockstore.Info, error) { return node.ParseInfo(n.Eval(node.Info(db, key), false)) })
	if err != nil {
		return lockstore.Info{}, err
	}
	seen := map[*quorumNode]lockstore.Info{}
	for _, s := range answers {
		seen[s.node] = s.answer
	}
	out := q.merge(seen)
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

// merge makes the Info of one lock from what the nodes have.
func (q *store) merge(seen map[*quorumNode]lockstore.Info) lockstore.Info {
	kinds := map[string]int{}
	type who struct {
		owner string
		kind  lockstore.Kind
	}
	holders := map[who]int{}
	var tokens []int64
	out := lockstore.Info{Kind: "none", TTL: -2}
	for _, in := range seen {
		kinds[in.Kind]++
		tokens = append(tokens, in.Token)
		out.Queue = max(out.Queue, in.Queue)
		for _, h := range in.Owners {
			holders[who{h.Owner, h.Kind}]++
		}
	}
	out.Token, out.Fenced = tally.LastToken(tokens, len(q.all))
	for kind, n := range kinds {
		if n >= q.majority() {
			out.Kind = kind
		}
	}
	for w, n := range holders {
		if n >= q.majority() {
			out.Owners = append(out.Owners, lockstore.Owned{Owner: w.owner, Kind: w.kind, Holds: 1})
		}
	}
	if out.Kind != "none" {
		var left []int64
		for _, in := range seen {
			if in.Kind == out.Kind {
				left = append(left, in.TTL)
			}
		}
		out.TTL = tally.Lasts(left, q.majority())
	}
	return out
}

// SidesHeld asks a majority on which sides of a read/write lock an owner has a hold, or whether it has a plain one.
func (q *store) SidesHeld(_ context.Context, id lockstore.ID) ([]lockstore.Kind, error) {
	answers, err := each(q, "what this owner holds cannot be said", func(n *quorumNode) ([]lockstore.Kind, error) {
		client, err := n.Control.Client(id.DB)
		if err != nil {
			return nil, node.Outcome(err)
		}
		parts, err := client.Do(context.Background(), node.Sides(client, id)).ToArray()
		return node.SidesIn(parts), node.Outcome(err)
	})
	if err != nil {
		return nil, err
	}
	has := map[lockstore.Kind]int{}
	for _, s := range answers {
		for _, k := range s.answer {
			has[k]++
		}
	}
	var held []lockstore.Kind
	for _, k := range lockstore.Kinds {
		if has[k]+len(q.all)-len(answers) >= q.majority() && has[k] > 0 {
			held = append(held, k)
		}
	}
	if len(held) > 1 && held[0] == lockstore.Plain { // an owner cannot have both: one of them is a leftover
		held = held[1:]
	}
	return held, nil
}

// Look is what a majority has of one owner's hold.
func (q *store) Look(id lockstore.ID, named bool, _ int64, _ time.Time) (lockstore.Seen, error) {
	all := lockstore.Seen{At: time.Now()}
	answers, err := each(q, "what is held cannot be said", func(n *quorumNode) (lockstore.Seen, error) {
		reply, err := n.Eval(node.Look(id, named), false)
		seen, _ := node.Seen(reply)
		return seen, err
	})
	var left []int64
	watched, registered := 0, map[lockstore.Registration]int{}
	for _, s := range answers {
		registered[s.answer.Registration]++
		if s.answer.Count > 0 {
			left = append(left, s.answer.TTL)
		}
		if s.answer.Watched {
			watched++
		}
	}
	if len(left) >= q.majority() {
		all.Count, all.TTL = 1, tally.Lasts(left, q.majority())
	}
	all.Unsure = len(left) > 0 && len(left) < q.majority() && len(left)+len(q.all)-len(answers) >= q.majority()
	all.Watched = watched >= q.majority()
	for registration, n := range registered {
		if n >= q.majority() {
			all.Registration = registration
		}
	}
	return all, err
}
