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
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 4500 * time.Millisecond})
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
	m := engine(t, s.URL(), Options{})
	for _, value := range []string{"abc", "", "nan", "0", "-5", "2.5", "9223372036854775808"} {
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Owner: "o"})
		s.Do(t, "HSET", "k", "o", value)
		mustLock(t, a, Request{Key: "k", Owner: "o"})
		if got := hash(t, s, "k")["o"]; got != "1" {
			t.Errorf("%q became %q", value, got)
		}
		s.Do(t, "HSET", "k", "o", value)
		mustLock(t, a, Request{Key: "k", Owner: "o"})
		mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "o"}, true)
	}
	if n := m.Stats().Held; n != 0 {
		t.Fatal(n)
	}
}

// TestLockAfterLossCountsOne: a hold that was told lost is not entered again, even if Redis still has it.
func TestLockAfterLossCountsOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 3 * time.Second, MaxHold: 500 * time.Millisecond})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k"})
		mustLock(t, a, Request{Key: "k"})
		eventually(t, 5*time.Second, "lost", func() bool { return lost.reasons() == "k:max-hold " })
		first := mustLock(t, a, Request{Key: "k", Lease: 1000, Fence: true})
		if got := hash(t, s, "k")[a.Owner()]; got != "1" || pttl(t, s, "k") > 1000 {
			t.Fatal(got, pttl(t, s, "k"))
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
		m := bubbleEngine(t, w, s, "one", Options{})
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

// slowEngine has a connection to Redis that takes 100 ms each way.
func slowEngine(t *testing.T, s *testredis.Server, o Options) (*Manager, *testredis.Proxy) {
	t.Helper()
	p := testredis.NewProxy(t, s.Addr())
	m := engine(t, "redis://"+p.Addr(), o)
	a, _ := client(m)
	mustLock(t, a, Request{Key: "warm"})
	mustUnlock(t, a, UnlockRequest{Key: "warm"}, true)
	p.Latency(100 * time.Millisecond)
	return m, p
}

// TestUndoneOnce: an undo whose reply is lost takes one count back, not two.
func TestUndoneOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, Options{})
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

// TestSaidAgainAfterALostReply: a RENEW whose reply is lost is sent again, and answered by what is then.
func TestSaidAgainAfterALostReply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, Options{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		done := make(chan error, 1)
		go func() { done <- a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 60000}) }()
		eventually(t, 5*time.Second, "lengthened", func() bool { return pttl(t, s, "k") > 31000 })
		p.Drop()
		if err := <-done; err != nil || pttl(t, s, "k") < 50000 {
			t.Fatal(err, pttl(t, s, "k"))
		}
	})
}

// TestForceLostIsSentOnce: an UNLOCK FORCE whose reply is lost is not sent again, since it would free the next holder's lock; and the one
// whose lock it freed is told.
func TestForceLostIsSentOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, Options{})
		n := bubbleEngine(t, w, s, "two", Options{})
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

// TestRenewLostGivesWay: a RENEW whose reply is lost is not done again over what its owner has said through another proxy since.
func TestRenewLostGivesWay(t *testing.T) {
	for _, kind := range []Kind{Plain, Read, Write} {
		for _, here := range []bool{true, false} {
			for _, lease := range []int64{60000, 0} {
				for _, verb := range []string{"RENEW", "LOCK"} {
					t.Run(fmt.Sprintf("%v, taken here %v, lease %d, then %s", kind, here, lease, verb), func(t *testing.T) {
						inBubble(t, func(t *testing.T, w *world.World) { renewLostBefore(t, w, kind, here, lease, verb) })
					})
				}
			}
		}
	}
}

func renewLostBefore(t *testing.T, w *world.World, kind Kind, here bool, lease int64, verb string) {
	s := w.NewNode(bubbleAddr)
	m, p := bubbleSlow(t, w, s, Options{})
	n := bubbleEngine(t, w, s, "two", Options{})
	a, _ := client(m)
	b, _ := client(n)
	took := a
	if !here {
		took = b
	}
	mustLock(t, took, Request{Key: "k", Kind: kind, Owner: "o", Lease: 5000})
	renew := func(c *Client, lease int64) error {
		return c.Renew(context.Background(), RenewRequest{Key: "k", Side: kind, Owner: "o", Lease: lease})
	}
	done := make(chan error, 1)
	go func() { done <- renew(a, lease) }()
	eventually(t, 5*time.Second, "lengthened", func() bool { return pttl(t, s, "k") > 5000 })
	if verb == "LOCK" {
		mustLock(t, b, Request{Key: "k", Kind: kind, Owner: "o", Lease: 300000})
	} else if err := renew(b, 300000); err != nil {
		t.Fatal(err)
	}
	p.Drop()
	keeps := verb == "LOCK" && lease == 0 // which shortens nothing
	if err := <-done; (err == nil) != keeps {
		t.Error("the RENEW whose reply was lost says", err)
	}
	time.Sleep(time.Minute)
	if left := pttl(t, s, "k"); left < 200000 || left > 240000 {
		t.Errorf("%d ms are left", left)
	}
}

// TestRenewLostWithoutRegistration: a RENEW that was lost before Redis saw it is done when it is sent again, also of a hold that has no
// registration, beside which nobody has said anything.
func TestRenewLostWithoutRegistration(t *testing.T) {
	for _, kind := range []Kind{Plain, Read, Write} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, p := bubbleSlow(t, w, s, Options{})
			a, _ := client(m)
			id := lockstore.ID{Key: "k", Owner: "o", Kind: kind}
			mustLock(t, a, Request{Key: id.Key, Kind: kind, Owner: id.Owner, Lease: 30_000})
			renew := RenewRequest{Key: id.Key, Side: kind, Owner: id.Owner, Lease: 30_000}
			if err := a.Renew(context.Background(), renew); err != nil { // so that what is sent next is the script
				t.Fatal(err)
			}
			s.Do(t, "DEL", id.WatchKey())
			p.Swallow(world.Requests)
			time.AfterFunc(50*time.Millisecond, func() { p.Cut(); p.Heal() })
			renew.Lease = 300_000
			if err := a.Renew(context.Background(), renew); err != nil {
				t.Error(kind, err)
			}
			if left := pttl(t, s, id.Key); left < 200_000 {
				t.Errorf("%v: %d ms are left", kind, left)
			}
		})
	}
}

// TestUnlockLostForLong: a named owner's UNLOCK that was done before a long outage is not done again after it, when its owner has taken
// the lock anew; and what was not done is done then.
func TestUnlockLostForLong(t *testing.T) {
	for _, lease := range []int64{0, 120000} {
		for _, done := range []bool{true, false} {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m, p := bubbleSlow(t, w, s, Options{})
				n := bubbleEngine(t, w, s, "two", Options{})
				a, _ := client(m)
				b, _ := client(n)
				mustLock(t, a, Request{Key: "k", Owner: "o", Lease: lease})
				told := make(chan error, 1)
				go func() {
					_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "o"})
					told <- err
				}()
				if done {
					eventually(t, 5*time.Second, "unlocked", func() bool { return hash(t, s, "k")["o"] == "" })
					mustLock(t, b, Request{Key: "k", Owner: "o", Lease: lease})
				} else {
					time.Sleep(30 * time.Millisecond) // written, not at Redis
				}
				p.Cut()
				if err := <-told; err == nil {
					t.Fatal("an outcome nobody can know")
				}
				p.Heal()
				time.Sleep(4 * time.Second)
				if got := hash(t, s, "k")["o"] == "1"; got != done {
					t.Fatalf("lease %d, done %v: held %v", lease, done, got)
				}
				if done {
					mustUnlock(t, b, UnlockRequest{Key: "k", Owner: "o"}, true)
				}
			})
		}
	}
}

// TestUnlockLostBeforeALock: a named owner's UNLOCK that was lost before Redis saw it is not done after its owner has said LOCK through
// another proxy, whatever lease that asks for.
func TestUnlockLostBeforeALock(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for _, had := range []int64{0, 120000} {
			for _, long := range []bool{true, false} { // for longer than its client waits
				t.Run(fmt.Sprintf("%v, lease %d, long %v", kind, had, long), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) { unlockLostBeforeALock(t, w, kind, had, long) })
				})
			}
		}
	}
}

func unlockLostBeforeALock(t *testing.T, w *world.World, kind Kind, had int64, long bool) {
	s := w.NewNode(bubbleAddr)
	m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
	link := w.Proxy("one").Link(s.Addr())
	a, _ := client(m)
	b, _ := client(n)
	mustLock(t, a, Request{Key: "warm", Kind: kind, Owner: "o"})
	mustUnlock(t, a, UnlockRequest{Key: "warm", Owner: "o"}, true)
	mustLock(t, a, Request{Key: "k", Kind: kind, Owner: "o", Lease: had})
	link.Swallow(world.Requests)
	told := make(chan error, 1)
	go func() {
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: kind, Owner: "o"})
		told <- err
	}()
	time.Sleep(100 * time.Millisecond) // it is sent
	link.Cut()
	mustLock(t, b, Request{Key: "k", Kind: kind, Owner: "o", Lease: 60000})
	if long {
		wantCode(t, <-told, "ERR")
		time.Sleep(10 * time.Second)
	}
	link.Heal()
	if !long {
		wantCode(t, <-told, "ERR")
	}
	time.Sleep(40 * time.Second)
	if left := pttl(t, s, "k"); left <= 0 {
		t.Error("somebody else may have it, within the lease that its owner was told")
	}
	time.Sleep(2 * time.Minute)
	if left := pttl(t, s, "k"); left > 0 {
		t.Errorf("it is renewed after the UNLOCK: %d ms are left", left)
	}
}

// TestLockBeforeAnAbandonedUnlock: an UNLOCK of which the client was told an error is not done once its owner has said LOCK through another
// proxy, and the hold is renewed no more, nor told lost.
func TestLockBeforeAnAbandonedUnlock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
		a, lost := client(m)
		b, _ := client(n)
		mustLock(t, a, Request{Key: "k", Owner: "o"})
		id, _ := a.id(Plain, 0, "k", "o")
		h, err := m.holds.enter(context.Background(), id, true)
		if err != nil {
			t.Fatal(err)
		}
		rel := m.giveBacks.newRelease(h, a, false)
		said := rel.findOutcome()
		if !errors.Is(said.err, errNotDone) {
			t.Fatal(said)
		}
		mustLock(t, b, Request{Key: "k", Owner: "o", Lease: 40000})
		rel.abandon(said)
		time.Sleep(30 * time.Second)
		if pttl(t, s, "k") <= 0 {
			t.Error("it was given back")
		}
		time.Sleep(15 * time.Second)
		if left := pttl(t, s, "k"); left > 0 {
			t.Errorf("it is renewed: %d ms are left", left)
		}
		if lost.reasons() != "" {
			t.Error(lost.reasons())
		}
	})
}

// TestUnlockElsewhereLost: an UNLOCK whose reply was lost, through a proxy that has not taken the lock, is told as done when it was, and
// as unknown when it is not known whether the owner has taken the lock again.
func TestUnlockElsewhereLost(t *testing.T) {
	for _, done := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, p := bubbleSlow(t, w, s, Options{})
			n := bubbleEngine(t, w, s, "two", Options{})
			a, _ := client(m)
			b, lost := client(n)
			mustLock(t, b, Request{Key: "k", Owner: "o"})
			id, _ := a.id(Plain, 0, "k", "o")
			h, err := m.holds.enter(context.Background(), id, true)
			if err != nil {
				t.Fatal(err)
			}
			rel := m.giveBacks.newRelease(h, a, false)
			if done {
				if code, _, err := rel.ask(context.Background()); code != 1 || err != nil {
					t.Fatal(code, err)
				}
			}
			p.Drop()
			p.Heal()
			said := rel.findOutcome()
			m.holds.leave(h)
			if done && (said.err != nil || said.Code != 1) || !done && !errors.Is(said.err, errForgotten) {
				t.Fatal(done, said)
			}
			if got := hash(t, s, "k")["o"] == "1"; got == done {
				t.Fatal("done", done, "held", got)
			}
			eventually(t, time.Minute, "what was given back is renewed no more", func() bool { return n.Stats().Held == 0 == done })
			if lost.reasons() != "" {
				t.Fatal(lost.reasons())
			}
		})
	}
}

// TestRegistrationsDoNotMeet: two locks of two owners whose names run together.
func TestRegistrationsDoNotMeet(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 600 * time.Millisecond})
		a, _ := client(m)
		for _, r := range []Request{{Key: "x", Owner: "p:o"}, {Key: "{x}:p", Owner: "o"}, {Key: "{x}", Owner: "p:o"}, {Key: "x}:p", Owner: "o"}} {
			mustLock(t, a, r)
		}
		time.Sleep(1500 * time.Millisecond)
		if s.Do(t, "EXISTS", "x", "{x}:p", "{x}", "x}:p").(int64) != 4 || m.Stats().Held != 4 {
			t.Fatal("one took the other's registration")
		}
	})
}

// TestSpoiledRegistration: whatever becomes of one owner's registration, other locks are renewed.
func TestSpoiledRegistration(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 600 * time.Millisecond})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "good"})
		mustLock(t, a, Request{Key: "bad", Owner: "o"})
		mustLock(t, a, Request{Key: "evicted", Owner: "o"})
		spoil := func(key string) {
			s.Do(t, "EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'a', 'b')", 1, key)
		}
		s.Do(t, "DEL", "lockproxy_watch:{evicted}:o")
		spoil("lockproxy_watch:{bad}:o")
		time.Sleep(1500 * time.Millisecond)
		if s.Do(t, "EXISTS", "good", "evicted").(int64) != 2 || lost.reasons() != "bad:gone " {
			t.Fatal(lost.reasons())
		}
		mustLock(t, a, Request{Key: "bad2", Owner: "o"})
		spoil("lockproxy_watch:{bad2}:o")
		mustUnlock(t, a, UnlockRequest{Key: "bad2", Owner: "o"}, true)
	})
}

// TestEndedElsewhereTwice: the registered proxy hears of the end also when the owner has locked and unlocked there again.
func TestEndedElsewhereTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m1 := bubbleEngine(t, w, s, "one", Options{Watchdog: 900 * time.Millisecond})
		m2 := bubbleEngine(t, w, s, "two", Options{Watchdog: 900 * time.Millisecond})
		a, lost := client(m1)
		b, _ := client(m2)
		mustLock(t, a, Request{Key: "k", Owner: "o"})
		mustUnlock(t, b, UnlockRequest{Key: "k", Owner: "o"}, true)
		mustLock(t, b, Request{Key: "k", Owner: "o", Lease: 5000})
		mustUnlock(t, b, UnlockRequest{Key: "k", Owner: "o"}, true)
		eventually(t, 15*time.Second, "ended", func() bool { return m1.Stats().Held == 0 })
		if lost.reasons() != "" {
			t.Fatal(lost.reasons())
		}
	})
}

// TestExpiredOwnerIsLost: an owner whose lease ran out hears LOCKLOST, not that it never held.
func TestExpiredOwnerIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		a, _ := client(m)
		for i := range 20 {
			mustLock(t, a, Request{Key: fmt.Sprint("k", i), Owner: "o", Lease: 600 + int64(i)})
		}
		time.Sleep(2000 * time.Millisecond)
		for i := range 20 {
			_, err := a.Unlock(context.Background(), UnlockRequest{Key: fmt.Sprint("k", i), Owner: "o"})
			wantCode(t, err, "LOCKLOST")
		}
	})
}

// TestRenewalDoesNotShortenBelief: a hold that is good for an hour is not lost because of a short outage.
func TestRenewalDoesNotShortenBelief(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 600 * time.Millisecond})
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

// TestReentryElsewherePassesTheLine: an owner that holds through another proxy does not wait behind those who wait for it.
func TestReentryElsewherePassesTheLine(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m1, m2 := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
		a, _ := client(m1)
		mustLock(t, a, Request{Key: "k", Owner: "o"})
		waiter, _ := client(m2)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = waiter.Lock(ctx, Request{Key: "k", Blocks: true})
		}()
		eventually(t, 15*time.Second, "waits", func() bool { return m2.Stats().Waiting == 1 })
		b, _ := client(m2)
		mustLock(t, b, Request{Key: "k", Owner: "o", Blocks: true, Block: 3000})
		cancel()
		<-ended
	})
}

// TestForceSparesTheNextHolder: who got the lock between the force and the news of it is not told that it lost it.
func TestForceSparesTheNextHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
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
		m := bubbleEngine(t, w, s, "one", Options{})
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
		m := bubbleEngine(t, w, s, "one", Options{})
		ended := make(chan error, 1)
		go func() {
			_, err := m.store.Look(lockstore.ID{Key: "k", Owner: "o"}, false, time.Now().Add(time.Hour).UnixMicro(), time.Now().Add(300*time.Millisecond))
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

// TestLossSeenByLock: a LOCK that finds its owner's hold gone tells it.
func TestLossSeenByLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "entered"})
		mustLock(t, a, Request{Key: "taken"})
		s.Do(t, "DEL", "entered", "taken")
		s.Do(t, "HSET", "taken", "java:1", 1)
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

// TestFinishedIsForgottenByRenew: an UNLOCK of long ago does not answer for a hold that was lost since.
func TestFinishedIsForgottenByRenew(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m1, m2 := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
		a, _ := client(m1)
		b, _ := client(m2)
		mustLock(t, a, Request{Key: "k", Owner: "o"})
		mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "o"}, true)
		mustLock(t, b, Request{Key: "k", Owner: "o"})
		if err := a.Renew(context.Background(), RenewRequest{Key: "k", Owner: "o"}); err != nil {
			t.Fatal(err)
		}
		s.Do(t, "DEL", "k")
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "o"})
		wantCode(t, err, "LOCKLOST")
	})
}

// TestLateRenewalIsSatOut: after a renewal whose fate is unknown, a lease asked for anew waits until it can no longer be done.
func TestLateRenewalIsSatOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		m.holds.mu.Lock()
		h := m.holds.byID[lockstore.ID{Key: "k", Owner: a.Owner()}]
		h.late = time.Now().Add(lockstore.Allowed)
		m.holds.renewalFailed(h)
		m.holds.mu.Unlock()
		began := time.Now()
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		mustLock(t, a, Request{Key: "k", Lease: 500})
		if took := time.Since(began); took < 900*time.Millisecond {
			t.Fatalf("asked after %v", took)
		}
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		eventually(t, 15*time.Second, "forgotten", func() bool {
			m.holds.mu.Lock()
			defer m.holds.mu.Unlock()
			return len(m.holds.byID) == 0
		})
	})
}

// TestOwnerIsRegisteredForSure: a re-sent LOCK whose first sending was lost undone does not believe in a registration that
// was never written.
func TestOwnerIsRegisteredForSure(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, Options{Watchdog: 3 * time.Second})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Owner: "o"})
		b, lost := client(m)
		done := make(chan error, 1)
		go func() {
			_, err := b.Lock(context.Background(), Request{Key: "k", Owner: "o"})
			done <- err
		}()
		time.Sleep(30 * time.Millisecond) // written, not at Redis
		p.Drop()
		p.Heal()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if pttl(t, s, "k") <= 0 || m.Stats().Held != 1 {
			t.Fatal("not watched: ", lost.reasons())
		}
	})
}

// TestNanToken: a fencing token that is no whole number is refused.
func TestNanToken(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), Options{})
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
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 1500 * time.Millisecond})
		for round := range 10 {
			c, _ := client(m)
			for i := range 20 {
				mustLock(t, c, Request{Key: fmt.Sprint("k", i), Owner: fmt.Sprint("o", round)})
			}
			time.Sleep(time.Duration(490+2*round) * time.Millisecond)
			c.Close(Left)
			for i := range 20 {
				mustUnlock(t, c, UnlockRequest{Key: fmt.Sprint("k", i), Owner: fmt.Sprint("o", round)}, true)
			}
		}
	})
}

// TestReplicasAwayAndLost: a lock that is gone is told lost also while too few replicas answer its renewals.
func TestReplicasAwayAndLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 9 * time.Second})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k"})
		m.holds.mu.Lock()
		m.holds.byID[lockstore.ID{Key: "k", Owner: a.Owner()}].replicas = 1
		m.holds.mu.Unlock()
		s.Do(t, "DEL", "k")
		eventually(t, 8*time.Second, "told", func() bool { return lost.reasons() == "k:gone " })
	})
}

// TestReentrySettled: a re-entry whose reply was lost is told as granted, once.
func TestReentrySettled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, Options{})
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

// TestGrantedThoughRefusedLater: a LOCK whose reply was lost is asked for again for its own answer. When that is refused, or
// cannot be sent, the lock is held all the same, and its holder must hear so.
func TestGrantedThoughRefusedLater(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	m, p := slowEngine(t, s, Options{})
	a, _ := client(m)
	done := make(chan error, 1)
	go func() {
		_, err := a.Lock(context.Background(), Request{Key: "k"})
		done <- err
	}()
	eventually(t, 30*time.Second, "granted", func() bool { return hash(t, s, "k")[a.Owner()] == "1" })
	p.CutAll()
	p.Clear()
	s.Do(t, "CONFIG", "SET", "maxmemory", "1") // looking is allowed, locking is not
	err := <-done
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	if err != nil {
		t.Fatalf("Redis has the lock, its owner was told %v", err)
	}
	mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	if got := hash(t, s, "k"); len(got) > 0 {
		t.Fatalf("left %v", got)
	}
}

// A loss is over with a lock of the other kind that was taken and given back since: UNLOCK is about that one then.
func TestLossOfTheOtherKindIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
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
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 6 * time.Hour})
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

// A watched lock whose renewal fails when its deadline has just passed is told lost now, not a second later.
func TestLostWhenARenewalFailsAtTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		a, al := client(m)
		mustLock(t, a, Request{Key: "k"})
		s.Stop()
		defer s.Cont()
		m.holds.mu.Lock()
		h := m.holds.byID[lockstore.ID{Key: "k", Owner: a.Owner()}]
		h.deadline = time.Now()
		m.holds.renewalFailed(h)
		m.holds.mu.Unlock()
		eventually(t, 15*time.Second, "told", func() bool { return al.reasons() == "k:unrenewed " })
	})
}
