package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestLateRenewalIsNoLoss: a Redis that stood still finds the not-after of a lone renewal passed.
func TestLateRenewalIsNoLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 4500 * time.Millisecond})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k"})
		time.Sleep(time.Second)
		s.Stop()
		time.Sleep(2200 * time.Millisecond) // the renewal is sent at 1.5 s and done at 3.2 s
		s.Cont()
		time.Sleep(2 * time.Second)
		if lost.reasons() != "" || pttl(t, s, "k") <= 0 {
			t.Fatal("told lost: ", lost.reasons())
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	})
}

// TestForeignCounts: what others write into a lock's field neither ends the process nor sticks.
func TestForeignCounts(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	for _, value := range []string{"abc", "", "nan", "0", "-5", "2.5", "9223372036854775808"} {
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Owner: "o", Lease: 30_000})
		s.Do(t, "HSET", "k", "o", value)
		mustLock(t, a, Request{Key: "k", Owner: "o", Lease: 30_000})
		mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "o"}, true)
		mustLock(t, a, Request{Key: "k"})
		s.Do(t, "HSET", "k", a.Owner(), value)
		mustLock(t, a, Request{Key: "k"})
		if got := hash(t, s, "k")[a.Owner()]; got != "2" {
			t.Errorf("%q became %q", value, got)
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, false)
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	}
	if n := m.Stats().Held; n != 0 {
		t.Fatal(n)
	}
}

// TestLockAfterLossCountsOne: a hold that was told lost is not entered again, even if Redis still has it: LOCK says so once, and then makes a new one.
func TestLockAfterLossCountsOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 3 * time.Second, MaxHold: 500 * time.Millisecond})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k"})
		mustLock(t, a, Request{Key: "k"})
		eventually(t, 5*time.Second, "lost", func() bool { return lost.reasons() == "k:max-hold " })
		_, err := a.Lock(context.Background(), Request{Key: "k", Lease: 1000, Fence: true})
		wantCode(t, err, "LOCKLOST")
		first := mustLock(t, a, Request{Key: "k", Lease: 1000, Fence: true})
		if got := hash(t, s, "k")[a.Owner()]; got != "1" {
			t.Fatal(got)
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		if mustLock(t, a, Request{Key: "k", Fence: true, Self: true}).Token <= first.Token {
			t.Fatal("no new token")
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	})
}

// TestResetThenLock: what is locked after RESET is not released by it.
func TestResetThenLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, _ := client(m)
		a.SetLibrary(true)
		for range 100 {
			mustLock(t, a, Request{Key: "k"})
			a.Reset()
			mustLock(t, a, Request{Key: "k"})
			if got := hash(t, s, "k")[a.Owner()]; got != "1" {
				t.Fatalf("count %q", got)
			}
			mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		}
	})
}

// TestUndoneOnce: an undo whose reply is lost takes one count back, not two.
func TestUndoneOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, ManagerOptions{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		done := make(chan error, 1)
		go func() {
			_, err := a.Lock(context.Background(), Request{Key: "k", Replicas: 1, Lease: 1000})
			done <- err
		}()
		eventually(t, 5*time.Second, "entered", func() bool { return hash(t, s, "k")[a.Owner()] == "2" })
		eventually(t, 5*time.Second, "undone", func() bool { return hash(t, s, "k")[a.Owner()] == "1" })
		p.Drop()
		p.Heal()
		wantCode(t, <-done, "NOREPLICAS")
		if got := hash(t, s, "k")[a.Owner()]; got != "1" {
			t.Fatalf("count %q", got)
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	})
}

// TestForceLostIsSentOnce: an UNLOCK FORCE whose reply is lost is not sent again, since it would free the next holder's lock; and the one
// whose lock it freed is told.
func TestForceLostIsSentOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, ManagerOptions{})
		n := bubbleEngine(t, w, s, "two", ManagerOptions{})
		a, lost := client(m)
		by, _ := client(m)
		next, nextLost := client(n)
		mustLock(t, a, Request{Key: "k"})
		got := locking(next, Request{Key: "k", Blocks: true})
		done := make(chan error, 1)
		go func() {
			_, err := by.Unlock(context.Background(), UnlockRequest{Key: "k", Force: true})
			done <- err
		}()
		granted(t, got, "the waiter")
		p.Drop()
		if err := <-done; err == nil {
			t.Error("an outcome that nobody knows was told as done")
		}
		eventually(t, 15*time.Second, "told", func() bool { return lost.reasons() != "" })
		time.Sleep(10 * time.Second)
		if nextLost.reasons() != "" {
			t.Error("the next holder lost it:", nextLost.reasons())
		}
		mustUnlock(t, next, UnlockRequest{Key: "k"}, true)
	})
}

// TestRenewalDoesNotShortenBelief: a hold that is good for an hour is not lost because of a short outage.
func TestRenewalDoesNotShortenBelief(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 600 * time.Millisecond})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k", Lease: 3600000})
		mustLock(t, a, Request{Key: "k", Self: true})
		time.Sleep(500 * time.Millisecond)
		s.Stop()
		time.Sleep(1200 * time.Millisecond)
		s.Cont()
		time.Sleep(300 * time.Millisecond)
		if lost.reasons() != "" {
			t.Fatal(lost.reasons())
		}
	})
}

// TestForceSparesTheNextHolder: who got the lock between the force and the news of it is not told that it lost it.
func TestForceSparesTheNextHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k"})
		m.holds.recheckKey(lockstore.LineKey{Key: "k"}, reasonForced)
		time.Sleep(100 * time.Millisecond)
		if lost.reasons() != "" {
			t.Fatal(lost.reasons())
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	})
}

// TestKilledWaiterLeavesNoLock: a grant that comes when its client has been cut off goes back.
func TestKilledWaiterLeavesNoLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "warm"})
		s.Stop()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = a.Lock(ctx, Request{Key: "k", Blocks: true})
		}()
		time.Sleep(300 * time.Millisecond)
		cancel()
		s.Cont()
		<-ended
		a.Close(Left)
		eventually(t, 15*time.Second, "given back", func() bool { return s.Do(t, "EXISTS", "k").(int64) == 0 })
		if s.Do(t, "EXISTS", "warm").(int64) != 1 {
			t.Fatal("released what must run out")
		}
	})
}

// TestLookGivesUp: a clock that went back an hour does not hold a verb for an hour.
func TestLookGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		ended := make(chan error, 1)
		go func() {
			_, err := m.store.Look(lockstore.ID{Key: "k", Owner: "o"}, time.Now().Add(time.Hour), time.Now().Add(300*time.Millisecond))
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil {
				t.Fatal("looked too early")
			}
		case <-time.After(5 * time.Second):
			t.Fatal("still sleeping")
		}
	})
}

// TestLossSeenByLock: a LOCK that finds its connection's hold gone tells it, once.
func TestLossSeenByLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "entered"})
		mustLock(t, a, Request{Key: "taken"})
		s.Do(t, "DEL", "entered", "taken")
		s.Do(t, "HSET", "taken", "java:1", 1)
		for _, key := range []string{"entered", "taken"} {
			_, err := a.Lock(context.Background(), Request{Key: key})
			wantCode(t, err, "LOCKLOST")
		}
		mustLock(t, a, Request{Key: "entered"})
		if _, err := a.Lock(context.Background(), Request{Key: "taken"}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		t.Cleanup(func() { t.Logf("told %q", lost.reasons()) })
		// The watchdog, which looks when the wake-up connection is new, may be ahead of LOCK.
		eventually(t, 10*time.Second, "told", func() bool {
			return lost.reasons() == "entered:gone taken:gone " || lost.reasons() == "taken:gone entered:gone "
		})
		mustUnlock(t, a, UnlockRequest{Key: "entered"}, true)
	})
}

// TestNanToken: a fencing token that is no whole number is refused.
func TestNanToken(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	for _, value := range []string{"nan", "inf", "-inf", "1.5", "x", "-3", "1e300", strings.Repeat("9", 400)} {
		s.Do(t, "SET", "redisson_lock_token:{f}", value)
		var reply *upstream.ReplyError
		if g, err := a.Lock(context.Background(), Request{Key: "f", Fence: true}); !errors.As(err, &reply) {
			t.Errorf("%s: %v %v", value, g, err)
		}
	}
	if s.Do(t, "EXISTS", "f").(int64) != 0 {
		t.Fatal("a failed LOCK changed something")
	}
}

// TestCloseWhileRenewing is for the race detector.
func TestCloseWhileRenewing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 1500 * time.Millisecond})
		for round := range 10 {
			c, _ := client(m)
			for i := range 20 {
				mustLock(t, c, Request{Key: fmt.Sprint("k", i, "-", round)})
			}
			time.Sleep(time.Duration(490+2*round) * time.Millisecond)
			c.Close([]CloseHow{Left, Gone}[round%2])
		}
	})
}

// TestReentrySettled: a re-entry whose reply was lost is told as granted, once.
func TestReentrySettled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, ManagerOptions{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		done := make(chan error, 1)
		go func() {
			_, err := a.Lock(context.Background(), Request{Key: "k"})
			done <- err
		}()
		eventually(t, 5*time.Second, "entered", func() bool { return hash(t, s, "k")[a.Owner()] == "2" })
		p.Drop()
		if err := <-done; err != nil || hash(t, s, "k")[a.Owner()] != "2" {
			t.Fatal(err, hash(t, s, "k"))
		}
		mustUnlock(t, a, UnlockRequest{Key: "k", All: true}, true)
	})
}

// A loss is over with a lock of the other kind that was taken and given back since: UNLOCK is about that one then.
func TestLossOfTheOtherKindIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Kind: Write})
		s.Do(t, "DEL", "k")
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"})
		wantCode(t, err, "LOCKLOST")
		mustLock(t, a, Request{Key: "k"})
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		_, err = a.Unlock(context.Background(), UnlockRequest{Key: "k"})
		wantCode(t, err, "NOTHELD")
	})
}

// TestClockJumpHasLocksLookedAt: when Redis' clock is another than it was, locks are looked at, long before they would be renewed.
func TestClockJumpHasLocksLookedAt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 6 * time.Hour})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "gone"})
		mustLock(t, a, Request{Key: "kept"})
		b, _ := client(m)
		waits := locking(b, Request{Key: "kept", Blocks: true})
		eventually(t, 15*time.Second, "subscribed", func() bool { return subscribers(t, s, lockstore.ChannelOf("kept")) == 1 })
		time.Sleep(300 * time.Millisecond) // the look that follows a new connection is over
		s.Do(t, "DEL", "gone")
		s.Jump(-time.Hour)
		eventually(t, 15*time.Second, "told", func() bool { return lost.reasons() == "gone:clock " })
		mustUnlock(t, a, UnlockRequest{Key: "kept"}, true)
		granted(t, waits, "who waits")
	})
}

// TestReentryElsewherePassesTheLine: an owner that holds through another proxy does not wait behind those who wait for it.
func TestReentryElsewherePassesTheLine(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m1, m2 := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
		a, _ := client(m1)
		mustLock(t, a, Request{Key: "k", Owner: "o", Lease: 60_000})
		waiter, _ := client(m2)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = waiter.Lock(ctx, Request{Key: "k", Blocks: true})
		}()
		eventually(t, 15*time.Second, "waits", func() bool { return m2.Stats().Waiting == 1 })
		b, _ := client(m2)
		mustLock(t, b, Request{Key: "k", Owner: "o", Lease: 60_000, Blocks: true, Block: 3000})
		cancel()
		<-ended
	})
}

// TestUnlockOfAnOwnerIsSentOnce: a named owner's UNLOCK whose reply was lost is never done over what the owner has taken since, and its answer says
// what there is.
func TestUnlockOfAnOwnerIsSentOnce(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, taken again %v", kind, again), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) { unlockLost(t, w, kind, again) })
			})
		}
	}
}

func unlockLost(t *testing.T, w *world.World, kind Kind, again bool) {
	s := w.NewNode(bubbleAddr)
	m, p := bubbleSlow(t, w, s, ManagerOptions{})
	a, _ := client(m)
	b, _ := client(bubbleEngine(t, w, s, "two", ManagerOptions{}))
	r := Request{Key: "k", Kind: kind, Owner: "o", Lease: 120_000}
	mustLock(t, a, r)
	told := make(chan error, 1)
	go func() {
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: kind, Owner: "o"})
		told <- err
	}()
	eventually(t, 5*time.Second, "unlocked", func() bool { return pttl(t, s, "k") < 0 })
	if again {
		mustLock(t, b, r)
	}
	p.Drop()
	err := <-told
	wantCode(t, err, "ERR")
	if text := err.Error(); strings.Contains(text, "say UNLOCK again") != again {
		t.Error(text)
	}
	if time.Sleep(10 * time.Second); pttl(t, s, "k") > 0 != again {
		t.Errorf("%d ms are left", pttl(t, s, "k"))
	}
}

// TestUnlockOfAnOwnerThatRedisNeverSaw: so an UNLOCK that was lost on its way is not done later.
func TestUnlockOfAnOwnerThatRedisNeverSaw(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, s, "one", ManagerOptions{})
			a, _ := client(m)
			unlock := UnlockRequest{Key: "k", Side: kind, Owner: "o"}
			mustLock(t, a, Request{Key: "k", Kind: kind, Owner: "o", Lease: 120_000})
			swallowFor(w.Proxy("one").Link(s.Addr()), time.Second)
			_, err := a.Unlock(context.Background(), unlock)
			wantCode(t, err, "ERR")
			if time.Sleep(20 * time.Second); pttl(t, s, "k") <= 0 {
				t.Error("it was done after its answer")
			}
			mustUnlock(t, a, unlock, true)
		})
	}
}

// TestExpiredOwnerDoesNotHold: an owner whose lease ran out is told that it does not hold the lock.
func TestExpiredOwnerDoesNotHold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k", Owner: "o", Lease: 600})
		time.Sleep(2 * time.Second)
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "o"})
		wantCode(t, err, "NOTHELD")
		if lost.reasons() != "" {
			t.Error(lost.reasons())
		}
	})
}

// TestTakenAnewAfterALostRenewal: a renewal without an answer that Redis does after all makes no lease longer that was taken since.
func TestTakenAnewAfterALostRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 9 * time.Second})
		link := w.Proxy("one").Link(s.Addr())
		a, lost := client(m)
		b, _ := client(bubbleEngine(t, w, s, "two", ManagerOptions{}))
		mustLock(t, a, Request{Key: "k"})
		time.Sleep(2900 * time.Millisecond)
		link.Delay(500*time.Millisecond, 0)
		time.Sleep(300 * time.Millisecond) // the renewal is on its way
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		mustLock(t, a, Request{Key: "k", Lease: 3000})
		began := time.Now()
		mustLock(t, b, Request{Key: "k", Blocks: true})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it is free after %v", took)
		}
		if lost.reasons() != "k:expired " {
			t.Error(lost.reasons())
		}
	})
}

// TestLostWhenARenewalFailsAtTheDeadline: a watched lock whose renewal fails when its deadline has just passed is told lost now, not a second later.
func TestLostWhenARenewalFailsAtTheDeadline(t *testing.T) {
	now, t0 := start, terms{watchdog: 30 * time.Second, drift: func(time.Duration) time.Duration { return 0 }}
	h := hold{counts: lockstore.Counts{Writes: 1}, is: watched, lease: 30 * time.Second, sure: now}
	h, _ = h.on(notVisited{now, now}, now, t0)
	if due := h.due(t0); due > now {
		t.Errorf("it is told %v later", due.sub(now))
	}
	if _, fx := h.on(overdue{}, now, t0); fx.lost != reasonUnrenewed {
		t.Errorf("told %q", fx.lost)
	}
}

// TestClockAhead: with a new master whose clock is ahead the locks end earlier by that, since Redis keeps when they end, and each is believed in
// no longer. What was sent since was answered by the new master.
func TestClockAhead(t *testing.T) {
	now, t0 := start, terms{watchdog: 30 * time.Second, drift: func(time.Duration) time.Duration { return 0 }}
	for _, c := range []struct {
		sent time.Duration
		sure time.Duration
	}{{-time.Second, 50 * time.Second}, {time.Second, time.Minute}} {
		h := hold{counts: lockstore.Counts{Writes: 1}, is: watched}.promised(now.add(c.sent), time.Minute-c.sent)
		h, _ = h.on(shortened{10 * time.Second, now}, now, t0)
		if got := h.sure.sub(now); got != c.sure {
			t.Errorf("sent %v after: believed in for %v, not %v", c.sent, got, c.sure)
		}
	}
}
