package history

import (
	"fmt"
	"slices"
	"strings"
)

// The ends oracle: whoever Redis is seen to have a lock for may still hold it. A lease of EX or PX ends when its time is over unless its
// owner has said otherwise, and nobody renews it; what was given back is gone.

// visitLate is by how much a connection's lease of EX or PX may end later over a slow wire: the watchdog comes to such a hold, too, after the wire
// was cut, and asks for what is left of it. Redis does nothing of that after so long.
const visitLate = second

// Asker asks a node for a list of strings, which is empty if the node does not answer.
type Asker func(words ...any) []string

// sighting is that Redis had a lock of an owner some time from one moment to another.
type sighting struct {
	from, to int64
	owner    string // "": a connection, which Redis calls by another name than the history does
}

// PlacesTaken is the command that returns the owners of those places of a lock with LIMIT that have not ended by Redis' clock. zset is the key
// that has them.
func PlacesTaken(zset string) []any {
	return []any{"EVAL", `local t = redis.call('TIME')
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)), '+inf')`, 1, zset}
}

// Look notes which locks Redis has, for whom: those that so many of the nodes have.
func (r *Recorder) Look(nodes []Asker, enough int) {
	type hold struct{ key, field string }
	had, from := map[hold]int{}, r.Now()
	for _, ask := range nodes {
		seen, reads, names := map[hold]bool{}, map[hold]bool{}, ask("KEYS", "*")
		for _, name := range names {
			key, rest, _ := strings.Cut(strings.TrimPrefix(name, "{"), "}:")
			if owner, _, is := strings.Cut(rest, ":rwlock_timeout:"); is {
				reads[hold{key, owner}] = true
			}
		}
		for _, name := range names {
			if key, is := strings.CutSuffix(name, "}:timeout"); is {
				for _, owner := range ask(PlacesTaken(name)...) {
					seen[hold{strings.TrimPrefix(key, "{"), owner}] = true
				}
			}
			if strings.Contains(name, ":") {
				continue
			}
			fields := ask("HKEYS", name)
			rw := slices.Contains(fields, "mode")
			for _, field := range fields {
				owner, writes := strings.CutSuffix(field, ":write")
				// A reader has a field and a key with its time-out. Either may be left when it no longer reads.
				if h := (hold{name, owner}); !rw || writes || reads[h] {
					seen[h] = true
				}
			}
		}
		for h := range seen {
			had[h]++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	to := int64(1) + r.Now()
	for h, n := range had {
		if n < enough {
			continue
		}
		s := sighting{from, to, h.field}
		if strings.Contains(s.owner, ":") {
			s.owner = ""
		}
		if r.seen == nil {
			r.seen = map[string][]sighting{}
		}
		r.seen[h.key] = append(r.seen[h.key], s)
	}
}

// stay is a time in which Redis may have a lock of an owner.
type stay struct {
	side     Side
	from, to int64
	least    int64 // a give-back does not end it before
	op       *Op
}

// Ends finds owners who Redis had a lock for when they could not hold it any more. On a quorum nodes that a give-back, or a shorter lease,
// has not reached keep what they had for a lease more. After a failover Redis may have for a lease more what was given back before it.
func (r *Recorder) Ends(key string, ops []*Op, watchdog int64, faults, quorum bool) (wrong []Violation) {
	lapses := r.Lapses(key)
	more := int64(0)
	if quorum {
		more = watchdog
	}
	stays, told := staysOf(ops, watchdog, more, faults), map[string]bool{}
	for _, s := range r.seen[key] {
		if within(lapses, s.from-2*watchdog, s.to) {
			continue
		}
		if told[s.owner] || slices.ContainsFunc(stays[s.owner], func(t stay) bool { return t.from <= s.to && t.to >= s.from }) {
			continue
		}
		told[s.owner] = true
		v := Violation{Oracle: "ends", Key: key, Text: fmt.Sprintf("Redis had it for %q at %s, when that was over", s.owner, At(s.from))}
		for _, t := range stays[s.owner] {
			if t.from < s.from {
				v.Ops = append(v.Ops[max(0, len(v.Ops)-3):], t.op)
			}
		}
		wrong = append(wrong, v)
	}
	return wrong
}

// staysOf lists by owners when Redis may have a key for them; "" is all connections. ops are those of the key in the order of calls.
func staysOf(ops []*Op, watchdog, more int64, faults bool) map[string][]stay {
	known := map[string][]stay{}
	cut := func(o *Op, sides []Side, at int64) {
		some := known[o.Owner]
		for i := range some {
			if s := &some[i]; slices.Contains(sides, s.side) {
				s.to = min(s.to, max(at+more, s.least))
			}
		}
	}
	// Both sides that a connection has of a lock have one lease: the longer one, also when one of them is given back.
	share := func(o *Op) {
		if o.Named {
			return
		}
		longest := int64(0)
		for _, s := range known[o.Owner] {
			if s.side == o.Side {
				longest = max(longest, s.to)
			}
		}
		for i := range known[o.Owner] {
			if s := &known[o.Owner][i]; s.side != o.Side && s.to > o.Call {
				s.to = max(s.to, longest)
			}
		}
	}
	all := []Side{Plain, Read, Write}
	for _, o := range ops {
		takes, lease := o.Acquires() || o.Verb == "RENEW", o.Lease*ms
		renewed := lease == 0
		if renewed || o.Verb == "MULTILOCK" && o.Outcome != OK { // while that goes on, its locks have the watchdog's lease
			lease = max(lease, watchdog)
		}
		s := stay{side: o.Side, from: o.Call, to: o.Return + lease + lease/100 + 2*slack, op: o}
		if faults && !o.Named && !renewed {
			s.to += visitLate
		}
		if o.Named { // each step that joins moves the end of the lease, if it is later, by up to 2 ms: see docs/adr/0036
			s.to += slack * int64(len(known[o.Owner]))
		}
		switch {
		case takes && o.Outcome == OK:
			if o.Verb == "RENEW" && !renewed && !(o.Named && o.Settled()) { // sent again it only lengthens
				cut(o, []Side{o.Side}, s.to)
			}
			if renewed {
				s.to = never
			} else if o.Verb == "MULTILOCK" { // what the owner had may have the watchdog's lease by it, when nodes do not tell what that was
				s.to += more
				if o.Settled() { // or when it did not hear that it had set that
					s.to += watchdog
				}
			}
		case takes && (o.Outcome == Unknown || o.Verb == "RENEW" && o.Code != "ERR" && o.Settled()):
			if s.to += doubtLasts; faults {
				s.to += 2 * watchdog // a proxy is stopped for so long at most, and does then what was sent to it meanwhile
			}
			s.least = s.to
			if renewed {
				s.to = never
			}
		case o.Verb == "MULTILOCK" && !faults && !o.tooLate(): // it gives back what it had before it answers
			s.to = o.Return
		case takes && (faults || o.Settled() || o.tooLate()): // it may have been granted, and given back
			s.to += doubtLasts
		case takes:
			s.to = o.Return + doubtLasts
		case o.Verb == "CLOSE":
			end := o.Return + doubtLasts
			if faults {
				end += watchdog
			}
			cut(o, all, end)
		case o.Verb == "UNLOCK" && !o.Force && (o.Outcome == OK && o.N == 1 || o.Outcome == Failed && o.Code != "ERR"):
			end := o.Return
			if o.Code == "LOCKLOST" || faults && !o.Named && o.Code == "NOTHELD" { // its holder is told before Redis drops it
				end += watchdog
			}
			share(o)
			cut(o, []Side{o.Side}, end)
		case o.Verb == "UNLOCK" && !o.Named && o.All && o.Code == "ERR": // it is renewed no more
			cut(o, []Side{o.Side}, o.Return+2*watchdog)
		case o.Verb == "MULTIUNLOCK" && o.Outcome == OK && int(o.N) == len(o.Keys):
			cut(o, []Side{Plain}, o.Return)
		}
		if takes {
			known[o.Owner] = append(known[o.Owner], s)
		}
	}
	stays := map[string][]stay{}
	for owner, some := range known {
		if strings.HasPrefix(owner, "#") {
			owner = ""
		}
		stays[owner] = append(stays[owner], some...)
	}
	return stays
}
