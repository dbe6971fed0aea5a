package lock

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// hold is what this proxy knows of what one connection has of one lock. It is a value: what becomes of it is decided by
// the events below, which have no clock, no mutex and no store. hold_test.go has a table of them.
type hold struct {
	is      holdState
	counts  lockstore.Counts // how often the connection is in the lock; zero: it has none
	end     moment           // of one that is not watched: when its connection wants it to end
	lease   time.Duration    // of a renewal when watched, else as its connection has chosen
	granted moment
	renewed moment // 0: not yet

	renewals int64

	sure  moment // Redis has it until then
	asked moment // when that was sent to which Redis has answered so
	mayBe moment // or until then, if a RENEW that is under way is done; 0: none is
	late  moment // until then a request without an answer may still keep it in Redis
	visit moment // when the watchdog comes to it

	suspect string // the reason of the loss, if Redis does not have it any more; "": nothing is suspected
	recheck moment // when it was last said that the watchdog is to come at once: what was sent before does not do

	// When Redis is to be told what the connection has of it, or that it has none any more; 0: it has been, or need not
	// be.
	clear moment
}

// holdState is what becomes of a hold if nothing happens to it.
type holdState int8

const (
	none    holdState = iota
	watched           // the watchdog renews it until its connection gives it back
	withEnd           // it ends when its connection has chosen
	givenUp           // its UNLOCK was refused or had no answer: it is not renewed, and its end is no loss
	runsOut           // an earlier command of its connection may still take effect: it is neither renewed nor given back
)

// terms are what all holds of an engine have in common.
type terms struct {
	clock
	watchdog time.Duration                           // the lease of a renewal
	maxHold  time.Duration                           // a watched hold ends after that; 0: never
	drift    func(lease time.Duration) time.Duration // how much earlier than by its lease a hold counts as over
}

// effects are what an event has for others.
type effects struct {
	lost  string // the reason of a loss, of which the connection is to be told; "": there is none
	ended bool   // the hold has ended
}

// event is something that has happened to a hold.
type event interface {
	on(h hold, now moment, t terms) (hold, effects)
}

const (
	// reserveMost bounds reserve.
	reserveMost = 2 * time.Second
	// clearPause is how long after a failure Redis is told again that a connection has none of a lock any more.
	clearPause = time.Second
	// expirySlack is how much later than by our pessimistic deadline a lease may end in Redis.
	expirySlack = time.Second
)

// reserve is how long before its deadline a lock is reported lost if no renewal is confirmed. In that time a busy
// machine has to wake the proxy, to report some ten thousand losses, and to bring them to the clients before Redis
// frees the locks.
func reserve(lease time.Duration) time.Duration { return min(lease/10, reserveMost) }

// live says whether the connection is in the lock.
func (h hold) live() bool { return h.counts.Total() > 0 }

// kept says whether the watchdog lets the hold last: its end is a loss then.
func (h hold) kept() bool { return h.is == watched || h.is == withEnd }

// wanted is the hold, or none if the connection has given it up: its LOCK begins anew then.
func (h hold) wanted() hold {
	if h.is == givenUp {
		return hold{}
	}
	return h
}

// has says whether the connection has that side, and has not given it up.
func (h hold) has(side Kind) bool { return h.wanted().counts.Of(side) > 0 }

// due is when the hold ends unless something happens before; 0: there is none.
func (h hold) due(t terms) (at moment) {
	switch {
	case !h.live():
		return 0
	case !h.kept():
		at = h.sure
	case h.is == withEnd && h.nearEnd(h.sure, t):
		at = min(h.end, h.sure) // its connection has chosen it
	case h.is == watched:
		at = h.sure.add(-reserve(t.watchdog))
	default:
		at = h.sure.add(-reserve(h.lease))
	}
	if h.mayBe != 0 {
		at = min(at, h.mayBe)
	}
	return at
}

// counted is until when the connection can count on the hold: a shorter lease may be in force already.
func (h hold) counted() moment {
	if h.mayBe == 0 {
		return h.sure
	}
	return min(h.mayBe, h.sure)
}

// nearEnd says that it makes no difference whether the hold ends at that time, or when its connection has chosen.
func (h hold) nearEnd(at moment, t terms) bool { return h.end.sub(at) <= t.drift(h.lease) }

// next is when the watchdog has something to do about the hold; 0: nothing.
func (h hold) next() moment {
	switch {
	case !h.kept():
		return h.clear
	case h.clear == 0:
		return h.visit
	}
	return min(h.clear, h.visit)
}

// toClear says whether it is time to tell Redis what the connection has.
func (h hold) toClear(now moment) bool { return h.clear != 0 && h.clear <= now }

// asserts is for how long a visit lets the hold last: what is left of it, if it is not watched, and in any case no
// shorter than Redis has promised.
func (h hold) asserts(now moment, t terms) time.Duration {
	lease := t.watchdog
	if h.is != watched {
		left := h.end.sub(now)
		lease = left + 2*t.drift(left)
	}
	return max(lease, h.sure.sub(now))
}

// outlived says whether a watched hold is to end by max-hold.
func (h hold) outlived(now moment, t terms) bool {
	return h.is == watched && t.maxHold > 0 && now.sub(h.granted) >= t.maxHold
}

// promised notes that Redis has answered to what was sent at that time that it keeps the hold for so long. A promise
// never shortens.
func (h hold) promised(sent moment, sure time.Duration) hold {
	if until := sent.add(sure); until > h.sure {
		h.sure, h.asked = until, sent
	}
	return h
}

// planned sets when the watchdog comes next, after one that was sent at that time; at once if it is to come since then.
func (h hold) planned(next, sent moment) hold {
	if h.visit = next; h.recheck >= sent {
		h.visit = h.recheck
	}
	return h
}

// beforeMaxHold has the watchdog come no later than max-hold is over.
func (h hold) beforeMaxHold(t terms) hold {
	if t.maxHold > 0 && h.is == watched {
		h.visit = min(h.visit, h.granted.add(t.maxHold))
	}
	return h
}

// ended is the hold when the connection has none any more. clear is when Redis is to be told so; 0: it need not be.
func (h hold) ended(clear moment) (hold, effects) {
	return hold{sure: h.sure, late: h.late, clear: clear}, effects{ended: true}
}

// lost ends a hold that was lost; of one that has ended before there is nothing more to lose. What Redis may have of it
// is given back once the connection cannot count on it any more.
func (h hold) lost(reason string, now moment, t terms) (hold, effects) {
	if !h.live() {
		return h, effects{}
	}
	clear := now
	switch reason {
	case reasonExpired:
		// The clock of a quorum's node may be that much behind.
		clear = max(now, h.end).add(t.drift(h.lease))
	case reasonUnrenewed, reasonMaxHold:
		clear = max(now, h.counted())
	}
	silent := !h.kept()
	if h.is == runsOut {
		clear = 0
	}
	h, fx := h.ended(clear)
	if !silent {
		fx.lost = reason
	}
	return h, fx
}

// whyGone is the reason why Redis does not have the hold.
func (h hold) whyGone(now moment) string {
	switch {
	case h.is == withEnd && now.add(time.Millisecond) >= h.end: // Redis counts in ms
		return reasonExpired
	case h.suspect != "":
		return h.suspect
	}
	return reasonGone
}

// acquired: Redis has given the connection the lock, or has let it in once more.
type acquired struct {
	counts lockstore.Counts
	lease  time.Duration // 0: the watchdog's, renewed
	ttl    time.Duration // for which it surely lasts
	sent   moment
}

func (e acquired) on(h hold, now moment, t terms) (hold, effects) {
	if first := !h.wanted().live(); first {
		h = hold{granted: now, late: h.late}
		h.visit = e.sent.add(t.watchdog / 3)
	}
	h.counts, h.clear = e.counts, 0
	end := e.sent.add(e.lease - t.drift(e.lease))
	switch {
	case h.is == runsOut:
	case e.lease == 0:
		h.is, h.lease = watched, t.watchdog
	case h.is != watched && end > h.end:
		h.is, h.end, h.lease = withEnd, end, e.lease
	}
	return h.promised(e.sent, e.ttl).beforeMaxHold(t), effects{}
}

// unanswered: the reply to a LOCK was lost, and its verb does not wait for another one. After final it can no longer be
// done.
type unanswered struct {
	final moment
	lease time.Duration
}

func (e unanswered) on(h hold, now moment, _ terms) (hold, effects) {
	h.late = max(h.late, max(now, e.final).add(e.lease))
	if h.is != runsOut {
		h.clear = max(h.clear, e.final) // the connection has been told of no grant
	}
	return h, effects{}
}

// gone: Redis does not have the hold, as it has said to a verb.
type gone struct{}

func (gone) on(h hold, now moment, t terms) (hold, effects) { return h.lost(h.whyGone(now), now, t) }

// extending: a RENEW with a lease is about to be sent.
type extending struct {
	lease time.Duration
	sent  moment
}

func (e extending) on(h hold, _ moment, t terms) (hold, effects) {
	h.mayBe = e.sent.add(e.lease - t.drift(e.lease))
	return h, effects{}
}

// notExtended: the RENEW was not done; or, if it had no answer, it may have been.
type notExtended struct{ unknown bool }

func (e notExtended) on(h hold, now moment, _ terms) (hold, effects) {
	if e.unknown {
		h.sure = min(h.sure, h.mayBe)
		h.visit = now // which lets it last again
	}
	h.mayBe = 0
	return h, effects{}
}

// extended: RENEW has set the lease.
type extended struct {
	lease, ttl time.Duration
	sent       moment
}

func (e extended) on(h hold, now moment, t terms) (hold, effects) {
	if h.mayBe, h.lease = 0, e.lease; h.kept() {
		h.is = withEnd
	}
	h.end = e.sent.add(e.lease - t.drift(e.lease))
	h.sure, h.asked = e.sent.add(e.ttl), e.sent
	if now >= h.end {
		return h.lost(reasonExpired, now, t)
	}
	return h, effects{}
}

// handedOver: RENEW without a lease has handed the hold to the watchdog.
type handedOver struct{}

func (handedOver) on(h hold, _ moment, t terms) (hold, effects) {
	if h.kept() {
		h.is, h.lease = watched, t.watchdog
	}
	return h.beforeMaxHold(t), effects{}
}

// visited: the watchdog has come to the hold, with that lease.
type visited struct {
	there bool
	lease time.Duration
	sent  moment
}

func (e visited) on(h hold, now moment, t terms) (hold, effects) {
	if !e.there {
		return h.lost(h.whyGone(now), now, t)
	}
	if h.recheck < e.sent {
		h.suspect = ""
	}
	if h.is == watched {
		h.renewals++
		h.renewed = e.sent
	}
	h = h.promised(e.sent, e.lease-t.drift(e.lease))
	return h.planned(e.sent.add(t.watchdog/3), e.sent).beforeMaxHold(t), effects{}
}

// notVisited: the watchdog could not come to the hold. If the request had no answer, it may still be done until late.
type notVisited struct{ sent, late moment }

// on plans the next try sooner the nearer the deadline is.
func (e notVisited) on(h hold, now moment, t terms) (hold, effects) {
	h.late = max(h.late, e.late)
	pause := min(h.due(t).sub(now)/4, time.Second)
	if h.is == watched {
		pause = max(min(pause, h.lease/12), h.lease/100)
	}
	return h.planned(now.add(max(pause, 10*time.Millisecond)), e.sent), effects{}
}

// outlived: the hold has lasted for max-hold.
type outlived struct{}

func (outlived) on(h hold, now moment, t terms) (hold, effects) {
	return h.lost(reasonMaxHold, now, t)
}

// unlocked: Redis has set the counts that an UNLOCK has asked for.
type unlocked struct{ counts lockstore.Counts }

func (e unlocked) on(h hold, _ moment, _ terms) (hold, effects) {
	if h.live() { // what was lost while the UNLOCK was under way stays so
		if h.counts, h.clear = e.counts, 0; !h.live() {
			return h.ended(0)
		}
	}
	return h, effects{}
}

// notUnlocked: Redis has refused the UNLOCK, or its reply was lost and it can no longer be done after final. Without a
// reply it counts as done.
type notUnlocked struct {
	counts  lockstore.Counts // that it has asked for
	unknown bool
	final   moment
}

func (e notUnlocked) on(h hold, _ moment, _ terms) (hold, effects) {
	switch {
	case e.counts.Total() > 0:
		if e.unknown && h.live() {
			h.counts, h.clear = e.counts, e.final
		}
	case h.is != runsOut:
		h.is, h.end = givenUp, h.sure
		if e.unknown {
			h.clear = e.final
		}
	}
	return h, effects{}
}

// cleared: Redis was told what the connection has of the lock, or could not be told.
type cleared struct {
	done bool
	rw   bool // a read/write lock, which others may keep in Redis
}

func (e cleared) on(h hold, now moment, _ terms) (hold, effects) {
	over := !e.rw && now > max(h.sure, h.late).add(expirySlack)
	switch {
	case !e.done && !over:
		h.clear = now.add(clearPause)
	case h.is == givenUp:
		return h.ended(0)
	default:
		h.clear = 0
	}
	return h, effects{}
}

// left: the connection has ended without giving the lock back, and may be at work: it runs out.
type left struct{}

func (left) on(h hold, _ moment, _ terms) (hold, effects) { return h.ended(0) }

// unsettled: an earlier command of the connection may still take effect.
type unsettled struct{}

func (unsettled) on(h hold, _ moment, _ terms) (hold, effects) {
	if h.live() {
		h.is, h.clear = runsOut, 0
	}
	return h, effects{}
}

// suspected: Redis may not have the hold any more.
type suspected struct{ reason string }

func (e suspected) on(h hold, now moment, _ terms) (hold, effects) {
	if h.suspect != reasonForced { // that one is known, others are guesses
		h.suspect = e.reason
	}
	h.recheck, h.visit = now, now
	return h, effects{}
}

// shortened: the Redis that has the lock now has a clock that is ahead of the former one's by that much. What was sent
// after then was answered by this one.
type shortened struct {
	by   time.Duration
	then moment
}

func (e shortened) on(h hold, now moment, _ terms) (hold, effects) {
	if h.asked <= e.then {
		h.sure = h.sure.add(-e.by)
		h.recheck, h.visit = now, now
	}
	return h, effects{}
}

// overdue: the time of due has come.
type overdue struct{}

func (overdue) on(h hold, now moment, t terms) (hold, effects) {
	at := h.due(t)
	switch {
	case at == 0 || at > now: // it was put off
		return h, effects{}
	case h.is == watched || !h.nearEnd(now, t) && h.mayBe == 0:
		return h.lost(reasonUnrenewed, now, t)
	}
	return h.lost(reasonExpired, now, t)
}
