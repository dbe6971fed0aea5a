package lock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// The tests of hold.go have a clock of their own: a time is a duration since start, when the LOCK was sent.
const start = moment(time.Hour)

func at(d time.Duration) moment { return start.add(d) }

// testTerms are those of the tests: a watchdog of 30 s, no max-hold, and a drift of one percent.
var testTerms = terms{watchdog: 30 * time.Second, drift: func(lease time.Duration) time.Duration { return lease / 100 }}

var (
	once  = lockstore.Counts{Writes: 1}
	twice = lockstore.Counts{Writes: 2}
)

// after is a hold to which these events have happened, one after the other, each at its time.
func (h hold) after(events ...happening) (hold, []effects) {
	var all []effects
	for _, e := range events {
		var fx effects
		h, fx = h.on(e.event, at(e.at), testTerms)
		all = append(all, fx)
	}
	return h, all
}

type happening struct {
	at time.Duration
	event
}

// The events with which the holds of the tests begin: a LOCK without a lease, and one with EX 60.
var (
	lockWatched = happening{0, acquired{counts: once, ttl: 30 * time.Second, sent: start}}
	lockWithEnd = happening{0, acquired{counts: once, lease: time.Minute, ttl: time.Minute, sent: start}}
)

// holdKinds are the holds to which each event happens in TestHoldTable.
var holdKinds = []struct {
	name  string
	begin []happening
}{
	{"watched", []happening{lockWatched}},
	{"with an end", []happening{lockWithEnd}},
	{"given up", []happening{lockWatched, {time.Second, notUnlocked{}}}},
	{"running out", []happening{lockWatched, {time.Second, unsettled{}}}},
	{"none", nil},
}

// told describes a hold and what an event had for others:
//
//	2, renewed; over 27s, visit 10s     the connection is in it twice; it ends at 27 s unless something happens, and the watchdog comes at 10 s
//	1, until 59.4s; over 59.4s, ...     it has an end of its own
//	none, clear 30s; ended, LOST gone   the connection is told that it was lost; Redis is told at 30 s that the connection has none
func told(h hold, fx effects) string {
	var s []string
	since := func(m moment) string { return m.sub(start).String() }
	switch {
	case !h.live():
		s = append(s, "none")
	case h.is == givenUp:
		s = append(s, fmt.Sprint(h.counts.Total(), ", given up"))
	case h.is == runsOut:
		s = append(s, fmt.Sprint(h.counts.Total(), ", running out"))
	case h.is == watched:
		s = append(s, fmt.Sprint(h.counts.Total(), ", renewed"))
	default:
		s = append(s, fmt.Sprint(h.counts.Total(), ", until ", since(h.end)))
	}
	if h.suspect != "" {
		s[0] += ", perhaps " + h.suspect
	}
	if h.clear != 0 {
		s[0] += ", clear " + since(h.clear)
	}
	if h.live() {
		s = append(s, "over "+since(h.due(testTerms)))
		if h.kept() {
			s[1] += ", visit " + since(h.visit)
		}
	}
	if fx.ended {
		s = append(s, "ended")
		if fx.lost != "" {
			s[len(s)-1] += ", LOST " + fx.lost
		}
	}
	return strings.Join(s, "; ")
}

// TestHoldTable has every event happen to a hold of each kind: one that is watched, one with an end, one whose UNLOCK was refused, one whose
// connection has an earlier command that may still take effect, and none.
func TestHoldTable(t *testing.T) {
	for _, c := range []struct {
		what string
		at   time.Duration
		event
		want [5]string // for each of holdKinds
	}{
		{"LOCK again, without a lease", 5 * time.Second, acquired{counts: twice, ttl: 30 * time.Second, sent: at(5 * time.Second)}, [5]string{
			"2, renewed; over 33s, visit 10s",
			"2, renewed; over 58s, visit 10s",
			"2, renewed; over 33s, visit 15s",
			"2, running out; over 35s",
			"2, renewed; over 33s, visit 15s",
		}},
		{"LOCK again, with EX 10", 5 * time.Second, acquired{counts: twice, lease: 10 * time.Second, ttl: 30 * time.Second, sent: at(5 * time.Second)}, [5]string{
			"2, renewed; over 33s, visit 10s",
			"2, until 59.4s; over 59.4s, visit 10s",
			"2, until 14.9s; over 14.9s, visit 15s",
			"2, running out; over 35s",
			"2, until 14.9s; over 14.9s, visit 15s",
		}},
		{"LOCK again, with EX 120", 5 * time.Second, acquired{counts: twice, lease: 2 * time.Minute, ttl: 2 * time.Minute, sent: at(5 * time.Second)}, [5]string{
			"2, renewed; over 2m3s, visit 10s",
			"2, until 2m3.8s; over 2m3.8s, visit 10s",
			"2, until 2m3.8s; over 2m3.8s, visit 15s",
			"2, running out; over 2m5s",
			"2, until 2m3.8s; over 2m3.8s, visit 15s",
		}},
		{"LOCK again, without its reply", 5 * time.Second, unanswered{at(8 * time.Second), 30 * time.Second}, [5]string{
			"1, renewed, clear 8s; over 28s, visit 10s",
			"1, until 59.4s, clear 8s; over 59.4s, visit 10s",
			"1, given up, clear 8s; over 30s",
			"1, running out; over 30s",
			"none, clear 8s",
		}},
		{"a verb finds that Redis does not have it", 5 * time.Second, gone{}, [5]string{
			"none, clear 5s; ended, LOST gone",
			"none, clear 5s; ended, LOST gone",
			"none, clear 5s; ended",
			"none; ended",
			"none",
		}},
		{"RENEW EX 20 is sent", 5 * time.Second, extending{20 * time.Second, at(5 * time.Second)}, [5]string{
			"1, renewed; over 24.8s, visit 10s",
			"1, until 59.4s; over 24.8s, visit 10s",
			"1, given up; over 24.8s",
			"1, running out; over 24.8s",
			"none",
		}},
		{"RENEW EX 20 was refused", 5 * time.Second, notExtended{}, [5]string{
			"1, renewed; over 28s, visit 10s",
			"1, until 59.4s; over 59.4s, visit 10s",
			"1, given up; over 30s",
			"1, running out; over 30s",
			"none",
		}},
		{"RENEW EX 20 was done", 5 * time.Second, extended{20 * time.Second, 20 * time.Second, at(5 * time.Second)}, [5]string{
			"1, until 24.8s; over 24.8s, visit 10s",
			"1, until 24.8s; over 24.8s, visit 10s",
			"1, given up; over 25s",
			"1, running out; over 25s",
			"none",
		}},
		{"RENEW was done", 5 * time.Second, handedOver{}, [5]string{
			"1, renewed; over 28s, visit 10s",
			"1, renewed; over 58s, visit 10s",
			"1, given up; over 30s",
			"1, running out; over 30s",
			"none",
		}},
		{"the watchdog has found it", 11 * time.Second, visited{true, 30 * time.Second, at(10 * time.Second)}, [5]string{
			"1, renewed; over 37.7s, visit 20s",
			"1, until 59.4s; over 59.4s, visit 20s",
			"1, given up; over 39.7s",
			"1, running out; over 39.7s",
			"none",
		}},
		{"the watchdog has not found it", 11 * time.Second, visited{false, 30 * time.Second, at(10 * time.Second)}, [5]string{
			"none, clear 11s; ended, LOST gone",
			"none, clear 11s; ended, LOST gone",
			"none, clear 11s; ended",
			"none; ended",
			"none",
		}},
		{"the watchdog had no answer", 12 * time.Second, notVisited{at(10 * time.Second), at(50 * time.Second)}, [5]string{
			"1, renewed; over 28s, visit 13s",
			"1, until 59.4s; over 59.4s, visit 13s",
			"1, given up; over 30s",
			"1, running out; over 30s",
			"none",
		}},
		{"max-hold is over", 20 * time.Second, outlived{}, [5]string{
			"none, clear 30s; ended, LOST max-hold",
			"none, clear 1m0s; ended, LOST max-hold",
			"none, clear 30s; ended",
			"none; ended",
			"none",
		}},
		{"UNLOCK was done", 5 * time.Second, unlocked{}, [5]string{
			"none; ended",
			"none; ended",
			"none; ended",
			"none; ended",
			"none",
		}},
		{"UNLOCK of an inner section was done", 5 * time.Second, unlocked{once}, [5]string{
			"1, renewed; over 28s, visit 10s",
			"1, until 59.4s; over 59.4s, visit 10s",
			"1, given up; over 30s",
			"1, running out; over 30s",
			"none",
		}},
		{"UNLOCK was refused", 5 * time.Second, notUnlocked{}, [5]string{
			"1, given up; over 30s",
			"1, given up; over 1m0s",
			"1, given up; over 30s",
			"1, running out; over 30s",
			"none",
		}},
		{"UNLOCK had no answer", 5 * time.Second, notUnlocked{unknown: true, final: at(8 * time.Second)}, [5]string{
			"1, given up, clear 8s; over 30s",
			"1, given up, clear 8s; over 1m0s",
			"1, given up, clear 8s; over 30s",
			"1, running out; over 30s",
			"none, clear 8s",
		}},
		{"UNLOCK of an inner section was refused", 5 * time.Second, notUnlocked{counts: once}, [5]string{
			"1, renewed; over 28s, visit 10s",
			"1, until 59.4s; over 59.4s, visit 10s",
			"1, given up; over 30s",
			"1, running out; over 30s",
			"none",
		}},
		{"UNLOCK of an inner section had no answer", 5 * time.Second, notUnlocked{once, true, at(8 * time.Second)}, [5]string{
			"1, renewed, clear 8s; over 28s, visit 10s",
			"1, until 59.4s, clear 8s; over 59.4s, visit 10s",
			"1, given up, clear 8s; over 30s",
			"1, running out, clear 8s; over 30s",
			"none",
		}},
		{"Redis was told that there is none", 35 * time.Second, cleared{done: true}, [5]string{
			"1, renewed; over 28s, visit 10s",
			"1, until 59.4s; over 59.4s, visit 10s",
			"none; ended",
			"1, running out; over 30s",
			"none",
		}},
		{"Redis could not be told", 5 * time.Second, cleared{}, [5]string{
			"1, renewed, clear 6s; over 28s, visit 10s",
			"1, until 59.4s, clear 6s; over 59.4s, visit 10s",
			"1, given up, clear 6s; over 30s",
			"1, running out, clear 6s; over 30s",
			"none",
		}},
		{"its connection was closed by the proxy", 5 * time.Second, left{}, [5]string{
			"none; ended",
			"none; ended",
			"none; ended",
			"none; ended",
			"none; ended",
		}},
		{"an earlier command may still take effect", 5 * time.Second, unsettled{}, [5]string{
			"1, running out; over 30s",
			"1, running out; over 1m0s",
			"1, running out; over 30s",
			"1, running out; over 30s",
			"none",
		}},
		{"it may have been freed by force", 5 * time.Second, suspected{reasonForced}, [5]string{
			"1, renewed, perhaps forced; over 28s, visit 5s",
			"1, until 59.4s, perhaps forced; over 59.4s, visit 5s",
			"1, given up, perhaps forced; over 30s",
			"1, running out, perhaps forced; over 30s",
			"none, perhaps forced",
		}},
		{"the new master's clock is 4 s ahead", 5 * time.Second, shortened{4 * time.Second, at(time.Second)}, [5]string{
			"1, renewed; over 24s, visit 5s",
			"1, until 59.4s; over 54s, visit 5s",
			"1, given up; over 26s",
			"1, running out; over 26s",
			"none",
		}},
		{"a clock was ahead, before this was sent", 5 * time.Second, shortened{4 * time.Second, at(-time.Second)}, [5]string{
			"1, renewed; over 28s, visit 10s",
			"1, until 59.4s; over 59.4s, visit 10s",
			"1, given up; over 30s",
			"1, running out; over 30s",
			"none",
		}},
		{"nothing, 20 s long", 20 * time.Second, overdue{}, [5]string{
			"1, renewed; over 28s, visit 10s",
			"1, until 59.4s; over 59.4s, visit 10s",
			"1, given up; over 30s",
			"1, running out; over 30s",
			"none",
		}},
		{"nothing, until its time is over", 61 * time.Second, overdue{}, [5]string{
			"none, clear 1m1s; ended, LOST unrenewed",
			"none, clear 1m1.6s; ended, LOST expired",
			"none, clear 1m1.3s; ended",
			"none; ended",
			"none",
		}},
	} {
		for i, kind := range holdKinds {
			h, _ := hold{}.after(kind.begin...)
			h, fx := h.on(c.event, at(c.at), testTerms)
			if got := told(h, fx); got != c.want[i] {
				t.Errorf("%s, %s:\n got %q\nwant %q", kind.name, c.what, got, c.want[i])
			}
		}
	}
}

// lockAgain is a LOCK of a hold that the connection has.
func lockAgain(when time.Duration) happening {
	return happening{when, acquired{counts: twice, ttl: 30 * time.Second, sent: at(when)}}
}

// A connection that enters the lock again and again, and leaves that section, does not keep the watchdog away.
func TestReentryDoesNotMoveTheNextVisit(t *testing.T) {
	h, _ := hold{}.after(lockWatched)
	for when := time.Second; when < 10*time.Second; when += time.Second {
		h, _ = h.after(lockAgain(when), happening{when, unlocked{once}})
		if h.visit != at(10*time.Second) {
			t.Fatalf("after %v the next visit is at %v", when, h.visit.sub(start))
		}
	}
}

// Nor does it put off the end of a hold by max-hold.
func TestReentryDoesNotMoveMaxHold(t *testing.T) {
	limited := testTerms
	limited.maxHold = 5 * time.Second
	h, _ := hold{}.on(lockWatched.event, start, limited)
	h, _ = h.on(lockAgain(4*time.Second).event, at(4*time.Second), limited)
	if h.visit != at(5*time.Second) || h.outlived(at(4*time.Second), limited) || !h.outlived(at(5*time.Second), limited) {
		t.Errorf("%+v", h)
	}
}

// A visit lets a hold last no shorter than it was to last before: what began with EX 60 and is renewed now, or was to end later once.
func TestVisitShortensNothing(t *testing.T) {
	longer := happening{time.Second, extended{time.Hour, time.Hour, at(time.Second)}}
	for want, events := range map[time.Duration][]happening{
		30 * time.Second:          {lockWatched},
		50 * time.Second:          {lockWithEnd, lockAgain(5 * time.Second)},
		time.Hour - 9*time.Second: {lockWatched, longer, {2 * time.Second, handedOver{}}},
	} {
		h, _ := hold{}.after(events...)
		if got := h.asserts(at(10*time.Second), testTerms); got != want {
			t.Errorf("after %v it lasts for %v, not %v", events, got, want)
		}
	}
}

// wantTold fails the test unless the hold is described so after these events, of which the last had the effects.
func wantTold(t *testing.T, want string, events ...happening) hold {
	t.Helper()
	h, fx := hold{}.after(events...)
	if got := told(h, fx[len(fx)-1]); got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	return h
}

// A lease ends by the proxy's clock, even if the watchdog, or Redis, has made it longer there; then Redis is told that there is none, until it has
// been told or can have it no longer.
func TestLeaseEndsByTheProxysClock(t *testing.T) {
	const end, much = 59400 * time.Millisecond, 10 * time.Minute
	longer := []happening{lockWithEnd, {50 * time.Second, visited{true, much, at(50 * time.Second)}}}
	wantTold(t, "1, until 59.4s; over 59.4s, visit 1m0s", longer...)
	over := append(longer, happening{end, overdue{}})
	wantTold(t, "none, clear 1m0s; ended, LOST expired", over...)
	wantTold(t, "none, clear 1m2s", append(over, happening{61 * time.Second, cleared{}})...)
	wantTold(t, "none", append(over, happening{61 * time.Second, cleared{done: true}})...)
	wantTold(t, "none", append(over, happening{time.Hour, cleared{}})...)
	wantTold(t, "none, clear 1h0m1s", append(over, happening{time.Hour, cleared{rw: true}})...) // other readers may have kept it
}

// A refused UNLOCK is not renewed, and its end is no loss; a LOCK makes a new hold.
func TestRefusedUnlockRunsOut(t *testing.T) {
	refused := []happening{lockWatched, {5 * time.Second, notUnlocked{}}}
	h := wantTold(t, "1, given up; over 30s", refused...)
	if h.next() != 0 {
		t.Errorf("the watchdog comes at %v", h.next().sub(start))
	}
	wantTold(t, "none, clear 30.3s; ended", append(refused, happening{30 * time.Second, overdue{}})...)
	wantTold(t, "1, renewed; over 36s, visit 18s", append(refused,
		happening{8 * time.Second, acquired{counts: once, ttl: 30 * time.Second, sent: at(8 * time.Second)}})...)
}

// A RENEW that shortens the lease, and has no answer, may have been done: the loss is told by then, unless the watchdog has lengthened it meanwhile.
func TestShorterRenewWithoutAReply(t *testing.T) {
	sent := []happening{lockWithEnd, {5 * time.Second, extending{10 * time.Second, at(5 * time.Second)}}}
	wantTold(t, "1, until 59.4s; over 14.9s, visit 10s", sent...)
	wantTold(t, "none, clear 1m0s; ended, LOST expired", append(sent, happening{14900 * time.Millisecond, overdue{}})...)
	unknown := append(sent, happening{8 * time.Second, notExtended{unknown: true}})
	h := wantTold(t, "1, until 59.4s; over 12.9s, visit 8s", unknown...)
	lease := h.asserts(at(8*time.Second), testTerms)
	wantTold(t, "none, clear 14.9s; ended, LOST unrenewed", append(unknown, happening{12900 * time.Millisecond, overdue{}})...)
	wantTold(t, "1, until 59.4s; over 59.4s, visit 18s", append(unknown, happening{9 * time.Second, visited{true, lease, at(8 * time.Second)}})...)
}

// Nothing is lost twice, nor comes back by what was under way when it was lost.
func TestNothingIsLostTwice(t *testing.T) {
	for _, begin := range []happening{lockWatched, lockWithEnd} {
		for _, first := range []event{gone{}, visited{}, outlived{}, overdue{}} {
			h, fx := hold{}.after(begin, happening{70 * time.Second, first})
			if fx[1].lost == "" {
				t.Errorf("%T is no loss", first)
			}
			for _, second := range []event{gone{}, visited{}, outlived{}, overdue{}, unlocked{}, unlocked{once}, notUnlocked{}, handedOver{}, unsettled{}, left{}} {
				if h, fx := h.on(second, at(71*time.Second), testTerms); fx.lost != "" || h.live() {
					t.Errorf("%T after %T: %s", second, first, told(h, fx))
				}
			}
		}
	}
}

// What a connection has of both sides of a read/write lock is one hold with one lease: it ends with the last of both.
func TestBothSidesAreOneHold(t *testing.T) {
	both := lockstore.Counts{Reads: 1, Writes: 1}
	writes := happening{0, acquired{counts: once, lease: 5 * time.Second, ttl: 5 * time.Second, sent: start}}
	reads := happening{time.Second, acquired{counts: both, lease: time.Minute, ttl: time.Minute, sent: at(time.Second)}}
	wantTold(t, "2, until 1m0.4s; over 1m0.4s, visit 10s", writes, reads)
	wantTold(t, "1, until 1m0.4s; over 1m0.4s, visit 10s", writes, reads, happening{2 * time.Second, unlocked{once}})
	wantTold(t, "none; ended", writes, reads, happening{2 * time.Second, unlocked{}})
}

// TestRecheckWhileAVisitIsUnderWay: the watchdog comes at once although an answer has come to what it had sent before that was asked of it.
func TestRecheckWhileAVisitIsUnderWay(t *testing.T) {
	sent, asked, came := at(10*time.Second), 11*time.Second, 12*time.Second
	for _, why := range []event{suspected{reasonFailover}, shortened{time.Second, at(asked)}} {
		for _, answer := range []event{visited{true, 30 * time.Second, sent}, notVisited{sent, at(came)}} {
			h, _ := hold{}.after(lockWatched, happening{asked, why}, happening{came, answer})
			if h.visit > at(came) {
				t.Errorf("%#v, then %#v: the watchdog comes %v later", why, answer, h.visit.sub(at(came)))
			}
		}
	}
}
