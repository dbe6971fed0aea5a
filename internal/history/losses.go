package history

import (
	"slices"
	"strings"
)

// The losses oracle: a connection loses its lock for a reason, and what it has lost it does not give back.

// Losses finds connections that were told that they have lost a lock which neither its lease nor FORCE has ended, in runs in which nothing but
// users dies: the watchdog has renewed it.
func Losses(key string, ops []*Op) (wrong []Violation) {
	for _, o := range ops {
		forced := func(f *Op) bool { return f.Force && f.Call < o.Return }
		if o.Code == "LOCKLOST" && !slices.ContainsFunc(ops, forced) && !strings.Contains(o.Text, "(expired)") {
			wrong = append(wrong, Violation{Oracle: "losses", Key: key, Ops: []*Op{o}, Text: "it was lost, and nobody has taken it away"})
		}
	}
	return wrong
}

// Forced finds connections that were not told of a FORCE: their UNLOCK gives back, or their RENEW renews, what it had ended. On a
// quorum an UNLOCK does not tell, since a node that does not answer counts as one that had the lock. A failover may undo a FORCE.
func Forced(key string, ops []*Op, quorum bool, lapses ...Lapse) (wrong []Violation) {
	for _, f := range ops {
		if !f.Force || f.Outcome != OK || f.N != 1 {
			continue
		}
		for _, v := range untold(key, ops, f, quorum) {
			if !within(lapses, f.Call, v.Ops[1].Return) && !within(lapses, f.Call, f.Return+behind) {
				wrong = append(wrong, v)
			}
		}
	}
	return wrong
}

// untold finds those of one FORCE.
func untold(key string, ops []*Op, f *Op, quorum bool) (wrong []Violation) {
	had := map[string]bool{} // owners that had the lock before, and have not heard of it since
	for _, o := range ops {
		switch {
		case o.Named || o.Force:
		case o.Acquires() && o.Outcome != Failed && o.Outcome != Null:
			had[o.Owner] = o.Outcome == OK && o.Return < f.Call
		case o.Outcome == OK && had[o.Owner] && o.Call > f.Return && !o.Settled() && (o.Verb == "RENEW" || !quorum && o.Verb == "UNLOCK" && o.N == 1):
			wrong = append(wrong, Violation{Oracle: "forced", Key: key, Ops: []*Op{f, o}, Text: "it was freed by force, and its holder was not told"})
			delete(had, o.Owner)
		case o.Verb == "UNLOCK" && !(o.Outcome == OK && o.N == 0), o.Outcome == Failed, o.Outcome == Unknown, o.Verb == "CLOSE":
			delete(had, o.Owner)
		}
	}
	return wrong
}
