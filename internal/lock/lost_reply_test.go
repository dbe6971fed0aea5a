package lock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// losesReplies is a store that does a LOCK, and loses the reply to it.
type losesReplies struct{ lockstore.Store }

func (s losesReplies) Acquire(ctx context.Context, a *lockstore.Acquire) (lockstore.Acquired, error) {
	got, err := s.Store.Acquire(ctx, a)
	if err == nil {
		err = &upstream.LostError{Cause: context.DeadlineExceeded}
	}
	return lockstore.Acquired{Sent: got.Sent, Final: time.Now()}, err
}

// TestLockWithoutItsReply: a LOCK that may have been granted is not said to have been without effect, and what it has made is given back.
func TestLockWithoutItsReply(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, s, "one", ManagerOptions{})
			synctest.Wait() // the engine has begun, which reads its store
			m.store = losesReplies{m.store}
			a, _ := client(m)
			_, err := a.Lock(context.Background(), Request{Key: "k", Kind: kind, Lease: 20_000})
			if err == nil || !strings.Contains(err.Error(), "was lost") {
				t.Error(err)
			}
			if time.Sleep(5 * time.Second); pttl(t, s, "k") > 0 {
				t.Errorf("%v: %d ms are left", kind, pttl(t, s, "k"))
			}
		})
	}
}

// losesAndRefuses is a store that does the first LOCK and loses the reply to it, and whose Redis refuses all later ones.
type losesAndRefuses struct {
	lockstore.Store
	asked atomic.Int64
}

func (s *losesAndRefuses) Acquire(ctx context.Context, a *lockstore.Acquire) (lockstore.Acquired, error) {
	if s.asked.Add(1) == 1 {
		return losesReplies{s.Store}.Acquire(ctx, a)
	}
	return lockstore.Acquired{}, &upstream.ReplyError{Line: "MISCONF Errors writing to the AOF file"}
}

// TestWaitWithoutItsReplyIsRefused: a LOCK that may wait asks again when its first reply was lost. That Redis refuses the second request does not say
// that the first was not done.
func TestWaitWithoutItsReplyIsRefused(t *testing.T) {
	for _, owner := range []string{"", "ann"} {
		inBubble(t, func(t *testing.T, w *world.World) {
			m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", ManagerOptions{})
			synctest.Wait()
			s := &losesAndRefuses{Store: m.store}
			m.store = s
			a, _ := client(m)
			_, err := a.Lock(context.Background(), Request{Key: "k", Owner: owner, Lease: 20_000, Blocks: true})
			if err == nil || !strings.Contains(err.Error(), "was lost") || s.asked.Load() != 2 {
				t.Errorf("%q %d %v", owner, s.asked.Load(), err)
			}
		})
	}
}

// refusesNext is a store that loses the reply to an UNLOCK which hands on the lock, and whose Redis then refuses what comes next.
type refusesNext struct {
	lockstore.Store
	done    bool // what has no reply was done
	refuses atomic.Int64
}

func (s *refusesNext) Release(ctx context.Context, r *lockstore.Release) (done lockstore.Released, err error) {
	if r.Next != nil {
		if s.done {
			_, err = s.Store.Release(ctx, r)
		}
		s.refuses.Store(3)
		return lockstore.Released{Final: time.Now()}, errors.Join(err, &upstream.LostError{Cause: context.DeadlineExceeded})
	}
	if s.refuses.Add(-1) >= 0 {
		return done, &upstream.ReplyError{Line: "LOADING Redis is loading the dataset in memory"}
	}
	return s.Store.Release(ctx, r)
}

// TestHandoffWithoutItsReplyIsRefused: that Redis refuses the second request does not say that the first was not done. The owner is told that nobody
// knows, and Redis that it does not want the lock, so that the next one does not wait for the end of the lease.
func TestHandoffWithoutItsReplyIsRefused(t *testing.T) {
	for _, done := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world.World) {
			m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", ManagerOptions{})
			a, _ := client(m)
			b, _ := client(m)
			mustLock(t, a, Request{Key: "k"})
			m.giveBacks.store = &refusesNext{Store: m.store, done: done}
			r := Request{Key: "k", Blocks: true}
			got := make(chan error, 1)
			go func() { _, err := b.Lock(context.Background(), r); got <- err }()
			eventually(t, time.Second, "it waits", func() bool { return parkedAt(m, r) })
			if _, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"}); err == nil || !strings.Contains(err.Error(), "was lost") {
				t.Error(done, err)
			}
			select {
			case err := <-got:
				if err != nil {
					t.Error(done, err)
				}
			case <-time.After(10 * time.Second):
				t.Error(done, "the next one has not got it")
			}
		})
	}
}

// untilLost is a store of a Redis that does nothing for the watchdog from a moment on, and whose answers to verbs that take or renew a lock come
// so much later.
type untilLost struct {
	lockstore.Store
	by atomic.Int64 // ns; 0: all is well
}

func (s *untilLost) Renew(ctx context.Context, r lockstore.Renewal) ([]int64, error) {
	if s.by.Load() != 0 {
		return nil, &upstream.NotSentError{Cause: context.DeadlineExceeded}
	}
	return s.Store.Renew(ctx, r)
}

func (s *untilLost) Acquire(ctx context.Context, a *lockstore.Acquire) (lockstore.Acquired, error) {
	defer func() { time.Sleep(time.Duration(s.by.Load())) }()
	return s.Store.Acquire(ctx, a)
}

func (s *untilLost) Extend(ctx context.Context, e lockstore.Extension) (lockstore.Extended, error) {
	defer func() { time.Sleep(time.Duration(s.by.Load())) }()
	return s.Store.Extend(ctx, e)
}

// TestVerbThatOutlastsItsLock: a lock is told lost while a verb about the lock is under way, and then Redis answers that the verb was done. Redis keeps
// the lock until the connection can no longer count on it, and is told after that to give the lock back.
func TestVerbThatOutlastsItsLock(t *testing.T) {
	lock := func(r Request) func(*Client) error {
		return func(c *Client) error { _, err := c.Lock(context.Background(), r); return err }
	}
	for name, verb := range map[string]func(*Client) error{
		"LOCK":          lock(Request{Key: "k"}),
		"LOCK REPLICAS": lock(Request{Key: "k", Replicas: 1}), // which it does not get: it hears that first
		"RENEW":         func(c *Client) error { return c.Renew(context.Background(), RenewRequest{Key: "k", Lease: 60_000}) },
	} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, s, "one", ManagerOptions{})
			synctest.Wait()
			slow := &untilLost{Store: m.store}
			m.store, m.watchdog.store = slow, slow
			time.Sleep(time.Second)
			a, told := client(m)
			mustLock(t, a, Request{Key: "k"})
			slow.by.Store(int64(200 * time.Millisecond))
			time.Sleep(27_900 * time.Millisecond) // of 30 s, of which the last two are for telling
			if err := verb(a); !isCode(err, "LOCKLOST") && !isCode(err, "NOREPLICAS") || told.reasons() != "k:unrenewed " {
				t.Fatalf("%s: %v, told %q", name, err, told.reasons())
			}
			if time.Sleep(1800 * time.Millisecond); pttl(t, s, "k") < 0 {
				t.Error(name, "it was given back while the connection could count on it")
			}
			if time.Sleep(2 * time.Second); pttl(t, s, "k") > 0 {
				t.Errorf("%s: %d ms are left", name, pttl(t, s, "k"))
			}
		})
	}
}

// TestReentryOfWhatHasGone: a connection that enters its lock again when that has gone is told of the loss once, and then holds it once, whether or
// not somebody else had the lock meanwhile, or shares it now.
func TestReentryOfWhatHasGone(t *testing.T) {
	for name, r := range map[string]Request{
		"plain": {Key: "k"}, "fair": {Key: "k", Fair: true, Blocks: true}, "fenced": {Key: "k", Fence: true},
		"ends": {Key: "k", Lease: 20_000}, "reads": {Key: "k", Kind: Read}, "writes": {Key: "k", Kind: Write},
	} {
		for _, had := range []int{1, 2, 5} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) { reenterGone(t, w, r, had) })
			})
		}
	}
}

func reenterGone(t *testing.T, w *world.World, r Request, had int) {
	s := w.NewNode(bubbleAddr)
	m := bubbleEngine(t, w, s, "one", ManagerOptions{})
	a, told := client(m)
	b, _ := client(bubbleEngine(t, w, s, "two", ManagerOptions{}))
	for range had {
		mustLock(t, a, r)
	}
	s.Do(t, "DEL", "k")
	mustLock(t, b, r)
	if r.Kind != Read { // readers share it
		mustUnlock(t, b, UnlockRequest{Key: "k"}, true)
	}
	_, err := a.Lock(context.Background(), r)
	wantCode(t, err, "LOCKLOST")
	mustLock(t, a, r)
	if got := told.reasons(); got != "k:gone " {
		t.Errorf("%d before: told %q", had, got)
	}
	mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	if held := m.Stats().Held; held != 0 {
		t.Errorf("%d before: %d are believed held", had, held)
	}
}

// TestUnlockOfOneSideWithoutItsReply: a connection that reads and writes gives back one side. Sent again after a lost reply, the UNLOCK finds that
// side gone, and nothing was lost.
func TestUnlockOfOneSideWithoutItsReply(t *testing.T) {
	for _, side := range []Kind{Read, Write} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, p := bubbleSlow(t, w, s, ManagerOptions{})
			a, told := client(m)
			mustLock(t, a, Request{Key: "k", Kind: Write})
			mustLock(t, a, Request{Key: "k", Kind: Read})
			done := make(chan error, 1)
			go func() {
				_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: side})
				done <- err
			}()
			eventually(t, 5*time.Second, "it is given back", func() bool { return len(hash(t, s, "k")) == 2 }) // the mode, and the other side
			p.Drop()
			p.Heal()
			if err := <-done; err != nil || told.reasons() != "" {
				t.Errorf("%v: %v, told %q", side, err, told.reasons())
			}
			mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		})
	}
}

// TestInnerStepsWithoutTheirReply: a connection enters its lock once more, or gives an inner section back, and hears that the outcome is unknown. The
// LOCK counts as not done, the UNLOCK as done; Redis is told so.
func TestInnerStepsWithoutTheirReply(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] { // of a place Redis has no count
		for _, done := range []bool{true, false} {
			inBubble(t, func(t *testing.T, w *world.World) { innerSteps(t, w, kind, done) })
		}
	}
}

func innerSteps(t *testing.T, w *world.World, kind Kind, done bool) {
	s := w.NewNode(bubbleAddr)
	m, p := bubbleSlow(t, w, s, ManagerOptions{Watchdog: 5 * time.Minute}) // no renewal is due meanwhile
	a, _ := client(m)
	count := func(want string) {
		t.Helper()
		id := lockstore.ID{Key: "k", Owner: a.Owner(), Kind: kind}
		eventually(t, 20*time.Second, "the count is "+want, func() bool { return hash(t, s, "k")[id.Field()] == want })
	}
	lose := func(verb func() error) {
		t.Helper()
		// A step waits while the hold is looked at, as it is when the wake-up connection is new. It would not be on its way when the link is cut.
		time.Sleep(3 * node.MaxPause)
		p.Delay(100*time.Millisecond, 0)
		failed := make(chan error, 1)
		go func() { failed <- verb() }()
		if done {
			time.Sleep(150 * time.Millisecond)
		} else {
			time.Sleep(50 * time.Millisecond)
		}
		p.Cut()
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "was lost") {
			t.Error(err)
		}
		p.Heal()
		synctest.Wait()
	}
	r := Request{Key: "k", Kind: kind}
	mustLock(t, a, r)
	lose(func() error { _, err := a.Lock(context.Background(), r); return err })
	count("1")
	eventually(t, 20*time.Second, "it is taken once more", func() bool { _, err := a.Lock(context.Background(), r); return err == nil })
	count("2")
	lose(func() error { _, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"}); return err })
	count("1")
	eventually(t, 20*time.Second, "it is given back", func() bool {
		free, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"})
		return free && err == nil
	})
}
