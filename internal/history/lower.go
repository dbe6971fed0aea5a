package history

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// lower turns the history of one key into what porcupine searches. What is not known is not searched for: after an outcome
// that is not known its owner is gone for the model, and what it may still hold in truth excuses the refusals of others
// (doubt). That loses little and keeps the search short.

// lowering is one key's history being lowered.
type lowering struct {
	ops      []*Op
	watchdog int64 // ns
	faults   bool  // proxies and Redis are hurt, too: doubts last
	numbers  map[string]int
	lives    map[holder]*life
	gone     map[string]bool // owners of which nothing more is believed
	doubts   [][2]int64
	last     map[string]*Op // of each owner
	out      []porcupine.Operation
}

// life is what is known of one owner's hold while its history is walked.
type life struct {
	gens    []*gen // those that may set the lease
	watched bool
	latest  int64 // when its leases are surely over
}

type gen struct {
	id       int
	Op       *Op
	earliest int64
}

// placeKept is for how long a FAIRLOCK whose BLOCK has run out may have its place still.
const placeKept = 3 * second

// clockDoubt is how much too early a proxy may tell a connection that its lease is over: after a failover the new master's
// clock is known only as well as its answer was quick.
const clockDoubt = second

const doubtLasts = 5 * second // longer than a proxy needs to give back what nobody heard of, on a busy machine

func lower(ops []*Op, watchdog int64, faults bool) []porcupine.Operation {
	l := &lowering{ops: ops, watchdog: watchdog, faults: faults, numbers: map[string]int{}, lives: map[holder]*life{}, gone: map[string]bool{}}
	l.last = map[string]*Op{}
	for _, o := range ops {
		l.doubtsOf(o)
		l.last[o.Owner] = o
	}
	for _, o := range ops {
		l.add(o)
	}
	for h, life := range l.lives {
		l.expiries(h, life, never)
	}
	return l.out
}

func (l *lowering) number(owner string) int {
	n, known := l.numbers[owner]
	if !known {
		n = len(l.numbers) + 1
		l.numbers[owner] = n
	}
	return n
}

func (l *lowering) leaseOf(o *Op) int64 {
	if o.Lease > 0 {
		return o.Lease * ms
	}
	return l.watchdog
}

// doubtsOf notes when something may be held that the model does not know of.
func (l *lowering) doubtsOf(o *Op) {
	until := int64(0)
	switch {
	case l.mayBeDone(o): // its owner may have the lock for as long as it says so
		until = never
	case o.Outcome == Unknown, o.Verb == "CLOSE":
		until = o.Return + doubtLasts
		if o.Named {
			until += l.leaseOf(o)
		}
		if l.faults {
			until = never
		}
	case o.Verb == "MULTIUNLOCK" && int(o.N) != len(o.Keys):
		until = o.Return + doubtLasts + l.leaseOf(o)
	case o.Verb == "MULTILOCK" && o.Outcome != OK: // it held some of its locks for a while
		until = o.Return + doubtLasts
	case (l.faults || o.Acquires()) && o.Code == "LOCKLOST": // told before Redis drops it, which may also have renewed it without being heard
		until = o.Return + l.leaseOf(o)
	case l.faults && !o.Named && o.Code == "NOTHELD": // Redis may have begun the lease later than the proxy
		until = l.leasesEnd(o)
	case l.faults && o.Acquires() && o.Outcome != Failed && (o.Settled() || o.tooLate()): // granted, and lost while it was settled, or again
		until = o.Return + l.leaseOf(o)
	case l.faults && o.Acquires() && o.Outcome == OK: // asked for again when the first reply was cut off
		until = o.Return
	case l.faults && o.Outcome == Null && o.Block > 0: // granted, and the reply had not come when its BLOCK ran out
		until = o.Return + second
	case o.Acquires() && o.Outcome == Null && o.Return-o.Call >= l.leaseOf(o): // granted too late, and given back
		until = o.Return + l.leaseOf(o)
	}
	if until > 0 {
		l.doubts = append(l.doubts, [2]int64{o.Call, until})
	}
}

// leasesEnd is when the leases are surely over in Redis that the owner of a call took before the call.
func (l *lowering) leasesEnd(o *Op) (end int64) {
	for _, g := range l.ops {
		if g.Owner == o.Owner && g.Call < o.Call && g.Outcome == OK && g.Lease > 0 {
			end = max(end, g.Return+g.Lease*ms+visitLate)
		}
	}
	return end
}

// mayBeDone says whether a RENEW that found no hold may have been done, and have been over by then.
func (l *lowering) mayBeDone(o *Op) bool {
	return o.Verb == "RENEW" && o.Outcome == Failed && o.Code != "ERR" && (l.faults && o.Settled() || o.tooLate())
}

// forced says whether somebody ended the owner's hold by FORCE during a call.
func (l *lowering) forced(o *Op) bool {
	return slices.ContainsFunc(l.ops, func(f *Op) bool { return f.Force && f.Call < o.Return && f.Return > o.Call })
}

// mayLinger says whether Redis may still have what a connection was told to have lost. Until then Redis decides whether its FENCED runs.
func (l *lowering) mayLinger(o *Op) bool {
	return l.faults && slices.ContainsFunc(l.ops, func(told *Op) bool {
		return told.Owner == o.Owner && told.Code == "LOCKLOST" && told.Return <= o.Call && o.Call < told.Return+l.watchdog
	})
}

// excused says whether a refusal may have a reason that is not in the model.
func (l *lowering) excused(o *Op) bool {
	if slices.ContainsFunc(l.doubts, func(d [2]int64) bool { return d[0] < o.Return && d[1] > o.Call }) {
		return true
	}
	return o.Outcome == Null && slices.ContainsFunc(l.ops, func(other *Op) bool {
		if other == o || !other.Acquires() || other.Block < 0 && o.Block < 0 {
			return false
		}
		// It stood in line behind another waiter, or did not pass a fair one, until the time was over.
		if o.Block >= 0 {
			place := int64(0) // a fair waiter that was cut off from Redis keeps its place for so long
			switch {
			case other.Verb != "FAIRLOCK":
			case l.faults:
				place = 11 * second
			case other.Outcome == Null: // it keeps its place for a while, in case it asks again
				place = placeKept
			}
			return other.Call < o.Return && other.Return+place > o.Call
		}
		if other.Proxy == o.Proxy && other.Side != Read && other.Call < o.Return && other.Return > o.Call {
			return true // it stood back for one that waits there
		}
		return other.Verb == "FAIRLOCK" && other.Call < o.Return && (l.faults || other.Return+placeKept > o.Call)
	})
}

func (l *lowering) emit(t *thing, from, to int64) {
	l.out = append(l.out, porcupine.Operation{ClientId: t.Client, Input: t, Call: from, Return: max(from, to)})
}

func (l *lowering) add(o *Op) {
	if l.gone[o.Owner] && !o.Force || o.Verb == "BARE" {
		return
	}
	t := &thing{Op: o, holder: l.number(o.Owner), gen: o.ID, excused: l.excused(o), settled: l.faults && o.Settled(), last: l.last[o.Owner] == o}
	switch {
	case o.Acquires() && o.Outcome == Null && o.Named && o.tooLate(),
		l.faults && o.Verb == "MULTILOCK" && o.Outcome != OK && o.Named: // Redis has the hold until the proxy has given it back
		l.vanish(o)
		return
	case t.excused && (o.Acquires() && o.Outcome == Null || o.Code == "LOCKKIND"):
		return // it may be, whatever the state, and changes nothing
	case o.Verb == "CLOSE":
		l.vanish(o)
		return
	case o.Force:
		if t.kind = doForce; o.Outcome == Unknown {
			l.emit(t, o.Call, never)
		} else if o.Outcome != Failed {
			l.emit(t, o.Call, o.Return)
			if t.settled { // it was sent again
				l.emit(t, o.Call, o.Return)
			}
		}
		return
	case o.Outcome == Failed && o.Code == "ERR" && o.Verb == "UNLOCK" && !o.Named:
		t.kind = doRefuse
	case o.Outcome == Failed && o.Code == "ERR" && o.Verb != "MULTIUNLOCK": // of which some may have been done
		return // nothing was done, and nothing said of the lock
	case o.Outcome == Unknown && o.Verb == "FENCED":
		return
	case o.Outcome == Unknown || o.Verb == "MULTILOCK" && o.Outcome != OK || o.Verb == "MULTIUNLOCK" && int(o.N) != len(o.Keys):
		l.vanish(o)
		return
	case o.Acquires():
		t.kind = doAcquire
	case l.mayBeDone(o):
		l.vanish(o)
		return
	case o.Verb == "RENEW":
		t.kind = doRenew
	case o.Verb == "FENCED" && o.Outcome != Failed && l.mayLinger(o):
		return
	case o.Verb == "FENCED":
		t.kind = doCheck
	case o.Verb == "MULTIUNLOCK": // each of them is free
		one := *o
		one.N, t.Op, t.kind = 1, &one, doRelease
	default:
		t.kind = doRelease
	}
	l.follow(t.Op, t)
	l.emit(t, o.Call, o.Return)
	if t.settled && t.kind == doRelease && o.Code == "LOCKLOST" {
		// It may have been done before the other side was lost, of which it tells.
		l.emit(&thing{Op: o, kind: doTell, holder: t.holder}, o.Call, o.Return)
	}
}

// vanish ends what is believed of an owner: from the call on it may hold or not, also by calls that were beside this one.
func (l *lowering) vanish(o *Op) {
	l.gone[o.Owner] = true
	held, back := false, o.Return
	for h, life := range l.lives {
		if h.owner == o.Owner {
			for _, g := range life.gens {
				back = max(back, g.Op.Return)
			}
			l.expiries(h, life, back)
			delete(l.lives, h)
			held = true
		}
	}
	if held {
		l.emit(&thing{Op: o, kind: doVanish, holder: l.number(o.Owner)}, o.Call, back)
	}
}

// follow keeps book of an owner's leases.
func (l *lowering) follow(o *Op, t *thing) {
	h := holder{o.Owner, o.Side}
	if l.faults && o.Code == "LOCKLOST" {
		l.endsEarlier(o.Owner)
	}
	if t.kind == doRelease {
		if o.Outcome == Failed || o.N == 1 {
			l.expiries(h, l.lives[h], o.Return)
			delete(l.lives, h)
		}
		return
	}
	if t.kind == doCheck || t.kind == doRefuse || o.Outcome != OK {
		return
	}
	if l.lives[h] == nil {
		l.lives[h] = &life{}
	}
	life := l.lives[h]
	t.earliest = o.Call + l.leaseOf(o) - slack
	if l.faults && o.Lease == 0 { // it is told lost a tenth before its lease is over when no renewal is confirmed
		t.earliest -= l.watchdog / 10
	}
	life.gens = append(life.gens, &gen{o.ID, o, t.earliest})
	life.watched = life.watched || o.Lease == 0
	if o.Named {
		life.latest += slack // a step that joins moves the end of the lease, if it is later, by up to 2 ms: see docs/adr/0036
	}
	latest := o.Return + l.leaseOf(o) + slack
	if l.faults && !o.Named {
		latest += visitLate
	}
	life.latest = max(life.latest, latest)
	if other := l.lives[holder{o.Owner, map[Side]Side{Read: Write, Write: Read}[o.Side]}]; other != nil && !o.Named { // they have one lease
		life.watched, life.latest = life.watched || other.watched, max(life.latest, other.latest)
		other.watched, other.latest = life.watched, life.latest
	}
}

// endsEarlier lets the leases end earlier, by clockDoubt, that a connection was told to have lost.
func (l *lowering) endsEarlier(owner string) {
	for h, life := range l.lives {
		for _, g := range life.gens {
			if h.owner == owner && !g.Op.Named && g.Op.Lease > 0 {
				g.earliest = g.Op.Call + l.leaseOf(g.Op) - slack - clockDoubt
			}
		}
	}
}

// expiries says when the leases of an owner may end, up to the time at which it has given the lock back.
func (l *lowering) expiries(h holder, life *life, back int64) {
	if life == nil {
		return
	}
	for i, g := range life.gens {
		until := back
		for _, next := range life.gens[i+1:] {
			if next.Op.Call < g.Op.Return && l.forced(g.Op) { // beside this one, which may have made a new hold after it
				continue
			}
			until = min(until, next.Op.Return)
			break
		}
		if g.earliest >= until {
			continue
		}
		latest := never
		if reads := l.lives[holder{h.owner, Read}]; !life.watched && (h.side != Write || reads == nil) {
			latest = life.latest
		}
		fake := &Op{Client: g.Op.Client, Owner: h.owner, Side: h.side, Verb: "EXPIRY", Keys: g.Op.Keys}
		l.emit(&thing{Op: fake, kind: doExpire, holder: l.number(h.owner), gen: g.id, last: l.last[h.owner] == g.Op}, g.earliest, min(latest, max(back, g.earliest)))
	}
}
