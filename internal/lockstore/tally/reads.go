package tally

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// What the nodes of a quorum have of a lock, each of those that answered: what a majority of all nodes has is what holds.

// Seen is what a majority has of one owner's hold.
func Seen(all []lockstore.Seen, nodes int) (out lockstore.Seen) {
	var left []int64
	need, dark := Majority(nodes), nodes-len(all)
	watched, registered, there := 0, map[lockstore.Registration]int{}, map[lockstore.Registration]int{}
	for _, s := range all {
		registered[s.Registration]++
		if s.Count > 0 {
			left = append(left, s.TTL)
			there[s.Registration]++
		}
		if s.Watched {
			watched++
		}
	}
	if len(left) >= need {
		out.Count, out.TTL = 1, Lasts(left, need)
	}
	out.Unsure = len(left) > 0 && len(left) < need && len(left)+dark >= need
	if out.Count > 0 || out.Unsure {
		slices.Sort(left)
		out.Most = left[min(len(left)-need+dark, len(left)-1)] // as if those that did not answer had it for longer
	}
	out.Watched = watched >= need || out.Unsure && watched > 0
	for registration, n := range registered {
		if n >= need || out.Unsure && there[registration] == len(left) {
			out.Registration = registration
		}
	}
	return out
}

// Info is what a majority has of a lock. Holders are those that a majority has; TTL is for how long a majority has the lock.
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

// Sides are the kinds of holds that an owner may have: that a majority has, if those that did not answer do.
func Sides(all [][]lockstore.Kind, nodes int) (held []lockstore.Kind) {
	has := map[lockstore.Kind]int{}
	for _, kinds := range all {
		for _, k := range kinds {
			has[k]++
		}
	}
	for _, k := range lockstore.Kinds {
		if has[k] > 0 && has[k]+nodes-len(all) >= Majority(nodes) {
			held = append(held, k)
		}
	}
	if len(held) > 1 && held[0] == lockstore.Plain { // an owner cannot have both: one of them is a leftover
		held = held[1:]
	}
	return held
}

// Forced is the result of freeing a lock by force: lockstore.OtherKind or NoLock if a majority says so, or else Freed if any node had the lock.
func Forced(codes []int64, nodes int) (code int64) {
	count := map[int64]int{}
	for _, code := range codes {
		count[code]++
	}
	for _, code := range []int64{lockstore.OtherKind, lockstore.NoLock} {
		if count[code] >= Majority(nodes) {
			return code
		}
	}
	if count[lockstore.Freed] > 0 {
		return lockstore.Freed
	}
	return lockstore.NothingHeld
}
