package tally

import "github.com/lockproxy/lockproxy/internal/lockstore"

// What the nodes of a quorum have of a lock, each of those that answered: what a majority of all nodes has is what
// holds.

// Seen is what a majority has of one owner's holds.
func Seen(all []lockstore.Seen, nodes int) (out lockstore.Seen) {
	need, dark := Majority(nodes), nodes-len(all)
	of := func(has func(lockstore.Seen) bool) bool {
		n := 0
		for _, s := range all {
			if has(s) {
				n++
			}
		}
		out.Unsure = out.Unsure || n > 0 && n < need && n+dark >= need
		return n >= need
	}
	out.Plain = of(func(s lockstore.Seen) bool { return s.Plain })
	out.Reads = of(func(s lockstore.Seen) bool { return s.Reads })
	out.Writes = of(func(s lockstore.Seen) bool { return s.Writes })
	return out
}

// Info is what a majority has of a lock. Holders are those that a majority has; TTL is for how long a majority has the
// lock.
func Info(all []lockstore.Info, nodes int) lockstore.Info {
	type who struct {
		owner string
		kind  lockstore.Kind
	}
	var tokens []int64
	need, kinds, holders := Majority(nodes), map[string]int{}, map[who]int{}
	out := lockstore.Info{Kind: "none", TTL: -2}
	for _, in := range all {
		kinds[in.Kind]++
		tokens = append(tokens, in.Token)
		out.Queue = max(out.Queue, in.Queue)
		for _, h := range in.Owners {
			holders[who{h.Owner, h.Kind}]++
		}
	}
	out.Token, out.Fenced = LastToken(tokens, nodes)
	for kind, n := range kinds {
		if n >= need {
			out.Kind = kind
		}
	}
	for w, n := range holders {
		if n >= need {
			out.Owners = append(out.Owners, lockstore.Owned{Owner: w.owner, Kind: w.kind, Holds: 1})
		}
	}
	if out.Kind != "none" {
		var left []int64
		for _, in := range all {
			if in.Kind == out.Kind {
				left = append(left, in.TTL)
			}
		}
		out.TTL = Lasts(left, need)
	}
	return out
}
