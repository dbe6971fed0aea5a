package quorum

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/tally"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// said is one node's reply to a call that is no array of integers.
type said struct {
	node  *member
	reply rueidis.RedisMessage
	err   error
}

// each runs a call on all nodes, through the client for all but the locks' own steps, and waits for those that answer in time.
func (q *store) each(until time.Time, do func(*member) (rueidis.RedisMessage, error)) []said {
	return gather(q, until, func(n *member) said {
		if n.calls.Add(1) > manyCalls {
			n.calls.Add(-1)
			return said{node: n, err: &upstream.NotSentError{Cause: errBusyNode}}
		}
		defer n.calls.Add(-1)
		if err := n.jumped(); err != nil {
			return said{node: n, err: err}
		}
		reply, err := do(n)
		n.note(err)
		return said{n, reply, err}
	}, everybody[said])
}

// Force frees a lock on all nodes. The answer is a majority's; what no majority has is freed as well.
func (q *store) Force(_ context.Context, f lockstore.Forcing) (code int64, err error) {
	until := q.until(0)
	heard := q.each(until, func(n *member) (rueidis.RedisMessage, error) {
		if err := q.trusted(n); err != nil {
			return rueidis.RedisMessage{}, err
		}
		now, _ := n.Clock.Now()
		return n.Eval(q.steps.Force(f, strconv.FormatInt(now+time.Until(until).Microseconds(), 10)), false)
	})
	codes, asked := map[int64]int{}, []result{}
	answered := 0
	for _, s := range heard {
		code, e := s.reply.AsInt64()
		if s.err == nil && e == nil && code != scripts.Late {
			codes[code]++
			answered++
		}
		asked = append(asked, result{err: s.err})
	}
	if answered < q.majority() {
		return 0, q.trouble(asked, answered, "it may still be held")
	}
	for _, code := range []int64{scripts.OtherKind, scripts.NoLock} {
		if codes[code] >= q.majority() {
			return code, nil
		}
	}
	if codes[1] > 0 {
		return 1, nil
	}
	return 0, nil
}

// Info reads a lock on all nodes. Holders are those that a majority has; TTL is the time for which a majority has the lock.
func (q *store) Info(_ context.Context, db int, key string) (lockstore.Info, error) {
	heard := q.each(q.until(0), func(n *member) (rueidis.RedisMessage, error) { return n.Eval(node.Info(db, key), false) })
	asked := []result{}
	seen := map[*member]lockstore.Info{}
	for _, s := range heard {
		in, err := node.ParseInfo(s.reply, s.err)
		asked = append(asked, result{err: err})
		if err == nil {
			seen[s.node] = in
		}
	}
	if len(seen) < q.majority() {
		return lockstore.Info{}, q.trouble(asked, len(seen), "what is held cannot be said")
	}
	out := q.merge(seen)
	for _, n := range q.all {
		one := n.info()
		if in, ok := seen[n]; ok {
			one.Has = in
		} else if one.State == "up" {
			one.State, one.Trouble = "down", errUnasked.Error()
		}
		out.Nodes = append(out.Nodes, one)
	}
	return out, nil
}

// merge makes one lock of what the nodes have.
func (q *store) merge(seen map[*member]lockstore.Info) lockstore.Info {
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

// SidesHeld asks a majority on which sides of a read/write lock an owner has a hold.
func (q *store) SidesHeld(_ context.Context, id lockstore.ID) ([]lockstore.Kind, error) {
	heard := q.each(q.until(0), func(n *member) (rueidis.RedisMessage, error) {
		client, err := n.Control.Client(id.DB)
		if err != nil {
			return rueidis.RedisMessage{}, &upstream.NotSentError{Cause: err}
		}
		reply, err := client.Do(context.Background(), node.Sides(client, id)).ToMessage()
		return reply, node.Outcome(err)
	})
	answered, asked, has := 0, []result{}, map[lockstore.Kind]int{}
	for _, s := range heard {
		asked = append(asked, result{err: s.err})
		if s.err != nil {
			continue
		}
		answered++
		parts, _ := s.reply.ToArray()
		for _, k := range node.SidesIn(parts) {
			has[k]++
		}
	}
	if answered < q.majority() {
		return nil, q.trouble(asked, answered, "what this owner holds cannot be said")
	}
	var held []lockstore.Kind
	for _, k := range []lockstore.Kind{lockstore.Read, lockstore.Write} {
		if has[k]+len(q.all)-answered >= q.majority() && has[k] > 0 {
			held = append(held, k)
		}
	}
	return held, nil
}

// Look is what a majority has of one owner's hold.
func (q *store) Look(id lockstore.ID, _ bool, _ int64, _ time.Time) (lockstore.Seen, error) {
	s := lockstore.Seen{At: time.Now()}
	in, err := q.Info(context.Background(), id.DB, id.Key)
	for _, h := range in.Owners {
		if h.Owner == id.Owner && h.Kind == id.Kind {
			s.Count, s.TTL = h.Holds, in.TTL
		}
	}
	return s, err
}

// WatchedElsewhere says whether a majority knows who renews an owner's hold.
func (q *store) WatchedElsewhere(id lockstore.ID) bool {
	known := 0
	heard := q.each(q.until(0), func(n *member) (rueidis.RedisMessage, error) {
		client, err := n.Control.Client(id.DB)
		if err != nil {
			return rueidis.RedisMessage{}, &upstream.NotSentError{Cause: err}
		}
		reply, err := client.Do(context.Background(), client.B().Get().Key(id.WatchKey()).Build()).ToMessage()
		if rueidis.IsRedisNil(err) {
			err = nil
		}
		return reply, node.Outcome(err)
	})
	for _, s := range heard {
		if text, err := s.reply.ToString(); s.err == nil && err == nil && lockstore.Watching(text) {
			known++
		}
	}
	return known >= q.majority()
}
