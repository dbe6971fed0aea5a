package redisson

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// In a pair the first holds, and the second waits, tries, or forces.
const (
	theyFirst = "Redisson, lockproxy"
	weFirst   = "lockproxy, Redisson"
	bothJava  = "Redisson through lockproxy, Redisson"
)

// first and second are new owners of the two sides of a pair.
func (e *env) first(t testing.TB, pair string) side {
	t.Helper()
	who, _, _ := strings.Cut(pair, ", ")
	return e.party(t, who)
}

func (e *env) secondSide(t testing.TB, pair string) side {
	t.Helper()
	_, who, _ := strings.Cut(pair, ", ")
	return e.party(t, who)
}

// rival is the kind of lock that a lock of the kind given excludes: readers exclude writers.
func rival(kind string) string {
	if kind == "read" {
		return "write"
	}
	return kind
}

// wakes: the unlock of one side wakes the waiter of the other.
func wakes(t *testing.T, e *env, pair, kind string) {
	holder, waiter := e.first(t, pair), e.secondSide(t, pair)
	for range 7 {
		l := e.lock(kind)
		e.handOver(t, pair, l, holder, waiter, func() error { return holder.unlock(l) })
	}
}

// handOver has the holder lock, the other wait, and release give the lock up.
func (e *env) handOver(t testing.TB, what string, l lock, holder, waiter side, release func() error) {
	t.Helper()
	hold(t, holder, l, long)
	theirs := lock{rival(l.kind), l.name}
	got := start(func() error { _, err := waiter.lock(theirs, long); return err })
	e.queued(t, theirs, 1)
	if !got.waiting() {
		t.Fatalf("%v: two hold it", l)
	}
	released := time.Now()
	must(t, release(), "releasing")
	if took := time.Since(released); took > overdue/2 {
		t.Logf("the release itself took %v", took)
	}
	e.woke(t, what+": "+l.kind, got.ok(t, "the waiter").Sub(released))
	free(t, waiter, theirs)
}

// excludes: who tries gets nothing, and who waits for a time gets nothing in that time.
func excludes(t *testing.T, e *env, pair, kind string) {
	const wait = 400 * time.Millisecond
	holder, other := e.first(t, pair), e.secondSide(t, pair)
	l := e.lock(kind)
	theirs := lock{rival(kind), l.name}
	hold(t, holder, l, long)
	tries(t, other, theirs, false)
	began := time.Now()
	if won, err := other.try(theirs, wait, long); won || err != nil {
		t.Fatalf("waiting %v: %v %v", wait, won, err)
	}
	if took := time.Since(began); took < wait*9/10 || took > wait+harness.Patience/2 {
		t.Errorf("waiting %v took %v", wait, took)
	}
	free(t, holder, l)
	tries(t, other, theirs, true)
	free(t, other, theirs)
	for _, name := range l.members() {
		if n := e.holds(t, name); n != 0 {
			t.Errorf("%s: %d holds are left", name, n)
		}
	}
}

// reenters: what was locked three times is free after three unlocks.
func reenters(t *testing.T, e *env, pair, kind string) {
	holder, other := e.first(t, pair), e.secondSide(t, pair)
	l := e.lock(kind)
	for range 3 {
		hold(t, holder, l, long)
	}
	got := start(func() error { _, err := other.lock(lock{rival(kind), l.name}, long); return err })
	e.queued(t, lock{rival(kind), l.name}, 1)
	for left := 3; left > 0; left-- {
		if n := e.holds(t, l.name); n != left || !got.waiting() {
			t.Fatalf("%d holds, want %d; the other waits: %v", n, left, got.waiting())
		}
		free(t, holder, l)
	}
	got.ok(t, "the waiter")
	free(t, other, lock{rival(kind), l.name})
}

// watched: a lock without a lease is kept by its watchdog for as long as it is held.
func watched(t *testing.T, e *env, pair, kind string) {
	holder, other := e.first(t, pair), e.secondSide(t, pair)
	l := e.lock(kind)
	hold(t, holder, l, 0)
	for end := time.Now().Add(watchdog*33/10 + watchdog/10); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, name := range l.members() {
			if left := e.pttl(t, name); left <= 0 || left > watchdog {
				t.Fatalf("%s: %v are left of a lease of %v", name, left, watchdog)
			}
		}
		tries(t, other, lock{rival(kind), l.name}, false)
	}
	free(t, holder, l)
	tries(t, other, lock{rival(kind), l.name}, true)
	free(t, other, lock{rival(kind), l.name})
}

// forced: the other side's force frees the lock and wakes waiters, and the holder is told at its unlock.
func forced(t *testing.T, e *env, pair, kind string) {
	for range 3 {
		holder, waiter, forcer := e.first(t, pair), e.secondSide(t, pair), e.secondSide(t, pair)
		l := e.lock(kind)
		theirs := lock{rival(kind), l.name}
		hold(t, holder, l, long)
		got := start(func() error { _, err := waiter.lock(theirs, long); return err })
		e.queued(t, theirs, 1)
		began := time.Now()
		must(t, forcer.force(l), "forcing")
		e.woke(t, pair+": "+kind+", forced", got.ok(t, "the waiter").Sub(began))
		refused(t, holder, l)
		if n := e.holds(t, l.name); n != 1 {
			t.Errorf("%d holds, want the waiter's", n)
		}
		free(t, waiter, theirs)
	}
}

// expires: a lease that ends lets the waiter in without a message, and the late unlock hurts nobody.
func expires(t *testing.T, e *env, pair, kind string) {
	const lease = 800 * time.Millisecond
	holder, waiter := e.first(t, pair), e.secondSide(t, pair)
	l := e.lock(kind)
	theirs := lock{rival(kind), l.name}
	began := time.Now()
	hold(t, holder, l, lease)
	got := start(func() error { _, err := waiter.lock(theirs, long); return err })
	if e.forgets(kind, waiter) {
		e.inQueue(t, l, 1)
		reminder := e.party(t, ours)
		reminded := start(func() error { _, err := reminder.lock(l, long); return err })
		defer reminded.ok(t, "who stands behind")
	}
	if took := got.ok(t, "waiting for the end of a lease").Sub(began); took < lease*9/10 || took > lease+poll/2 {
		t.Errorf("a lease of %v let the waiter in after %v", lease, took)
	}
	refused(t, holder, l)
	free(t, waiter, theirs)
}

// strangers: nobody unlocks what is not theirs.
func strangers(t *testing.T, e *env, pair, kind string) {
	holder, alike, other := e.first(t, pair), e.first(t, pair), e.secondSide(t, pair)
	l := e.lock(kind)
	hold(t, holder, l, long)
	refused(t, other, l)
	refused(t, alike, l)
	tries(t, other, lock{rival(kind), l.name}, false)
	free(t, holder, l)
}

// names: both sides make the same keys and channels of every name.
func names(t *testing.T, e *env, pair, kind string) {
	holder, waiter := e.first(t, pair), e.secondSide(t, pair)
	forms := []string{"{tag-%s}:rest", "a:b %s\"'\\", "größer-%s-漢字-🔒", "%s\x01"}
	if e.cluster == nil { // where Redisson's rule for the names beside these goes astray
		forms = append(forms, "open{brace-%s", "close}%s", "{}%s")
	}
	for i, form := range forms {
		l := lock{kind, fmt.Sprintf(form, fmt.Sprint(e.name(kind), i))}
		e.handOver(t, pair, l, holder, waiter, func() error { return holder.unlock(l) })
	}
}

// tokens: the fencing tokens of both sides are one rising sequence, re-entry included.
func tokens(t *testing.T, e *env, pair, kind string) {
	a, b := e.first(t, pair), e.secondSide(t, pair)
	l := e.lock(kind)
	last := int64(-1)
	for i := range 12 {
		s := a
		if i/2%2 == 1 {
			s = b
		}
		for range 1 + i%2 {
			token, err := s.token(l.name)
			must(t, err, "locking with a token")
			if token <= last {
				t.Fatalf("token %d after %d", token, last)
			}
			last = token
		}
		for range 1 + i%2 {
			free(t, s, l)
		}
	}
}

// hangsUp: a client of lockproxy that goes frees its lock, and a thread of Redisson hears of it.
func hangsUp(t *testing.T, e *env, pair, kind string) {
	waiter := e.secondSide(t, pair)
	for range 3 {
		holder := e.first(t, pair).(*conn)
		e.handOver(t, "lockproxy's client hangs up, Redisson", e.lock(kind), holder, waiter, holder.c.Close)
	}
}
