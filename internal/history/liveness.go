package history

import (
	"fmt"
	"slices"
)

// The liveness oracle, for runs in which nothing but clients dies: nobody waits for a key that nobody holds.

// patience is how long a waiter may wait beside a free lock before that is wrong: wide, for busy machines, and far less than
// the timers by which waiters look for themselves in those runs.
const patience = 6 * second

// promptly is how long a reply may be on its way, in those runs.
const promptly = 3 * second

// Starved finds waiters of one key who waited for longer than patience while surely nobody held it, or of a lock with LIMIT fewer than so many: of a
// LIMIT that changes the smaller one, since a waiter may stand behind one that says that.
func Starved(key string, ops []*Op, watchdog int64) (wrong []Violation) {
	held := holdings(ops, watchdog)
	places, _ := Places(ops)
	for _, o := range ops {
		if !o.Acquires() || o.Verb == "MULTILOCK" || o.Block < 0 || o.Return-o.Call <= patience { // that may wait for another lock
			continue
		}
		until := o.Return
		if o.Outcome == OK {
			until -= promptly
		}
		if free, gap := vacant(held, places, o.Call, until); gap > patience {
			wrong = append(wrong, Violation{Oracle: "liveness", Key: key, Ops: []*Op{o}, Text: fmt.Sprintf(
				"it waited from %s to %s although fewer than %d held the lock from %s on for %s", At(o.Call), At(o.Return), places, At(free), At(gap))})
		}
	}
	return wrong
}

// vacant is when fewer than so many owners hold the key for the longest time between two moments, and for how long.
func vacant(held []holding, places int, from, to int64) (since, lasts int64) {
	moments := []int64{from, to}
	for _, h := range held {
		moments = append(moments, h.from, h.to)
	}
	slices.Sort(moments)
	free := from
	for i, at := range moments {
		if at < from || at >= to {
			continue
		}
		owners := map[string]bool{}
		for _, h := range held {
			if h.from <= at && h.to > at {
				owners[h.owner] = true
			}
		}
		next := min(moments[min(i+1, len(moments)-1)], to)
		if len(owners) >= places {
			free = next
		} else if next-free > lasts {
			since, lasts = free, next-free
		}
	}
	return since, lasts
}

// mayHaveHeld is until when a request that got nothing may have held the lock; 0: it has not.
func mayHaveHeld(o *Op, watchdog int64) int64 {
	switch {
	case o.Outcome == Unknown && o.Named:
		return o.Return + doubtLasts + max(o.Lease*ms, watchdog)
	case o.Outcome == Unknown, o.Outcome == Null && o.Verb != "MULTILOCK" && o.tooLate():
		return o.Return + doubtLasts
	case o.Verb == "MULTILOCK": // while it waited for another one, and gives back before it answers
		return o.Return
	}
	return 0
}

// holding is a time in which an owner may hold a key.
type holding struct {
	owner    string
	from, to int64
}

// holdings are the times in which somebody may hold the key.
func holdings(ops []*Op, watchdog int64) (out []holding) {
	begun := map[holder][][2]int64{}
	ends := func(h holder, end int64) {
		for _, b := range begun[h] {
			out = append(out, holding{h.owner, b[0], min(b[1], end)})
		}
		delete(begun, h)
	}
	for _, o := range ops {
		h, lease := holder{o.Owner, o.Side}, o.Lease*ms
		switch {
		case o.Acquires() && o.Outcome == OK, o.Verb == "RENEW" && o.Outcome == OK:
			from := max(o.Call, o.Return-promptly) // who is granted is told soon
			if o.Verb == "MULTILOCK" {             // it may have had this lock while it waited for another one
				from = o.Call
			}
			until := o.Return + lease
			if lease == 0 {
				until = never // it is renewed
			}
			begun[h] = append(begun[h], [2]int64{from, until})
		case o.Acquires():
			if until := mayHaveHeld(o, watchdog); until > 0 {
				out = append(out, holding{o.Owner, o.Call, until})
			}
		case o.Verb == "CLOSE":
			for _, side := range []Side{Plain, Read, Write} {
				ends(holder{o.Owner, side}, o.Return+doubtLasts)
			}
		case o.Verb == "UNLOCK" && !o.Force && (o.Outcome == OK && o.N == 1 || o.Outcome == Failed && o.Code != "ERR"),
			o.Verb == "MULTIUNLOCK" && o.Outcome == OK && int(o.N) == len(o.Keys):
			ends(h, o.Return)
		}
	}
	for h := range begun {
		ends(h, never)
	}
	return out
}
