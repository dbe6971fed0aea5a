package history

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// The interval oracle: from the reply to its grant on a holder is certain of its lock until it may have given it back, and
// as long as its lease surely lasts, counted from before the grant was sent, or until it was told last that it still held.
// What two are certain of at once, or of a lock with LIMIT more than so many, is a violation, whatever else happened.

// slack is what Redis' clock in ms may lose of a lease.
const slack = 2 * ms

// span is a time in which a holder is certain.
type span struct {
	owner    string
	side     Side
	from, to int64
	sure     int64 // when the owner asked last of those times at which it was told that it held
	grant    *Op
}

// Intervals finds holders of one key who are certain at once when they must not be. Where the LIMIT changes the greater one counts.
func Intervals(key string, ops []*Op, watchdog int64, lapses ...Lapse) (wrong []Violation) {
	_, places := Places(ops)
	spans := apart(certain(key, ops, watchdog), lapses)
	sort.Slice(spans, func(i, j int) bool { return spans[i].from < spans[j].from })
	var open []span
	for _, s := range spans {
		still, others := open[:0], map[string]span{}
		for _, o := range open {
			if o.to <= s.from {
				continue
			}
			still = append(still, o)
			if o.owner != s.owner && !(o.side == Read && s.side == Read) {
				others[o.owner] = o
			}
		}
		open = append(still, s)
		if len(others) < places {
			continue
		}
		v := Violation{Oracle: "intervals", Key: key, Ops: []*Op{s.grant}, Text: fmt.Sprintf("certain to hold it are %v", s)}
		for _, owner := range slices.Sorted(maps.Keys(others)) {
			v.Ops, v.Text = append(v.Ops, others[owner].grant), v.Text+fmt.Sprintf(", %v", others[owner])
		}
		wrong = append(wrong, v)
	}
	return wrong
}

func (s span) String() string {
	return fmt.Sprintf("%s (%v) from %s to %s", s.owner, s.side, At(s.from), At(s.to))
}

func At(ns int64) string { return fmt.Sprintf("%.3f ms", float64(ns)/1e6) }

// holder names one owner's hold on one side.
type holder struct {
	owner string
	side  Side
}

// certain lists the times in which owners are certain to hold key. ops are those of the key in the order of calls.
func certain(key string, ops []*Op, watchdog int64) (spans []span) {
	held := map[holder]*belief{}
	var forced []*Op
	for _, o := range ops {
		switch {
		case o.Verb == "CLOSE":
			for h, b := range held {
				if h.owner == o.Owner {
					b.close(o.Call)
				}
			}
		case o.Force:
			if o.Outcome == Unknown || o.Outcome == OK && (o.N == 1 || o.Settled()) {
				forced = append(forced, o)
			}
		default:
			h := holder{o.Owner, o.Side}
			if held[h] == nil {
				held[h] = &belief{holder: h, reused: strings.HasPrefix(o.Owner, "again")}
			}
			held[h].add(o, watchdog)
		}
	}
	for _, b := range held {
		b.close(never)
		spans = append(spans, b.done...)
	}
	for i := range spans {
		s := &spans[i]
		for _, f := range forced {
			if f.Outcome == Unknown || f.Return > s.grant.Call {
				s.to = min(s.to, f.Call)
			}
		}
	}
	return slices.DeleteFunc(spans, func(s span) bool { return s.to <= s.from })
}

// belief is what one owner can be sure of.
type belief struct {
	holder
	reused bool  // the owner's name has been used for other sections: an answer may be about one of those
	doubt  int64 // until then a LOCK that came before may be done, and replies may be about the hold that it makes
	count  int   // at least
	spans  []span
	sure   []int64 // for each span: told at this time, last
	lease  []int64 // for each span: its lease lasts at least until then
	done   []span
}

func (b *belief) add(o *Op, watchdog int64) {
	lease := o.Lease * ms
	if lease == 0 {
		lease = watchdog
	}
	switch {
	case o.Acquires():
		if o.Outcome != OK {
			if o.Outcome == Unknown {
				b.closeSure()
				if o.Named {
					b.doubt = o.Return + doubtLasts + 2*watchdog
				}
			}
			return
		}
		if !(o.Named && b.count > 0) {
			b.count++
		}
		b.closeSure()
		b.spans = append(b.spans, span{owner: b.owner, side: b.side, from: o.Return, grant: o})
		b.sure, b.lease = append(b.sure, 0), append(b.lease, o.Call+lease-slack)
		if o.Call < b.doubt {
			b.closeSure()
		}
		b.doubt = max(b.doubt, o.Return) // a call beside this one may be done before it
	case o.Verb == "RENEW":
		if o.Outcome == Failed {
			if o.Code != "ERR" {
				b.close(o.Call)
			}
			return
		}
		if o.Outcome == OK {
			b.confirm(o)
		}
		for i := range b.lease {
			if o.Lease > 0 {
				b.lease[i] = min(b.lease[i], o.Call+lease-slack)
			}
			if o.Outcome == OK && b.sure[i] >= 0 { // the answer is about the newest grant
				b.lease[i] = max(o.Call+lease-slack, b.lease[i])
			}
		}
	case o.Verb == "FENCED":
		if o.Outcome == OK || o.Outcome == Null {
			b.confirm(o)
		} else if o.Outcome == Failed && o.Code != "ERR" {
			b.close(o.Call)
		}
	case o.Verb == "UNLOCK", o.Verb == "MULTIUNLOCK":
		if o.Outcome == Failed && o.Code == "ERR" && o.Verb == "UNLOCK" {
			return // nothing was sent
		}
		if o.Outcome == OK && !b.reused && (o.Verb == "UNLOCK" || int(o.N) == len(o.Keys)) {
			b.confirm(o)
		}
		if b.count--; o.All || b.count <= 0 || o.Outcome != OK || o.N > 0 {
			b.close(o.Call)
		}
	}
}

// confirm notes that the owner was told that it held: at the call it did, since it has not taken the lock anew meanwhile.
func (b *belief) confirm(o *Op) {
	for i := range b.sure {
		if b.sure[i] >= 0 {
			b.sure[i] = o.Call
		}
	}
}

// closeSure says that later answers are about a newer grant, too.
func (b *belief) closeSure() {
	for i := range b.sure {
		b.done = append(b.done, b.upTo(i, b.sure[i]))
		b.sure[i] = -1
	}
}

// close ends what the owner is certain of.
func (b *belief) close(end int64) {
	for i := range b.spans {
		b.done = append(b.done, b.upTo(i, min(end, max(b.sure[i], b.lease[i]))))
	}
	b.spans, b.sure, b.lease, b.count = nil, nil, nil, 0
}

func (b *belief) upTo(i int, to int64) span {
	s := b.spans[i]
	s.to, s.sure = to, b.sure[i]
	return s
}

// Drifted is what clients may count on: with a quorum leases that are shorter by what clocks may drift, 1 % and 2 ms. And an UNLOCK after a RENEW
// or a LOCK without a majority does not tell whether its owner had the lock: they may have left some nodes with it, and a node that does
// not answer counts as one that has it.
func Drifted(ops []*Op, watchdog int64, quorum bool) ([]*Op, int64) {
	if !quorum {
		return ops, watchdog
	}
	out, unsure := make([]*Op, len(ops)), map[holder]int64{} // when such a call returned
	for i, o := range ops {
		less, h := *o, holder{o.Owner, o.Side}
		if o.Lease > 0 {
			less.Lease = max(1, o.Lease-o.Lease/100-1-2)
		}
		switch {
		case o.Verb == "RENEW" && o.Outcome == Unknown, o.Acquires() && o.Code == "NOQUORUM":
			unsure[h] = max(unsure[h], o.Return)
		case o.Acquires() && o.Outcome == OK && o.Call > unsure[h]:
			delete(unsure, h)
		case o.Verb == "UNLOCK" && o.Outcome == OK && unsure[h] > 0:
			less.Outcome = Unknown
		}
		out[i] = &less
	}
	return out, watchdog - watchdog/100 - 2*ms
}
