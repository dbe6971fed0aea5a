package history

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// The model of one key for porcupine: who holds what, and a connection how often; an owner with a name has it or not. Porcupine looks for an order of all that happened, in which
// each thing lies between its call and its reply and every reply is what the model says. An expiry is a thing that happens,
// too, from the earliest moment on at which the lease can be over.

// held is one owner's hold on one side of the key, or what is remembered of one.
type held struct {
	holder   int // owner's number
	side     Side
	count    int
	gen      int   // the call that set the lease last
	earliest int64 // when that lease can be over
	lost     bool  // a connection has lost it, and has not been told
	unwanted bool  // a connection's last UNLOCK did not reach Redis: it is renewed no more, and its end is no loss
	named    bool  // an owner with a name has it, who is not told of losses
}

// state is all holds, sorted.
type state []held

// thing is what happens to a key.
type thing struct {
	*Op
	kind     kind
	holder   int
	gen      int
	earliest int64 // acquire, renew: when the lease can be over
	last     bool  // the owner does nothing more: what became of its hold need not be remembered
	open     bool  // it is under way still: it happens as it is said, or not at all
	settled  bool  // the reply from Redis was lost, and it was looked at what had become of it
	excused  bool  // a refusal may be due to what is not in the model
}

type kind int

const (
	doAcquire kind = iota
	doRelease
	doRefuse // an UNLOCK did not reach Redis
	doRenew
	doCheck
	doForce
	doExpire // the lease that gen set is over
	doVanish // everything of the owner goes
	doTell   // a connection is told of what it has lost
)

// model is the porcupine model; the input of an operation is a thing, whose op has the reply.
var model = porcupine.Model{
	Init:              func() any { return state(nil) },
	Step:              step,
	Equal:             func(a, b any) bool { return slices.Equal(a.(state), b.(state)) },
	Hash:              func(s any) uint64 { return hashOf(s.(state)) },
	DescribeOperation: func(in, _ any) string { return in.(*thing).String() },
	DescribeState:     func(s any) string { return s.(state).String() },
}

func step(s, in, _ any) (bool, any) {
	t := in.(*thing)
	legal, next := s.(state).step(t)
	if !legal && t.open {
		return true, s
	}
	return legal, next
}

var hashSeed = maphash.MakeSeed()

func hashOf(s state) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	for _, e := range s {
		maphash.WriteComparable(&h, e)
	}
	return h.Sum64()
}

func (s state) find(holder int, side Side) held {
	for _, e := range s {
		if e.holder == holder && e.side == side {
			return e
		}
	}
	return held{holder: holder, side: side}
}

// with is the state with one entry changed.
func (s state) with(e held) state {
	out := make(state, 0, len(s)+1)
	for _, o := range s {
		if o.holder != e.holder || o.side != e.side {
			out = append(out, o)
		}
	}
	if e.count > 0 || e.lost || e.unwanted {
		at, _ := slices.BinarySearchFunc(out, e, func(a, b held) int { return (a.holder-b.holder)*4 + int(a.side) - int(b.side) })
		out = slices.Insert(out, at, e)
	}
	return out
}

// told is the state when a connection has been told of what it has lost, on either side: it is told once.
func (s state) told(holder int) state {
	for _, e := range slices.Clone(s) {
		if e.holder == holder && e.lost {
			e.lost = false
			s = s.with(e)
		}
	}
	return s
}

// lost says whether a connection has lost something of which it has not been told.
func (s state) lost(holder int) bool {
	return slices.ContainsFunc(s, func(e held) bool { return e.holder == holder && e.lost })
}

// any says whether somebody whom the condition fits holds something.
func (s state) any(fits func(e held) bool) bool {
	return slices.ContainsFunc(s, func(e held) bool { return e.count > 0 && fits(e) })
}

// alien says whether a lock of the other kind is held: plain and read/write locks exclude each other by an error.
func (s state) alien(side Side) bool {
	return s.any(func(e held) bool { return (e.side == Plain) != (side == Plain) })
}

// blocked says whether what others hold keeps the owner out.
func (s state) blocked(t *thing) bool {
	places := int(max(1, t.Limit))
	if t.Limit > 0 && s.find(t.holder, t.Side).count > 0 {
		return false // it has a place, whatever the LIMIT is by now
	}
	for _, e := range s {
		if e.count > 0 && e.holder != t.holder && (e.side == Plain) == (t.Side == Plain) && (t.Side != Read || e.side == Write) {
			places--
		}
	}
	return places <= 0
}

// upgrades says whether the owner reads, and wants to go on with that, and asks to write.
func (s state) upgrades(holder int, side Side) bool {
	reads := s.find(holder, Read)
	return side == Write && reads.count > 0 && !reads.unwanted && s.find(holder, Write).count == 0
}

// wanted is the state without what a connection does not want any more, on either side: a LOCK begins anew.
func (s state) wanted(holder int) state {
	return slices.DeleteFunc(slices.Clone(s), func(e held) bool { return e.holder == holder && e.unwanted })
}

// step says whether a thing can happen with its reply, and what comes of it.
func (s state) step(t *thing) (bool, state) {
	h := s.find(t.holder, t.Side)
	switch t.kind {
	case doAcquire:
		return s.acquire(t, h)
	case doForce:
		return s.force(t)
	case doExpire:
		if h.count > 0 && h.gen == t.gen {
			h.count, h.lost, h.unwanted = 0, !t.last && !h.named && !h.unwanted, !t.last && h.unwanted
			return true, s.with(h)
		}
		return true, s
	case doVanish:
		for _, side := range []Side{Plain, Read, Write} {
			s = s.with(held{holder: t.holder, side: side})
		}
		return true, s
	case doTell:
		return true, s.told(t.holder)
	}
	switch {
	case t.kind == doRefuse:
		return true, s.unwanted(t, h)
	case t.Outcome == Failed:
		return s.refused(t, h)
	}
	switch t.kind {
	case doRelease:
		return s.release(t, h)
	case doRenew:
		if h.count > 0 {
			h.gen, h.earliest = t.gen, t.earliest
			return true, s.with(h)
		}
		return false, s
	default: // doCheck
		return h.count > 0, s
	}
}

func (s state) acquire(t *thing, h held) (bool, state) {
	switch {
	case t.Outcome == Null:
		late := h.lost && h.earliest > t.Call // what it was to enter again has ended before the answer
		return t.excused || late || s.blocked(t) || h.unwanted && s.wanted(t.holder).blocked(t), s
	case t.Code == "LOCKKIND":
		return t.excused || s.alien(t.Side), s
	case t.Code == "DEADLOCK":
		return s.upgrades(t.holder, t.Side), s
	case t.Code == "LOCKLOST": // what it was to enter again is over, and what Redis may have given it is given back
		known := s.lost(t.holder) || h.count > 0 && h.earliest <= t.Return
		h.count = 0
		return known, s.with(h).told(t.holder)
	case s.alien(t.Side) || s.blocked(t) || s.upgrades(t.holder, t.Side):
		return false, s
	}
	s = s.wanted(t.holder)
	h = s.find(t.holder, t.Side)
	if !(t.Named && h.count > 0) {
		h.count++
	}
	h.earliest = max(h.earliest, t.earliest)
	h.gen, h.named = t.gen, t.Named
	return true, s.with(h).told(t.holder)
}

// unwanted is the state when an UNLOCK did not reach Redis that would have ended the hold.
func (s state) unwanted(t *thing, h held) state {
	other := map[Side]Side{Read: Write, Write: Read}[t.Side]
	if h.count == 0 && !h.lost || h.count > 1 && !t.All || t.Side != Plain && s.find(t.holder, other).count > 0 {
		return s
	}
	h.count, h.unwanted = min(h.count, 1), true // lost: its proxy may not know
	return s.with(h)
}

func (s state) release(t *thing, h held) (bool, state) {
	switch {
	case h.unwanted: // whether it has run out meanwhile makes no difference
		return t.N == 1, s.with(held{holder: t.holder, side: t.Side})
	case h.count == 0: // an UNLOCK whose reply was lost has given it back, or what was lost meanwhile counts as given back
		return t.settled && t.N == 1 && !t.Named && s.lost(t.holder), s.told(t.holder)
	case t.N == 1:
		if h.count > 1 && !t.All {
			return false, s
		}
		h.count = 0
		return true, s.with(h)
	default:
		h.count--
		return !t.All && h.count > 0, s.with(h)
	}
}

// refused is a NOTHELD, LOCKLOST or LOCKKIND.
func (s state) refused(t *thing, h held) (bool, state) {
	switch t.Code {
	case "LOCKKIND":
		return t.excused || s.alien(t.Side), s
	case "NOTHELD":
		if h.unwanted {
			return h.count == 0 || t.kind == doRenew, s.told(t.holder)
		}
		return h.count == 0 && !s.lost(t.holder), s
	}
	if h.count == 0 || t.Named {
		return s.lost(t.holder), s.told(t.holder)
	}
	if h.earliest > t.Return {
		return false, s
	}
	h.count = 0 // by the proxy's clock it was over, Redis had it for a moment longer
	return true, s.with(h).told(t.holder)
}

func (s state) force(t *thing) (bool, state) {
	if !s.any(func(held) bool { return true }) {
		return t.N == 0 || t.excused || t.Outcome == Unknown || t.settled, s
	}
	if t.N == 0 && t.Outcome == OK && !t.settled {
		return false, s
	}
	var out state
	for _, h := range s {
		if h.count > 0 {
			h.count, h.lost = 0, !h.named && !h.unwanted
		}
		out = append(out, h)
	}
	return true, out
}

// String is for porcupine's picture.
func (t *thing) String() string {
	switch t.kind {
	case doExpire:
		return fmt.Sprintf("(lease of call %d of %s may be over)", t.gen, t.Owner)
	case doVanish:
		return fmt.Sprintf("(%s gone)", t.Owner)
	case doTell:
		return fmt.Sprintf("(%s told)", t.Owner)
	}
	reply := string(t.Outcome)
	switch {
	case t.Code != "":
		reply = t.Code
	case t.Outcome == OK && (t.Verb == "UNLOCK" || t.Verb == "MULTIUNLOCK" || t.Fence):
		reply = fmt.Sprint(t.N)
	}
	return fmt.Sprintf("%v [%s] -> %s", t.Command(), t.Owner, reply)
}

func (s state) String() string {
	var out []string
	for _, h := range s {
		out = append(out, fmt.Sprintf("%d %v ×%d", h.holder, h.side, h.count))
	}
	return "{" + strings.Join(out, ", ") + "}"
}
